"""Nodes, graphs, tensors and types → protobuf, for the parts of onnx that take messages."""

from __future__ import annotations

from typing import Any

from ort_sdk.api import InvalidGraph, NodeArg, Tensor, TensorElementType
from ort_sdk.graph import AttributeReference, Graph, Node, SparseTensor, TypeString
from ort_sdk.graph.tensor import ArrayTensor, is_tensor

__all__ = ["graph_to_proto", "node_to_proto", "tensor_to_proto", "type_to_proto"]


def node_to_proto(node: Node) -> Any:
    """``NodeProto`` of a node with its attributes and bodies."""
    import onnx

    proto = onnx.NodeProto(op_type=node.op_type, domain=node.domain, name=node.name, input=node.inputs, output=node.outputs)
    if node.overload:
        proto.overload = node.overload
    for name, value in node.attributes.items():
        _fill_attribute(proto.attribute.add(name=name), value)
    return proto


def graph_to_proto(graph: Graph) -> Any:
    """``GraphProto`` of a graph; initializers inline."""
    import onnx

    proto = onnx.GraphProto(name=graph.name, doc_string=graph.doc_string)
    proto.node.extend(node_to_proto(node) for node in graph.nodes)
    proto.initializer.extend(tensor_to_proto(tensor, name) for name, tensor in graph.initializers.items())
    proto.input.extend(_value_to_proto(argument) for argument in graph.inputs)
    proto.output.extend(_value_to_proto(argument) for argument in graph.outputs)
    boundary = {argument.name for argument in (*graph.inputs, *graph.outputs)} | graph.initializers.keys()
    proto.value_info.extend(_value_to_proto(value) for name, value in graph.values.items() if name not in boundary and value.type)
    return proto


def tensor_to_proto(tensor: Tensor, name: str = "") -> Any:
    """``TensorProto`` with the elements inline."""
    import onnx

    proto = onnx.TensorProto(name=name, data_type=int(tensor.element_type), dims=tensor.shape)
    if tensor.element_type is TensorElementType.STRING:
        proto.string_data.extend(_encoded(text) for text in tensor.numpy().reshape(-1))
    else:
        proto.raw_data = tensor.packed().tobytes()
    return proto


def type_to_proto(type_string: str | None, shape: tuple[int | str | None, ...] | None = None) -> Any:
    """``TypeProto`` of a type string (``seq(tensor(float))``) and, for tensors, a shape; empty for an unknown type.

    Raises:
        InvalidGraph: no type string of ONNX's.
    """
    import onnx

    proto = onnx.TypeProto()
    if type_string is not None:
        _fill_type(proto, type_string)
        if shape is not None and proto.WhichOneof("value") == "tensor_type":
            _fill_shape(proto.tensor_type.shape, shape)
    return proto


def _fill_type(proto: Any, text: str) -> None:
    kind, _, rest = text.partition("(")
    content = rest.removesuffix(")")
    if kind in ("tensor", "sparse_tensor"):
        getattr(proto, f"{kind}_type").elem_type = int(TensorElementType.from_onnx_name(content))
    elif kind in ("seq", "optional"):
        _fill_type(proto.sequence_type.elem_type if kind == "seq" else proto.optional_type.elem_type, content)
    elif kind == "map":
        key, _, value = content.partition(",")
        proto.map_type.key_type = int(TensorElementType.from_onnx_name(key))
        _fill_type(proto.map_type.value_type, value.strip())
    elif kind == "opaque":
        domain, _, name = content.rpartition(",")
        proto.opaque_type.domain, proto.opaque_type.name = domain, name
    else:
        raise InvalidGraph(f"'{text}' is no type of ONNX; known are tensor, sparse_tensor, seq, optional, map and opaque")


def _fill_shape(proto: Any, shape: tuple[int | str | None, ...]) -> None:
    # Makes the field present for a scalar, too.
    proto.SetInParent()
    for size in shape:
        dimension = proto.dim.add()
        if isinstance(size, int):
            dimension.dim_value = size
        elif size is not None:
            dimension.dim_param = size


def _value_to_proto(argument: NodeArg) -> Any:
    import onnx

    proto = onnx.ValueInfoProto(name=argument.name)
    if argument.type is not None:
        proto.type.CopyFrom(type_to_proto(argument.type, argument.shape))
    return proto


def _fill_attribute(proto: Any, value: Any) -> None:
    if isinstance(value, AttributeReference):
        proto.ref_attr_name = value.name
        return
    single, repeated, convert, kind = _attribute_field(value[0] if isinstance(value, list) and value else value)
    if isinstance(value, list):
        proto.type = proto.AttributeType.Value(f"{kind}S")
        getattr(proto, repeated).extend(convert(item) for item in value)
        return
    proto.type = proto.AttributeType.Value(kind)
    field = convert(value)
    if isinstance(field, (int, float, bytes)):
        setattr(proto, single, field)
    else:
        getattr(proto, single).CopyFrom(field)


def _attribute_field(sample: Any) -> tuple[str, str, Any, str]:
    if isinstance(sample, float):
        return "f", "floats", float, "FLOAT"
    if isinstance(sample, TypeString):
        return "tp", "type_protos", type_to_proto, "TYPE_PROTO"
    if isinstance(sample, str):
        return "s", "strings", _encoded, "STRING"
    if isinstance(sample, Graph):
        return "g", "graphs", graph_to_proto, "GRAPH"
    if isinstance(sample, SparseTensor):
        return "sparse_tensor", "sparse_tensors", _sparse_to_proto, "SPARSE_TENSOR"
    if is_tensor(sample):
        return "t", "tensors", tensor_to_proto, "TENSOR"
    # An empty list does not say of what; integers are what empty lists in models are.
    return "i", "ints", int, "INT"


def _sparse_to_proto(tensor: SparseTensor) -> Any:
    import onnx

    return onnx.SparseTensorProto(
        values=tensor_to_proto(ArrayTensor(tensor.values)),
        indices=tensor_to_proto(ArrayTensor(tensor.indices)),
        dims=tensor.shape,
    )


def _encoded(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape")
