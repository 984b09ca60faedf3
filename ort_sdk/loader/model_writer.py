"""Model → ``.onnx`` file, weights inline or in one external file beside it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from ort_sdk.api import Fail, InvalidArgument, Tensor, TensorElementType
from ort_sdk.graph import Function, Model, Node

from .to_proto import graph_to_proto, node_to_proto, tensor_to_proto

__all__ = ["model_to_proto", "write_model"]

MAX_PROTOBUF_BYTES = 2**31 - 1
ALIGNMENT_BYTES = 4096
ALIGNMENT_THRESHOLD_BYTES = 1 << 20
"""Only tensors larger than this start at a multiple of the alignment (ORT's convention)."""
FALLBACK_IR_VERSION = 8


def model_to_proto(model: Model) -> Any:
    """``ModelProto`` of a model with all weights inline.

    Raises:
        Fail: it would exceed protobuf's 2 GiB.
    """
    proto = _empty_proto(model)
    proto.graph.CopyFrom(graph_to_proto(model.graph))
    return proto


def write_model(
    model: Model, path: Path, *, external_file_name: str | None = None, min_external_bytes: int = 1024, overwrite: bool = True
) -> None:
    """Write a model. Files appear whole, by renaming, or not at all.

    Args:
        model: the model.
        path: file to write.
        external_file_name: file beside it that takes the weights; None keeps them inline.
        min_external_bytes: smallest tensor that goes there.
        overwrite: False refuses an existing file.

    Raises:
        InvalidArgument: the external name is no plain file name, or a file exists that must not be overwritten.
        Fail: the model without external weights exceeds protobuf's 2 GiB.
    """
    if not overwrite and path.exists():
        raise InvalidArgument(f"output file '{path}' exists, and must not be overwritten")
    if external_file_name is None:
        content = _serialized(model_to_proto(model))
    else:
        if Path(external_file_name).name != external_file_name:
            raise InvalidArgument(f"external file name {external_file_name!r} must be a plain name: it lies beside the model")
        content = _write_external(model, path.parent / external_file_name, min_external_bytes)
    with _replacing(path) as file:
        file.write(content)


def _write_external(model: Model, path: Path, min_bytes: int) -> bytes:
    """Write weights to ``path``; returns the model that refers to it."""
    proto = _empty_proto(model)
    bare = model.graph.copy()
    bare.initializers = {}
    with _replacing(path) as file:
        writer = _ExternalWriter(file, path.name, min_bytes)
        proto.graph.CopyFrom(graph_to_proto(bare))
        writer.move_bodies(proto.graph)
        for name, tensor in model.graph.initializers.items():
            proto.graph.initializer.append(writer.tensor(tensor, name))
    _drop_initializer_values(proto.graph)
    if path.stat().st_size == 0:
        path.unlink()
    return _serialized(proto)


class _ExternalWriter:
    """Appends tensors to a file and refers to them."""

    def __init__(self, file: IO[bytes], location: str, min_bytes: int) -> None:
        self._file = file
        self._location = location
        self._min_bytes = min_bytes

    def tensor(self, tensor: Tensor, name: str) -> Any:
        """``TensorProto`` of a weight, its bytes in the file if it is large enough."""
        import onnx

        if tensor.element_type is TensorElementType.STRING or tensor.nbytes < self._min_bytes:
            return tensor_to_proto(tensor, name)
        proto = onnx.TensorProto(name=name, data_type=int(tensor.element_type), dims=tensor.shape)
        self._refer(proto, memoryview(tensor.packed()).cast("B"))
        return proto

    def move_bodies(self, graph: Any) -> None:
        """Move the weights of control flow's bodies, innermost first."""
        for node in graph.node:
            for attribute in node.attribute:
                for body in (attribute.g, *attribute.graphs) if attribute.HasField("g") else attribute.graphs:
                    self.move_bodies(body)
                    for tensor in body.initializer:
                        if tensor.HasField("raw_data") and len(tensor.raw_data) >= self._min_bytes:
                            content = tensor.raw_data
                            tensor.ClearField("raw_data")
                            self._refer(tensor, memoryview(content))

    def _refer(self, proto: Any, content: memoryview) -> None:
        if content.nbytes > ALIGNMENT_THRESHOLD_BYTES:
            self._file.write(b"\0" * (-self._file.tell() % ALIGNMENT_BYTES))
        offset = self._file.tell()
        self._file.write(content)
        proto.data_location = proto.EXTERNAL
        for key, value in (("location", self._location), ("offset", offset), ("length", content.nbytes)):
            proto.external_data.add(key=key, value=str(value))


def _drop_initializer_values(graph: Any) -> None:
    """Leave out of ``value_info`` what the initializers say themselves."""
    names = {tensor.name for tensor in graph.initializer}
    kept = [value for value in graph.value_info if value.name not in names]
    del graph.value_info[:]
    graph.value_info.extend(kept)


def _empty_proto(model: Model) -> Any:
    """``ModelProto`` without its graph."""
    import onnx

    proto = onnx.ModelProto(
        ir_version=model.ir_version or FALLBACK_IR_VERSION,
        producer_name=model.producer_name,
        producer_version=model.producer_version,
        domain=model.domain,
        doc_string=model.doc_string,
    )
    if model.model_version is not None:
        proto.model_version = model.model_version
    domains = {node.domain for graph in model.graph.walk() for node in graph.nodes}
    imports = {**dict.fromkeys(domains, 1), **model.opset_imports}
    _fill_imports(proto.opset_import, imports)
    for key, value in model.metadata.items():
        proto.metadata_props.add(key=key, value=value)
    proto.functions.extend(_function_to_proto(function) for function in model.functions.values())
    return proto


def _fill_imports(field: Any, imports: Mapping[str, int]) -> None:
    for domain, version in sorted(imports.items()):
        field.add(domain=domain, version=version)


def _function_to_proto(function: Function) -> Any:
    import onnx

    proto = onnx.FunctionProto(
        name=function.name,
        domain=function.domain,
        overload=function.overload,
        input=function.inputs,
        output=function.outputs,
        attribute=function.attributes,
        node=[node_to_proto(node) for node in function.nodes],
    )
    defaults = Node("", [], [], attributes=dict(function.attribute_defaults))
    proto.attribute_proto.extend(node_to_proto(defaults).attribute)
    _fill_imports(proto.opset_import, function.opset_imports)
    return proto


def _serialized(proto: Any) -> bytes:
    size = proto.ByteSize()
    if size > MAX_PROTOBUF_BYTES:
        raise Fail(
            f"the model takes {size} bytes, more than protobuf's {MAX_PROTOBUF_BYTES}; name an external file for its weights"
        )
    content: bytes = proto.SerializeToString()
    return content


@contextmanager
def _replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file that takes the place of ``path`` once it is written whole and synced."""
    handle = tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False)  # noqa: SIM115 - closed below
    temporary = Path(handle.name)
    try:
        with handle:
            yield handle
            handle.flush()
            os.fsync(handle.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
