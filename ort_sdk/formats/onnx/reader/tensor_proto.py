"""``TensorProto`` and ``SparseTensorProto`` → constants."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ort_sdk.api import (
    ExternalDataInfo,
    Fail,
    HostArray,
    InvalidArgument,
    InvalidGraph,
    Tensor,
    TensorElementType,
)
from ort_sdk.formats.files.byte_source import ByteSource
from ort_sdk.formats.files.external_file import ExternalFiles, MissingExternalFile
from ort_sdk.formats.files.loaded_tensor import ExternalLoaders, LoadedTensor
from ort_sdk.formats.files.mapped_tensor import ExternalTensor, MappedTensor
from ort_sdk.graph import ArrayTensor, SparseTensor

from .external_entries import ExternalEntries, parse_entries
from .types import element_type
from .wire import Payload

__all__ = ["TensorReader"]

_MAX_RANK = 64  # NumPy's
_MAX_BYTES = 2**63 - 1
_EXTERNAL = 1  # TensorProto.EXTERNAL


class TensorReader:
    """Decodes the tensors of one model; bytes stay where they are.

    Args:
        source: the model file, which payloads are ranges of.
        external: the model's external data files.
        replacements: initializers of the main graph given by the caller instead of external ones, by name.
        loaders: asked for external tensors before their files are read.
    """

    def __init__(
        self,
        source: ByteSource,
        external: ExternalFiles,
        replacements: Mapping[str, Tensor] | None = None,
        loaders: ExternalLoaders | None = None,
    ) -> None:
        self._source = source
        self._external = external
        self._replacements = dict(replacements or {})
        self._loaders = loaders

    def read(self, proto: Any) -> Tensor:
        """Constant of a ``TensorProto``, all checks done, no weight read.

        Raises:
            InvalidGraph: shape, element type and data do not fit each other.
            Fail: external data is described wrongly, not allowed, or not there.
        """
        kind = element_type(proto.data_type, f"tensor '{proto.name}'")
        shape = _shape(proto)
        elements = math.prod(shape)
        if proto.data_location == _EXTERNAL:
            return self._read_external(proto, kind, shape, kind.nbytes(elements))
        if proto.HasField("segment") or proto.HasField("raw_data"):
            return self._read_raw(proto, kind, shape, kind.nbytes(elements))
        from .typed_fields import decode_typed_field

        return ArrayTensor(decode_typed_field(proto, kind, shape, elements))

    def read_initializer(self, proto: Any) -> Tensor:
        """Initializer of the main graph: the caller's replacement if there is one, else as ``read``.

        Raises:
            InvalidArgument: the replacement's type or shape differs, or the model's tensor is not external.
        """
        replacement = self._replacements.pop(proto.name, None)
        if replacement is None:
            return self.read(proto)
        if proto.data_location != _EXTERNAL:
            raise InvalidArgument(f"Trying to replace non-external initializer '{proto.name}' with external data")
        if (replacement.element_type, tuple(replacement.shape)) != (proto.data_type, tuple(proto.dims)):
            given = f"{replacement.element_type.onnx_name}{list(replacement.shape)}"
            declared = f"{element_type(proto.data_type, proto.name).onnx_name}{list(proto.dims)}"
            raise InvalidArgument(f"the value given for initializer '{proto.name}' is {given}; the model declares {declared}")
        return replacement

    def check_replacements_used(self) -> None:
        """Refuse replacements for names that are no initializers of the main graph.

        Raises:
            InvalidArgument: there are some.
        """
        if self._replacements:
            raise InvalidArgument(
                f"values are given for {sorted(self._replacements)}, which are no initializers of the main graph"
            )

    def read_sparse(self, proto: Any) -> SparseTensor:
        """Constant of a ``SparseTensorProto``, checked."""
        from ort_sdk.formats.sparse_tensor import sparse_constant

        name = proto.values.name
        return sparse_constant(self.read(proto.values), self.read(proto.indices), _shape(proto, name), name)

    def read_sparse_initializer(self, proto: Any) -> Tensor:
        """Dense form of a ``SparseTensorProto``, made when read."""
        from ort_sdk.formats.sparse_tensor import DensifiedTensor

        return DensifiedTensor(self.read_sparse(proto))

    def _read_raw(self, proto: Any, kind: TensorElementType, shape: tuple[int, ...], nbytes: int) -> Tensor:
        if kind is TensorElementType.STRING:
            raise InvalidGraph(f"tensor '{proto.name}' holds strings in raw_data; ONNX keeps them in string_data")
        if proto.HasField("segment"):
            raise InvalidGraph(f"tensor '{proto.name}' is a segment of one, which is not supported; store it whole")
        data = proto.raw_data
        if isinstance(data, Payload):
            _check_size(proto, kind, shape, data.end - data.start, nbytes)
            return MappedTensor(self._source, data.start, kind, shape, nbytes)
        _check_size(proto, kind, shape, len(data), nbytes)
        if kind is TensorElementType.BOOL or kind.is_packed:
            return ArrayTensor(MappedTensor(_small_source(data), 0, kind, shape, nbytes).numpy())
        return ArrayTensor(np.frombuffer(data, kind.numpy_dtype).reshape(shape))

    def _read_external(self, proto: Any, kind: TensorElementType, shape: tuple[int, ...], nbytes: int) -> Tensor:
        name = proto.name
        owner = f"'{name}'"
        if kind is TensorElementType.STRING:
            raise Fail(f"tensor {owner} holds strings in external data; ONNX keeps them in string_data")
        if proto.HasField("raw_data") or proto.HasField("segment"):
            raise InvalidGraph(f"tensor {owner} has both raw_data and external data")
        entries = parse_entries(proto.external_data, owner)
        try:
            source, path = self._external.open(entries.location, owner)
        except MissingExternalFile:
            info = ExternalDataInfo(name, entries.location, None, entries.offset, nbytes, kind, shape)
            load = self._loader(info, None)
            if load is None:
                raise
            return LoadedTensor(_small_source(b""), info, (), load)
        info = ExternalDataInfo(name, entries.location, path, entries.offset, nbytes, kind, shape, source.array)
        load = self._loader(info, source)
        if load is not None:
            return LoadedTensor(source, info, entries.prepacked, load)
        _check_range(name, entries, nbytes, len(source))
        return ExternalTensor(source, info, entries.prepacked)

    def _loader(self, info: ExternalDataInfo, file: ByteSource | None) -> Callable[[], HostArray] | None:
        return None if self._loaders is None else self._loaders.host_source(info, file)


def _check_range(name: str, entries: ExternalEntries, nbytes: int, available: int) -> None:
    if entries.length not in (0, nbytes):
        raise Fail(
            f"TensorProto: {name} external data size mismatch. Computed size: {nbytes}, external_data.length: {entries.length}"
        )
    if entries.offset + nbytes > available:
        raise Fail(
            f"External initializer: {name} offset: {entries.offset} size to read: {nbytes} given file_length: {available} "
            "are out of bounds or can not be read in full."
        )


def _small_source(data: bytes) -> ByteSource:
    return ByteSource(np.frombuffer(data, dtype=np.uint8), None)


def _shape(proto: Any, name: str = "") -> tuple[int, ...]:
    shape = tuple(proto.dims)
    # Most are positive and small. Sixteen bytes are the widest element; the product without zeros bounds every stride, too.
    if len(shape) <= _MAX_RANK and min(shape, default=1) > 0 and 16 * math.prod(shape) <= _MAX_BYTES:
        return shape
    owner = f"tensor '{name or getattr(proto, 'name', '')}'"
    if len(shape) > _MAX_RANK:
        raise InvalidGraph(f"{owner} has {len(shape)} dimensions; at most {_MAX_RANK} are supported")
    if min(shape) < 0:
        raise InvalidGraph(f"{owner} has shape {list(shape)}; sizes of a constant must not be negative")
    if 16 * math.prod(size for size in shape if size) > _MAX_BYTES:
        raise InvalidGraph(f"{owner} has shape {list(shape)}, which is more elements than can be addressed")
    return shape


def _check_size(proto: Any, kind: TensorElementType, shape: tuple[int, ...], found: int, needed: int) -> None:
    if found != needed:
        raise InvalidGraph(
            f"tensor '{proto.name}', {kind.onnx_name} of shape {list(shape)}, has {found} bytes of data; it needs {needed}"
        )
