"""An external data file being written: weights, and the packed forms of them (ORT's ``prepacked_N`` entries)."""

from __future__ import annotations

import zlib
from collections.abc import Hashable, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import numpy as np

from ort_sdk.api import HostArray, Tensor, TensorElementType
from ort_sdk.api.data_classes import dataclass, field
from ort_sdk.formats.files.checksum import CHECKSUM_NAME, RunningChecksum, checksum
from ort_sdk.formats.files.file_memory import FileMemory
from ort_sdk.formats.files.mapped_tensor import MappedTensor
from ort_sdk.formats.files.memory_map import map_file
from ort_sdk.formats.files.unfinished_file import UnfinishedFile
from ort_sdk.graph.derived_tensor import DerivedTensor, ReshapedTensor
from ort_sdk.graph.tensor import ArrayTensor

from .to_proto import tensor_to_proto

__all__ = ["PACKED_ALIGNMENT_BYTES", "WeightsFile", "buffers_digest"]

ALIGNMENT_BYTES = 4096
ALIGNMENT_THRESHOLD_BYTES = 1 << 20
"""Only objects larger than this start at a multiple of the alignment (ORT's convention)."""
PACKED_ALIGNMENT_BYTES = 64
"""Smaller packed buffers start at a multiple of this, so that kernels can use them where they are."""


@dataclass(slots=True)
class _Written:
    tensor: Tensor
    offset: int
    checksum: int
    prepacked: dict[tuple[str, str], tuple[tuple[int, int, int], ...]] = field(default_factory=dict)
    """Operator and identity of a packed form → offset, length and checksum of each buffer."""

    def entries(self) -> dict[str, str]:
        """The ``prepacked_N`` entries; each KEY holds the form's identity and digests of the weight and of the buffers."""
        entries = {}
        for number, ((op_type, identity), ranges) in enumerate(self.prepacked.items()):
            digest = buffers_digest([(length, value) for _, length, value in ranges])
            key = f"{op_type}+{identity}+{CHECKSUM_NAME}:{self.checksum:08x}+{digest:08x}"
            blobs = (f"{offset};{length};{CHECKSUM_NAME}:{value:08x}" for offset, length, value in ranges)
            entries[f"prepacked_{number}"] = "|".join([key, *blobs])
        return entries


def buffers_digest(buffers: Sequence[tuple[int, int]]) -> int:
    """What the KEY of a ``prepacked_N`` entry says of its buffers, so that none can be missing or out of order.

    Args:
        buffers: length and checksum of each.
    """
    return zlib.crc32(";".join(f"{length};{value}" for length, value in buffers).encode())


def _contents(tensor: Tensor) -> Hashable:
    """Equal for weights with the same bytes as ONNX packs them, as far as that is known without reading any.

    So it is for ranges of a file or buffer, arrays in the same memory, and what is derived alike from such.
    """
    if isinstance(tensor, ReshapedTensor):
        return _contents(tensor.sources[0])
    if isinstance(tensor, MappedTensor) and tensor.identity is not None:
        is_bool = tensor.element_type is TensorElementType.BOOL  # of which any byte but 0 is 1
        return ("range", id(tensor.source), tensor.offset, tensor.nbytes, is_bool)
    if isinstance(tensor, DerivedTensor) and tensor.sources:
        sources = tuple((_contents(source), source.element_type, tuple(source.shape)) for source in tensor.sources)
        return ("derived", tensor.transformation, tensor.element_type, tuple(tensor.shape), sources)
    if isinstance(tensor, ArrayTensor):
        array = tensor.numpy()
        return ("array", array.ctypes.data, tensor.element_type, array.shape, array.strides)
    return ("object", id(tensor))


class WeightsFile:
    """Takes weights while a session is made, and becomes the saved model's external data file.

    Args:
        folder: existing folder of the model.
        name: plain name of the file.
        min_bytes: smallest tensor that goes there.

    Raises:
        OSError: the file cannot be made.
    """

    def __init__(self, folder: Path, name: str, min_bytes: int) -> None:
        self.name = name
        self.unfinished = UnfinishedFile(folder, name)
        self._min_bytes = min_bytes
        self._written: dict[Hashable, _Written] = {}
        """By ``_contents``; its tensor keeps what that names alive."""
        self.memory = FileMemory(self._reserve)
        """For packed forms, and the bytes of weights, that are to be added."""

    @property
    def is_empty(self) -> bool:
        """Whether no weight was written."""
        return not self._written

    def takes(self, tensor: Tensor) -> bool:
        """Whether a tensor belongs here; others stay inline."""
        return tensor.element_type is not TensorElementType.STRING and tensor.nbytes >= self._min_bytes

    def _add(self, tensor: Tensor, alignment: int = 1) -> _Written:
        """Write a weight's bytes, if neither they nor another weight over the same bytes are there yet."""
        contents = _contents(tensor)
        written = self._written.get(contents)
        if written is None:
            offset = self._begin(tensor.nbytes, alignment)
            value = self._write(tensor)
            written = self._written[contents] = _Written(tensor, offset, value)
        return written

    def _write(self, tensor: Tensor) -> int:
        """Write a weight's bytes as they come; returns their checksum."""
        if not isinstance(tensor, DerivedTensor):
            content = np.ascontiguousarray(tensor.packed()).reshape(-1)
            self.unfinished.file.write(content.data)
            return checksum(content)
        running = RunningChecksum()
        for piece in tensor.pieces():
            self.unfinished.file.write(piece.data)
            running.update(piece)
        return running.value()

    def add_prepacked(self, tensor: Tensor, op_type: str, identity: str, buffers: Sequence[HostArray]) -> tuple[HostArray, ...]:
        """Write a packed form behind its weight, unless it is there.

        Args:
            tensor: the weight.
            op_type: operator that reads the weight.
            identity: hexadecimal digest of everything but the weight's contents that decides the packed bytes.
            buffers: contiguous ``uint8`` vectors.

        Returns:
            The buffers as read-only maps of the file, to use instead of those given.
        """
        written = self._add(tensor, PACKED_ALIGNMENT_BYTES)
        key = (op_type, identity)
        if key not in written.prepacked:
            written.prepacked[key] = tuple(self._append_packed(data, written) for data in buffers)
            self.unfinished.file.flush()
        self.memory.forget()
        descriptor = self.unfinished.file.fileno()
        return tuple(map_file(descriptor, length, offset) for offset, length, _ in written.prepacked[key])

    def add_bytes(self, tensor: Tensor, data: HostArray) -> HostArray:
        """Write a weight whose bytes the caller has.

        Args:
            tensor: the weight.
            data: what its ``packed`` gives, perhaps in ``memory``.

        Returns:
            The bytes as a read-only map of the file.
        """
        contents = _contents(tensor)
        written = self._written.get(contents)
        if written is None:
            written = self._written[contents] = _Written(tensor, self._append(data), checksum(data))
            self.unfinished.file.flush()
        self.memory.forget()
        return map_file(self.unfinished.file.fileno(), len(data), written.offset)

    def tensor_proto(self, tensor: Tensor, name: str) -> Any:
        """``TensorProto`` of a weight: a reference to its bytes here, or inline if it is small."""
        import onnx

        if not self.takes(tensor):
            return tensor_to_proto(tensor, name)
        written = self._add(tensor)
        proto = onnx.TensorProto(name=name, data_type=int(tensor.element_type), dims=tensor.shape)
        proto.data_location = proto.EXTERNAL
        entries = {"location": self.name, "offset": str(written.offset), "length": str(tensor.nbytes), **written.entries()}
        for key, value in entries.items():
            proto.external_data.add(key=key, value=value)
        return proto

    def close(self) -> None:
        """Let go of the file; if it was not published it is gone."""
        self.unfinished.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /) -> None:
        self.close()

    def _append_packed(self, data: HostArray, weight: _Written) -> tuple[int, int, int]:
        """Write one packed buffer; one that is only an aligned copy of its weight is the weight itself."""
        value = checksum(data)
        is_aligned = weight.offset % PACKED_ALIGNMENT_BYTES == 0
        if is_aligned and value == weight.checksum and np.array_equal(data, weight.tensor.packed()):
            return weight.offset, len(data), value
        return self._append(data), len(data), value

    def _append(self, data: HostArray) -> int:
        """Where bytes are in the file, written now if they are elsewhere."""
        offset = self.memory.offset_of(data)
        if offset is None:
            offset = self._begin(len(data), PACKED_ALIGNMENT_BYTES)
            self.unfinished.file.write(data.data)
        return offset

    def _reserve(self, nbytes: int) -> tuple[IO[bytes], int]:
        return self.unfinished.file, self._begin(nbytes, PACKED_ALIGNMENT_BYTES)

    def _begin(self, nbytes: int, alignment: int) -> int:
        """Fill up to where an object of that many bytes may start; returns its offset."""
        file = self.unfinished.file
        alignment = ALIGNMENT_BYTES if nbytes > ALIGNMENT_THRESHOLD_BYTES else alignment
        file.write(b"\0" * (-file.tell() % alignment))
        return file.tell()
