"""Types of node outputs, from the schema table and a rule for each operator whose output type no input fixes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ort_sdk.api import InvalidGraph, NodeArg, OperatorSchema, ParameterOption, TensorElementType, tensor_type

from .graph import Graph
from .node import Node
from .operator_schemas import TABLE_SCHEMAS, OperatorSchemas, is_newer_than_table

__all__ = ["infer_node_output_types", "infer_types"]

LONGEST_REMEMBERED = 16
"""Nodes of more arguments are inferred anew each time: they are few, and hardly two are alike."""

TypeRule = Callable[[Node, "list[str | None]", int], "str | None"]
"""``rule(node, input_types, output_index)``: the output's type string, or None if not known."""


def infer_types(graph: Graph, schemas: OperatorSchemas = TABLE_SCHEMAS) -> None:
    """Fill in the types of all values of a graph and its bodies, in topological order.

    Declared types stay where nothing better is known.

    Args:
        graph: changed in place.
        schemas: of its operators.

    Raises:
        InvalidGraph: a node has an input of a type that its operator does not allow, or a graph gives out another type than it
            declares.
    """
    for node in graph.nodes:
        for body in node.subgraphs.values() if node.attributes else ():
            _seed_body_inputs(node, graph, body)
            infer_types(body, schemas)
        for name, type_string in zip(node.outputs, infer_node_output_types(node, graph, schemas), strict=True):
            if not name:
                continue
            known = graph.values.get(name)
            if known is None:
                graph.values[name] = NodeArg(name, type_string)
            elif type_string is not None and known.type != type_string:
                graph.values[name] = replace(known, type=type_string)
    graph.outputs = [_completed(argument, graph) for argument in graph.outputs]


def _completed(argument: NodeArg, graph: Graph) -> NodeArg:
    known = graph.node_arg(argument.name).type
    if known is None or known == argument.type:
        return argument
    if argument.type is not None and not (argument.type.startswith("tensor(") and known.startswith("tensor(")):
        return argument  # ONNX's own cases declare an element's type for a sequence
    if argument.type is not None:
        raise InvalidGraph(
            f"Type Error: Type ({argument.type}) of output arg ({argument.name}) of graph '{graph.name}' does not match expected "
            f"type ({known})."
        )
    return replace(argument, type=known)


def infer_node_output_types(node: Node, graph: Graph, schemas: OperatorSchemas = TABLE_SCHEMAS) -> list[str | None]:
    """Type strings of a node's outputs; None where neither schema nor rule knows."""
    values = graph.values
    input_types = [(values.get(name) or graph.node_arg(name)).type if name else None for name in node.inputs]
    by_schema = _types_by_schema(node, schemas, input_types)
    rule = None if by_schema is None and is_newer_than_table(node) else _RULES.get((node.domain, node.op_type))
    types: list[str | None] = []
    for index, name in enumerate(node.outputs):
        if not name:
            types.append(None)
            continue
        found = rule(node, input_types, index) if rule is not None else None
        if found is None and by_schema is not None:
            found = by_schema[index]
        types.append(found or graph.node_arg(name).type)
    return types


def _types_by_schema(node: Node, schemas: OperatorSchemas, input_types: list[str | None]) -> Sequence[str | None] | None:
    """Types of outputs as far as the schema derives them from those of the inputs; None if there is no schema.

    They are remembered: of a graph's many nodes, few differ in this. What is refused is not.
    """
    key = (node.domain, node.op_type, node.since_version, len(node.outputs), *input_types)
    types = schemas.output_types.get(key)
    if types is not None:
        return types
    schema = schemas.of(node)
    if schema is None:
        return None
    bound = _bind(node, schema, input_types)
    types = [_from_schema(schema, bound, index) for index in range(len(node.outputs))]
    if len(key) < LONGEST_REMEMBERED:
        schemas.output_types[key] = types
    return types


def _bind(node: Node, schema: OperatorSchema, input_types: list[str | None]) -> dict[str, str]:
    """Type constraint → type, from the inputs; refuses types the operator does not allow."""
    bound: dict[str, str] = {}
    for index, type_string in enumerate(input_types):
        formal = schema.input(index)
        if type_string is None or formal is None:
            continue
        if formal.option == ParameterOption.VARIADIC and not formal.is_homogeneous:
            continue
        allowed = schema.allowed_types(formal.type_str)
        if type_string not in allowed:
            raise InvalidGraph(
                f"Type Error: Type '{type_string}' of input parameter ({node.inputs[index]}) of operator ({node.op_type})"
                f" in node ({node.name}) is invalid; allowed: {', '.join(allowed)}"
            )
        if bound.setdefault(formal.type_str, type_string) != type_string:
            raise InvalidGraph(
                f"Type Error: Type parameter ({formal.type_str}) of Optype ({node.op_type}) bound to different types "
                f"({bound[formal.type_str]} and {type_string}) in node ({node.name})."
            )
    return bound


def _from_schema(schema: OperatorSchema, bound: dict[str, str], index: int) -> str | None:
    formal = schema.output(index)
    if formal is None:
        return None
    if formal.type_str in bound:
        return bound[formal.type_str]
    allowed = schema.allowed_types(formal.type_str)
    return allowed[0] if len(allowed) == 1 else None


def _seed_body_inputs(node: Node, graph: Graph, body: Graph) -> None:
    """Give untyped formal inputs of a body the types the control-flow node passes."""
    offset = {"Loop": 2, "Scan": 0}.get(node.op_type)
    for index, argument in enumerate(body.inputs):
        known = argument.type or _passed_type(node, graph, index, offset)
        if known != argument.type:
            body.inputs[index] = replace(argument, type=known)
        body.values[argument.name] = body.inputs[index]


def _passed_type(node: Node, graph: Graph, index: int, offset: int | None) -> str | None:
    if node.op_type == "Loop" and index < 2:
        return "tensor(int64)" if index == 0 else "tensor(bool)"
    if node.op_type == "SequenceMap" and index < len(node.inputs):
        passed = graph.node_arg(node.inputs[index]).type
        return _element(passed) if passed is not None and passed.startswith("seq(") else passed
    if offset is None:
        return None
    position = index - 2 + offset if node.op_type == "Loop" else index
    return graph.node_arg(node.inputs[position]).type if position < len(node.inputs) and node.inputs[position] else None


def _element(type_string: str | None) -> str | None:
    """``T`` of ``seq(T)`` or ``optional(T)``."""
    return None if type_string is None or not type_string.endswith(")") else type_string[type_string.index("(") + 1 : -1]


def _coded_type(node: Node, name: str, default: int = 0) -> str | None:
    """Type whose code an attribute holds; None for 0, which stands for no choice.

    Raises:
        InvalidGraph: there is no such type.
    """
    value = node.attributes.get(name, default)
    if not isinstance(value, int) or not value:
        return None
    try:
        return tensor_type(TensorElementType(value))
    except ValueError:
        raise InvalidGraph(f"Attribute {name} of {node.describe()} does not specify a valid type: {value}") from None


def _attribute_code(name: str, default: TensorElementType | None = None, like_input: int | None = None) -> TypeRule:
    def rule(node: Node, input_types: list[str | None], _index: int) -> str | None:
        found = _coded_type(node, name)
        if found is None and like_input is not None and like_input < len(input_types):
            found = input_types[like_input]
        return found or (tensor_type(default) if default is not None else None)

    return rule


def _same_as_input(position: int) -> TypeRule:
    return lambda _node, input_types, _index: input_types[position] if position < len(input_types) else None


def _body_outputs(node: Node, _input_types: list[str | None], index: int) -> str | None:
    for body in node.subgraphs.values():
        skip = 1 if node.op_type == "Loop" else 0
        if index + skip < len(body.outputs):
            argument = body.outputs[index + skip]
            found = argument.type or body.node_arg(argument.name).type
            if found is not None:
                return f"seq({found})" if node.op_type == "SequenceMap" else found
    return None


def _constant(node: Node, _input_types: list[str | None], _index: int) -> str | None:
    from .tensor import SparseTensor

    value = node.attributes.get("value", node.attributes.get("sparse_value"))
    if value is not None:
        element_type = (
            TensorElementType.from_numpy_dtype(value.values.dtype) if isinstance(value, SparseTensor) else value.element_type
        )
        return tensor_type(element_type)
    for name, type_string in _CONSTANT_ATTRIBUTES.items():
        if name in node.attributes:
            return type_string
    return None


_CONSTANT_ATTRIBUTES = {
    "value_int": "tensor(int64)",
    "value_ints": "tensor(int64)",
    "value_float": "tensor(float)",
    "value_floats": "tensor(float)",
    "value_string": "tensor(string)",
    "value_strings": "tensor(string)",
}


def _constant_of_shape(node: Node, _input_types: list[str | None], _index: int) -> str | None:
    value = node.attributes.get("value")
    return "tensor(float)" if value is None else tensor_type(value.element_type)


def _quantize(node: Node, input_types: list[str | None], _index: int) -> str | None:
    zero_point = input_types[2] if len(input_types) > 2 else None
    return zero_point or _coded_type(node, "output_dtype") or "tensor(uint8)"


def _dequantize(node: Node, input_types: list[str | None], _index: int) -> str | None:
    return _coded_type(node, "output_dtype") or (input_types[1] if len(input_types) > 1 else None)


def _zero_point_or_float(position: int) -> TypeRule:
    """The type of an optional zero point; without one the output is not quantized."""

    def rule(_node: Node, input_types: list[str | None], _index: int) -> str | None:
        given = input_types[position] if position < len(input_types) else None
        return given or "tensor(float)"

    return rule


def _caches_like_past(node: Node, input_types: list[str | None], index: int) -> str | None:
    """First output follows the schema; a cache has the type of the past one, or of the query if there is none."""
    if index == 0:
        return None
    past = input_types[3] if len(input_types) > 3 and node.inputs[3] else None
    return past or (input_types[0] if input_types else None)


def _sequence_of_first(_node: Node, input_types: list[str | None], _index: int) -> str | None:
    return f"seq({input_types[0]})" if input_types and input_types[0] else None


def _element_of_first(_node: Node, input_types: list[str | None], _index: int) -> str | None:
    first = input_types[0] if input_types else None
    return _element(first) if first is not None and first.startswith(("seq(", "optional(")) else first


def _content_of_optional(_node: Node, input_types: list[str | None], _index: int) -> str | None:
    first = input_types[0] if input_types else None
    return _element(first) if first is not None and first.startswith("optional(") else first


def _optional(node: Node, input_types: list[str | None], _index: int) -> str | None:
    inner = node.attributes.get("type") or (input_types[0] if input_types else None)
    return f"optional({inner})" if inner else None


def _sequence_empty(node: Node, _input_types: list[str | None], _index: int) -> str | None:
    return f"seq({_coded_type(node, 'dtype') or 'tensor(float)'})"


def _labels(strings: str, otherwise: str = "tensor(int64)") -> TypeRule:
    """First output is strings if the node has the attribute, else integers; further outputs follow the schema."""

    def rule(node: Node, _input_types: list[str | None], index: int) -> str | None:
        if index > 0:
            return None
        return "tensor(string)" if node.attributes.get(strings) else otherwise

    return rule


def _label_encoder(node: Node, input_types: list[str | None], _index: int) -> str | None:
    value = node.attributes.get("values_tensor")
    if value is not None:
        return tensor_type(value.element_type)
    for name, type_string in (("values_strings", "string"), ("values_int64s", "int64"), ("values_floats", "float")):
        if name in node.attributes:
            return f"tensor({type_string})"
    if "classes_strings" in node.attributes:
        return "tensor(int64)" if input_types and input_types[0] == "tensor(string)" else "tensor(string)"
    return None


def _category_mapper(_node: Node, input_types: list[str | None], _index: int) -> str | None:
    return "tensor(int64)" if input_types and input_types[0] == "tensor(string)" else "tensor(string)"


def _cast_map(node: Node, _input_types: list[str | None], _index: int) -> str | None:
    return {"TO_FLOAT": "tensor(float)", "TO_STRING": "tensor(string)", "TO_INT64": "tensor(int64)"}.get(
        node.attributes.get("cast_to", "TO_FLOAT")
    )


def _zip_map(node: Node, _input_types: list[str | None], _index: int) -> str | None:
    key = "string" if node.attributes.get("classlabels_strings") else "int64"
    return f"seq(map({key},tensor(float)))"


def _dict_vectorizer(_node: Node, input_types: list[str | None], _index: int) -> str | None:
    first = input_types[0] if input_types else None
    return first.partition(",")[2][:-1].strip() if first is not None and first.startswith("map(") else None


def _stash_type(position: int) -> TypeRule:
    """Statistics outputs of normalizations: the stash type; the first output follows the schema."""

    def rule(node: Node, _input_types: list[str | None], index: int) -> str | None:
        return _coded_type(node, "stash_type", 1) if index >= position else None

    return rule


_RULES: dict[tuple[str, str], TypeRule] = {
    ("", "Cast"): _attribute_code("to"),
    ("", "BitCast"): _attribute_code("to"),
    ("", "CastLike"): _same_as_input(1),
    ("", "Constant"): _constant,
    ("", "ConstantOfShape"): _constant_of_shape,
    ("", "EyeLike"): _attribute_code("dtype", like_input=0),
    ("", "RandomNormal"): _attribute_code("dtype", TensorElementType.FLOAT),
    ("", "RandomUniform"): _attribute_code("dtype", TensorElementType.FLOAT),
    ("", "RandomNormalLike"): _attribute_code("dtype", like_input=0),
    ("", "RandomUniformLike"): _attribute_code("dtype", like_input=0),
    ("", "Bernoulli"): _attribute_code("dtype", like_input=0),
    ("", "Multinomial"): _attribute_code("dtype", TensorElementType.INT32),
    ("", "HannWindow"): _attribute_code("output_datatype", TensorElementType.FLOAT),
    ("", "HammingWindow"): _attribute_code("output_datatype", TensorElementType.FLOAT),
    ("", "BlackmanWindow"): _attribute_code("output_datatype", TensorElementType.FLOAT),
    ("", "MelWeightMatrix"): _attribute_code("output_datatype", TensorElementType.FLOAT),
    ("", "QuantizeLinear"): _quantize,
    ("", "DequantizeLinear"): _dequantize,
    ("", "QLinearMatMul"): _same_as_input(7),
    ("", "QLinearConv"): _same_as_input(7),
    ("", "SequenceConstruct"): _sequence_of_first,
    ("", "SplitToSequence"): _sequence_of_first,
    ("", "SequenceEmpty"): _sequence_empty,
    ("", "SequenceAt"): _element_of_first,
    ("", "ConcatFromSequence"): _element_of_first,
    ("", "OptionalGetElement"): _content_of_optional,
    ("", "Optional"): _optional,
    ("", "If"): _body_outputs,
    ("", "Loop"): _body_outputs,
    ("", "Scan"): _body_outputs,
    ("", "SequenceMap"): _body_outputs,
    ("", "LayerNormalization"): _stash_type(1),
    ("", "SimplifiedLayerNormalization"): _stash_type(1),
    ("ai.onnx.ml", "LinearClassifier"): _labels("classlabels_strings"),
    ("ai.onnx.ml", "SVMClassifier"): _labels("classlabels_strings"),
    ("ai.onnx.ml", "TreeEnsembleClassifier"): _labels("classlabels_strings"),
    ("ai.onnx.ml", "LabelEncoder"): _label_encoder,
    ("ai.onnx.ml", "CategoryMapper"): _category_mapper,
    ("ai.onnx.ml", "CastMap"): _cast_map,
    ("ai.onnx.ml", "ZipMap"): _zip_map,
    ("ai.onnx.ml", "DictVectorizer"): _dict_vectorizer,
    ("com.microsoft", "GroupQueryAttention"): _caches_like_past,
    ("com.microsoft", "QGemm"): _zero_point_or_float(8),
    ("com.microsoft", "QuantizeLinear"): _quantize,
    ("com.microsoft", "DequantizeLinear"): _dequantize,
    ("com.microsoft", "MatMulIntegerToFloat"): _same_as_input(2),
}
