"""Constant inputs rearranged for the kernels that want it: taken from where they are packed already, else packed once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ort_sdk.api import (
    NOT_PACKED,
    TENSOR_BYTES,
    Allocator,
    HostArray,
    NotPacked,
    OpKernel,
    OrtDevice,
    PrePackedWeights,
    RuntimeException,
    Tensor,
)
from ort_sdk.api.data_classes import dataclass
from ort_sdk.api.foreign_errors import raise_foreign
from ort_sdk.formats.files.loaded_tensor import LoadedTensor
from ort_sdk.formats.files.mapped_tensor import ExternalTensor, MappedTensor

from .prepacked_weights_container import PackedEntry, PrepackedWeightsContainer, PrepackKey, shared_entry
from .storable import is_storable
from .weight_identity import WeightIdentity

if TYPE_CHECKING:
    from .prepack_cache import PrepackCache

__all__ = ["PackingNode", "PrepackHook", "PrepackSink", "Prepacker"]

PrepackHook = Callable[[Any, Tensor, int, "Allocator | None"], "PrePackedWeights | NotPacked | None"]
"""The provider's ``prepack`` hook bound to it: ``hook(kernel, tensor, input_index, allocator)``; None means no opinion."""


@dataclass(frozen=True, slots=True)
class PackingNode:
    """What packing must know of a kernel's node."""

    provider: str
    device: OrtDevice
    domain: str
    op_type: str
    hook: PrepackHook | None
    """None if the provider has none."""
    allocator: Allocator | None = None
    owner: Hashable = None
    """The provider's registration, for arrays that are not the host's."""


class PrepackSink(Protocol):
    """Takes packed weights to save them with the model."""

    def memory(self, tensor: Tensor) -> Allocator | None:
        """Memory to pack a weight in that is the model's file's; None if it does not go there."""

    def save(
        self, tensor: Tensor, op_type: str, identity: str, buffers: tuple[HostArray, ...], *, is_tensor: bool
    ) -> tuple[HostArray, ...]:
        """Write a weight's packed form, which ``is_tensor`` says to be the weight's own bytes.

        Returns:
            The buffers to use instead of those given.
        """


class Prepacker:
    """Packs the weights of one session: its main graph and all bodies.

    A packed weight with an identity is looked for in the container, in the weight's own file and in the cache folder before it
    is packed. Sessions of the process share those of files and of buffers that cannot be written; a container or a folder
    finds the others by their contents, too.

    Args:
        container: keeps packed weights beyond the session; None lets them go with the last session.
        cache: folder of packed weights.
        sink: saves them with the model.
    """

    def __init__(
        self,
        container: PrepackedWeightsContainer | None = None,
        cache: PrepackCache | None = None,
        sink: PrepackSink | None = None,
    ) -> None:
        self._container = container
        self._cache = cache
        self._sink = sink
        self._held: dict[PrepackKey, PackedEntry] = {}
        self._session = object()
        self._unpacked: list[HostArray] = []

    def pack_inputs(self, kernel: Any, node: PackingNode, constants: Mapping[int, WeightIdentity]) -> frozenset[int]:
        """Offer a kernel's constant inputs for packing.

        Args:
            kernel: asked only if it can take packed weights.
            node: its node.
            constants: input index → weight.

        Returns:
            Indices of the inputs the kernel keeps packed and reads no more.
        """
        if not hasattr(kernel, "use_prepacked"):
            return frozenset()
        return frozenset(index for index, weight in constants.items() if self.pack_input(kernel, node, weight, index))

    def pack_input(self, kernel: Any, node: PackingNode, weight: WeightIdentity, index: int) -> bool:
        """Offer one constant input of a kernel that can take packed weights; returns whether the kernel keeps it packed."""
        try:
            return self._pack_input(kernel, node, weight, index)
        except Exception as error:  # noqa: BLE001 - a kernel may raise anything
            operator = f"{node.domain or 'ai.onnx'}::{node.op_type}"
            raise_foreign(error, f"while input {index} of {operator} was packed for {node.provider}")

    def _pack_input(self, kernel: Any, node: PackingNode, weight: WeightIdentity, index: int) -> bool:
        packed = NOT_PACKED if _packs_nothing(kernel, node) else self._packed(kernel, node, weight, index)
        if isinstance(packed, PrePackedWeights):
            _drop_file_pages(weight, packed)
            kernel.use_prepacked(packed, index)
            return True
        if not isinstance(packed, NotPacked):
            raise RuntimeException(f"prepack must give PrePackedWeights or NOT_PACKED, gave {packed!r:.200}")
        tensor = weight.tensor
        if isinstance(tensor, LoadedTensor) and tensor.is_loaded:
            # Read to see what it is, and to be read in every run: not to be loaded again meanwhile.
            self._unpacked.append(tensor.numpy())
        return False

    def may_wait(self, kernel: Any, node: PackingNode, weight: WeightIdentity) -> bool:
        """Whether a constant input is to be offered to its kernel in the first run only.

        Not if a container or file keeps what is packed beyond the session, nor if it is packed already, nor if a loader brings
        it, which it does while the session is made, nor if its owner may change it before the first run.
        """
        if not getattr(kernel, "packs_in_first_run", False) or not node.device.is_cpu:
            return False
        if self._container is not None or self._cache is not None or self._sink is not None:
            return False
        is_packed = isinstance(weight.tensor, ExternalTensor) and bool(weight.tensor.prepacked)
        return weight.is_named and not is_packed

    def _packed(self, kernel: Any, node: PackingNode, weight: WeightIdentity, index: int) -> PrePackedWeights | NotPacked:
        identity = kernel.packing_identity(index) if hasattr(kernel, "packing_identity") else None
        if identity is None:
            return _pack(kernel, node, weight.tensor, index)
        key = PrepackKey(
            provider=node.provider,
            device=node.device,
            domain=node.domain,
            op_type=node.op_type,
            input_index=index,
            packing_identity=identity,
            type_and_shape=weight.type_and_shape,
            source=self._source(weight),
            owner=node.owner,
        )
        goes_to_file = self._cache is not None or self._sink is not None
        make = partial(self._make, kernel, node, weight, key)
        packed = self._entry(key, weight).weights(make, goes_to_file=goes_to_file)
        if isinstance(packed, PrePackedWeights) and self._sink is not None and is_storable(packed):
            self._save(self._sink, weight.tensor, key, packed)
        return packed

    def _source(self, weight: WeightIdentity) -> Hashable:
        """Identity of a weight's contents. Hashing them is for those who asked that packed weights be found again."""
        if weight.is_named or self._container is not None or self._cache is not None:
            return weight.contents()
        return (self._session, id(weight.tensor))

    def _entry(self, key: PrepackKey, weight: WeightIdentity) -> PackedEntry:
        entry = self._held.get(key)
        if entry is None:
            sources = weight.byte_sources
            entry = shared_entry(key, sources) if self._container is None else self._container.entry(key, sources)
            self._held[key] = entry
        return entry

    def _make(self, kernel: Any, node: PackingNode, weight: WeightIdentity, key: PrepackKey) -> PrePackedWeights | NotPacked:
        """Packed weight from a file, or packed now and, if a file takes it, read back from there."""
        tensor = weight.tensor
        if isinstance(tensor, ExternalTensor) and tensor.prepacked:
            from .saved_blobs import saved_weights

            saved = saved_weights(tensor, key.identity())
            if saved is not None:
                return saved
        if self._cache is not None:
            cache_key = f"{key.identity()} {weight.text(is_durable=True)}"
            return self._cache.load(cache_key) or self._cache.fill(cache_key, partial(_checked_pack, kernel, node, tensor, key))
        memory = None if self._sink is None else self._sink.memory(tensor)
        packed = _checked_pack(kernel, node, tensor, key, memory)
        if self._sink is None or not isinstance(packed, PrePackedWeights) or not is_storable(packed):
            return packed
        return self._save(self._sink, tensor, key, packed)

    def _save(self, sink: PrepackSink, tensor: Tensor, key: PrepackKey, packed: PrePackedWeights) -> PrePackedWeights:
        is_tensor = key.packing_identity == TENSOR_BYTES
        return PrePackedWeights(sink.save(tensor, key.op_type, key.identity(), packed.buffers, is_tensor=is_tensor))


def _packs_nothing(kernel: Any, node: PackingNode) -> bool:
    """Whether a kernel has nothing of its own for packing, nor its provider."""
    cls = type(kernel)
    has_own = getattr(cls, "prepack", None) is not OpKernel.prepack or cls.packing_identity is not OpKernel.packing_identity
    return node.hook is None and not has_own


def _drop_file_pages(weight: WeightIdentity, packed: PrePackedWeights) -> None:
    """Give back, soon, the memory of files that a weight was read from, unless its packed form is a view of them."""
    for source in weight.byte_sources:
        if not any(_may_share_memory(buffer, source.array) for buffer in packed.buffers):
            source.drop_pages_later(weight.tensor.nbytes)


def _may_share_memory(buffer: Any, array: HostArray) -> bool:
    return isinstance(buffer, np.ndarray) and np.may_share_memory(buffer, array)


def _checked_pack(
    kernel: Any, node: PackingNode, tensor: Tensor, key: PrepackKey, memory: Allocator | None
) -> PrePackedWeights | NotPacked:
    """A packed weight that others may take, made in memory of a file's if there is one."""
    packed = _pack(kernel, node, tensor, key.input_index, memory if node.device.is_cpu else None)
    if key.packing_identity == TENSOR_BYTES and isinstance(packed, PrePackedWeights) and is_storable(packed):
        lengths = [len(buffer) for buffer in packed.buffers]
        if lengths != [tensor.nbytes]:
            raise RuntimeException(
                f"kernel of {node.op_type} packed input {key.input_index} into buffers of {lengths} bytes; with the identity"
                f" {TENSOR_BYTES!r} there must be one, of {tensor.nbytes} bytes"
            )
    return packed


def _pack(
    kernel: Any, node: PackingNode, tensor: Tensor, index: int, memory: Allocator | None = None
) -> PrePackedWeights | NotPacked:
    # What the tensor makes to be read, an aligned copy for one, is not needed once it is packed.
    once = tensor.transient() if isinstance(tensor, MappedTensor) else tensor
    allocator = memory or node.allocator
    packed = None if node.hook is None else node.hook(kernel, once, index, allocator)
    return kernel.prepack(once, index, allocator) if packed is None else packed
