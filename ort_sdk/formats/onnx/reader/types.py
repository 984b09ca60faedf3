"""ONNX's type messages → type strings and shapes."""

from __future__ import annotations

from typing import Any

from ort_sdk.api import InvalidGraph, NodeArg, Shape, TensorElementType

__all__ = ["denotations", "element_type", "node_arg", "shape_of", "text", "type_string"]

_KNOWN_CODES = {member.value for member in TensorElementType if member is not TensorElementType.UNDEFINED}


def text(value: bytes) -> str:
    """Text of a field of bytes: those that are not UTF-8 become surrogate escapes."""
    return value.decode("utf-8", "surrogateescape")


def element_type(code: int, owner: str) -> TensorElementType:
    """Element type for ONNX's integer code.

    Args:
        code: ``TensorProto.DataType``.
        owner: what has that type, for the message.

    Raises:
        InvalidGraph: no such element type, or UNDEFINED.
    """
    if code not in _KNOWN_CODES:
        raise InvalidGraph(f"{owner} has element type code {code}; ONNX defines 1 to {max(_KNOWN_CODES)}")
    return TensorElementType(code)


def type_string(proto: Any, owner: str) -> str | None:
    """ONNX type string of a ``TypeProto`` (``seq(tensor(float))``); None if it says nothing.

    Raises:
        InvalidGraph: an element type ONNX does not define, or a container of nothing.
    """
    kind = proto.WhichOneof("value")
    if kind is None:
        return None
    content = getattr(proto, kind)
    if kind in ("tensor_type", "sparse_tensor_type"):
        if not content.elem_type:
            return None
        name = element_type(content.elem_type, owner).onnx_name
        return f"{'sparse_tensor' if kind == 'sparse_tensor_type' else 'tensor'}({name})"
    if kind == "map_type":
        key = element_type(content.key_type, owner).onnx_name
        return f"map({key},{_inner(content.value_type, owner)})"
    if kind == "opaque_type":
        return f"opaque({content.domain},{content.name})" if content.domain else f"opaque({content.name})"
    return f"{'seq' if kind == 'sequence_type' else 'optional'}({_inner(content.elem_type, owner)})"


def _inner(proto: Any, owner: str) -> str:
    inner = type_string(proto, owner)
    if inner is None:
        raise InvalidGraph(f"{owner} is a container whose element type is not given")
    return inner


def shape_of(proto: Any) -> Shape | None:
    """Shape in a ``TypeProto``; None if it gives none or the value is no tensor. Negative sizes count as unknown."""
    kind = proto.WhichOneof("value")
    if kind not in ("tensor_type", "sparse_tensor_type"):
        return None
    content = getattr(proto, kind)
    if not content.HasField("shape"):
        return None
    return tuple(_dimension(dimension) for dimension in content.shape.dim)


def _dimension(proto: Any) -> int | str | None:
    kind = proto.WhichOneof("value")
    if kind == "dim_value":
        return int(proto.dim_value) if proto.dim_value >= 0 else None
    return proto.dim_param or None


def node_arg(proto: Any) -> NodeArg:
    """``ValueInfoProto`` → what is known of a value."""
    name = proto.name
    if not proto.HasField("type"):
        return NodeArg(name)
    return NodeArg(name, type_string(proto.type, f"value '{name}'"), shape_of(proto.type))


def denotations(proto: Any) -> tuple[str, ...]:
    """Denotation of each dimension of a ``ValueInfoProto``, empty where it gives none."""
    return tuple(dimension.denotation for dimension in proto.type.tensor_type.shape.dim)
