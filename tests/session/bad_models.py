"""Models with one fault each, and what both packages say of them."""

import numpy as np
from onnx import AttributeProto, GraphProto, ModelProto, TensorProto, helper, numpy_helper

from tests.session.models import model, value

node = helper.make_node
FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
X, Y = value("x", [2, 2]), value("y", None)


def constant(name, array):
    return numpy_helper.from_array(np.asarray(array), name)


def one(*nodes, inputs=(X,), outputs=(Y,), initializers=(), **fields):
    """A model of these nodes, from x to y."""
    return model(list(nodes), list(inputs), list(outputs), initializers, **fields)


def tensor(name, dims, element_type=FLOAT, raw=b""):
    return TensorProto(name=name, dims=dims, data_type=element_type, raw_data=raw)


def added(initializer):
    return one(node("Add", ["x", "w"], ["y"]), initializers=[initializer])


def external(location, **fields):
    proto = TensorProto(name="w", dims=[2, 2], data_type=FLOAT, data_location=TensorProto.EXTERNAL)
    for key, text in {"location": location, **fields}.items():
        proto.external_data.add(key=key, value=text)
    return added(proto)


def retyped(op_type, name, attribute_value, **attributes):
    call = node(op_type, ["x"], ["y"], **attributes)
    call.attribute.append(helper.make_attribute(name, attribute_value))
    return one(call)


def referring():
    call = node("Softmax", ["x"], ["y"])
    call.attribute.append(AttributeProto(name="axis", type=AttributeProto.INT, ref_attr_name="outer"))
    return one(call)


def without(field):
    proto = one(node("Relu", ["x"], ["y"]))
    proto.ClearField(field)
    return proto


def branch(name, *nodes, output="r"):
    return helper.make_graph(list(nodes), name, [], [value(output, None)])


def conditional(then_branch, else_branch):
    call = node("If", ["c"], ["y"], then_branch=then_branch, else_branch=else_branch)
    return one(call, inputs=[X, value("c", [], BOOL)])


def nested(levels):
    """Ifs in Ifs; put together as bytes, for protobuf's own limit comes first."""
    body = branch("innermost", node("Relu", ["x"], ["r"]))
    for _ in range(levels):
        body = branch(
            "level", node("If", ["c"], ["r"], then_branch=body, else_branch=branch("other", node("Relu", ["x"], ["r"])))
        )
    return conditional(body, branch("other", node("Relu", ["x"], ["r"])))


def _field(number, payload):
    length, size = b"", len(payload)
    while size > 127:
        length, size = length + bytes([size & 127 | 128]), size >> 7
    tag = number << 3 | 2
    head = bytes([tag]) if tag < 128 else bytes([tag & 127 | 128, tag >> 7])
    return head + length + bytes([size]) + payload


def nested_bytes(levels):
    """Bodies in bodies, written by hand: onnx itself cannot serialize them."""
    graph = GraphProto(name="innermost").SerializeToString()
    for _ in range(levels):
        attribute = _field(1, b"then_branch") + _field(6, graph) + b"\xa0\x01\x05"
        graph = _field(2, b"g") + _field(1, _field(4, b"If") + _field(5, attribute))
    return ModelProto(ir_version=8, opset_import=[helper.make_opsetid("", 17)]).SerializeToString() + _field(7, graph)


def function(name, *nodes, inputs=("a",), outputs=("r",), **fields):
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    return helper.make_function("local", name, list(inputs), list(outputs), list(nodes), imports, **fields)


def call(name, source="a", target="r", **attributes):
    return node(name, [source], [target], domain="local", **attributes)


def calling(*functions, **attributes):
    """A model that calls the first of its functions."""
    imports = [helper.make_opsetid("local", 1)]
    return one(call(functions[0].name, "x", "y", **attributes), functions=list(functions), imports=imports)


def explosive(levels):
    """Each function calls the next twice."""
    doubled = [function(f"F{level}", call(f"F{level + 1}", "a", "m"), call(f"F{level + 1}", "m")) for level in range(levels)]
    return calling(*doubled, function(f"F{levels}", node("Relu", ["a"], ["r"])))


def deep(levels):
    """Each function calls the next once."""
    chained = [function(f"F{level}", call(f"F{level + 1}")) for level in range(levels)]
    return calling(*chained, function(f"F{levels}", node("Relu", ["a"], ["r"])))


def deep_bodies(levels):
    """Each function calls the next from inside of a branch."""

    def branched(level):
        inner = branch("then", call(f"F{level + 1}", "a", "s"), output="s")
        other = branch("else", node("Relu", ["a"], ["s"]), output="s")
        condition = node("Constant", [], ["c"], value=constant("c", np.array(True)))
        return function(f"F{level}", condition, node("If", ["c"], ["r"], then_branch=inner, else_branch=other))

    return calling(*map(branched, range(levels)), function(f"F{levels}", node("Relu", ["a"], ["r"])))


def loop(body, *, outputs=("y",), inputs=("", "", "x")):
    return one(node("Loop", list(inputs), list(outputs), body=body))


def body(inputs, outputs, *nodes):
    return helper.make_graph(list(nodes), "body", inputs, outputs)


def undeclared():
    untyped = one(node("Relu", ["x"], ["y"]))
    untyped.graph.input[0].ClearField("type")
    return untyped


GO, INDEX, STATE = value("go", [], BOOL), value("i", [], INT64), value("s", None)
RELU = node("Relu", ["x"], ["y"])
RELU_R = node("Relu", ["x"], ["r"])
FUNCTION_OF_ALPHA = function("F", node("LeakyRelu", ["a"], ["r"]), attributes=["alpha"])
FUNCTION_OF_ALPHA.node[0].attribute.append(AttributeProto(name="alpha", type=AttributeProto.FLOAT, ref_attr_name="alpha"))

BAD_MODELS = {
    "cycle": (
        one(node("Add", ["x", "b"], ["a"]), node("Relu", ["a"], ["b"]), node("Relu", ["b"], ["y"])), "InvalidGraph", "cycle"),
    "reads itself": (one(node("Add", ["x", "y"], ["y"])), "InvalidGraph", "cycle"),
    "input made by nobody": (one(node("Add", ["x", "nobody"], ["y"])), "InvalidGraph", "reads .*nobody"),
    "output made by nobody": (one(RELU, outputs=[value("z")]), "InvalidGraph", "output 'z'.* made by no node"),
    "value made twice": (one(RELU, node("Neg", ["x"], ["y"])), "InvalidGraph", "makes 'y'.*unique"),
    "value named like an input": (one(node("Relu", ["x"], ["x"]), RELU), "InvalidGraph", "makes 'x'.*unique"),
    "input twice": (one(RELU, inputs=[X, X]), "InvalidGraph", "input 'x' twice"),
    "initializer twice": (one(RELU, initializers=[constant("w", [1.0])] * 2), "InvalidGraph", "initializer 'w' twice"),
    "input without a name": (one(RELU, inputs=[X, value("")]), "InvalidGraph", "input without a name"),
    "no graph": (without("graph"), "InvalidArgument", "No graph"),
    "no IR version": (without("ir_version"), "Fail", "ir_version"),
    "no opsets": (without("opset_import"), "InvalidGraph", "Missing opset"),
    "opset of the future": (one(RELU, opset=1000), "Fail", "opset 1000"),
    "negative opset": (one(RELU, opset=-1), "Fail", "opset -1"),
    "one domain twice": (one(RELU, imports=[helper.make_opsetid("", 11)]), "InvalidGraph", "versions 17 and 11"),
    "unknown operator": (one(node("Rulu", ["x"], ["y"])), "InvalidGraph", "No Op registered for Rulu"),
    "operator without a name": (one(node("", ["x"], ["y"])), "InvalidGraph", "No Op registered"),
    "unknown domain": (one(node("Relu", ["x"], ["y"], domain="no.such")), "NotImplemented", "Could not find an implementation"),
    "too few inputs": (one(node("Add", ["x"], ["y"])), "InvalidGraph", "has 1 inputs"),
    "too many inputs": (one(node("Relu", ["x", "x"], ["y"])), "InvalidGraph", "has 2 inputs"),
    "too many outputs": (one(node("Relu", ["x"], ["y", "z"])), "InvalidGraph", "has 2 outputs"),
    "omitted input": (one(node("Add", ["x", ""], ["y"])), "InvalidGraph", "input 1 .*marked single"),
    "unknown attribute": (retyped("Relu", "slope", 1), "InvalidGraph", "Unrecognized attribute: slope"),
    "attribute of another type": (retyped("Softmax", "axis", 1.5), "InvalidGraph", "Expected: INT, actual: FLOAT"),
    "attribute that is a list": (retyped("LeakyRelu", "alpha", [1.5]), "InvalidGraph", "Expected: FLOAT, actual: FLOATS"),
    "attribute twice": (retyped("Softmax", "axis", 1, axis=0), "InvalidGraph", "'axis' twice"),
    "attribute missing": (one(node("Cast", ["x"], ["y"])), "InvalidGraph", "required attributes.*to"),
    "attribute of no function": (referring(), "InvalidGraph", "refers to the attribute 'outer'"),
    "type code of nothing": (one(node("Cast", ["x"], ["y"], to=999)), "InvalidGraph", "does not specify a valid type: 999"),
    "input of a forbidden type": (
        one(node("Sqrt", ["x"], ["y"]), inputs=[value("x", [2], BOOL)]), "InvalidGraph", r"Type 'tensor\(bool\)'"),
    "two types for one": (
        one(node("Add", ["x", "i"], ["y"]), inputs=[X, value("i", [2], INT64)]), "InvalidGraph", "bound to different types"),
    "initializer of another type": (
        one(RELU, initializers=[constant("x", [1, 2])]), "InvalidGraph", "Data in initializer 'x'"),
    "raw data too short": (added(tensor("w", [2, 2], raw=b"1234")), "InvalidGraph", "'w'"),
    "raw data too long": (added(tensor("w", [1], raw=b"12345678")), "InvalidGraph", "'w'"),
    "negative dimension": (added(tensor("w", [-1, 2], raw=b"12345678")), "InvalidGraph", "'w'.*-1"),
    "gigantic dimensions": (added(tensor("w", [2**62, 2**62], raw=b"1234")), "InvalidGraph", "'w'"),
    "tensor of no type": (added(tensor("w", [1], TensorProto.UNDEFINED, b"1234")), "InvalidGraph", "'w'"),
    "tensor of an unknown type": (added(tensor("w", [1], 250, b"1234")), "InvalidGraph", "250"),
    "external file above the folder": (external("../secret"), "Fail", r"\.\./secret|outside|escape"),
    "external file by an absolute path": (external("/etc/passwd"), "Fail", "/etc/passwd"),
    "external file missing": (external("missing.bin"), "Fail", "missing.bin"),
    "external file without a name": (external(""), "Fail", "'w'"),
    "external offset of nonsense": (external("missing.bin", offset="one"), "Fail", "offset"),
    "branch missing": (
        one(node("If", ["c"], ["y"], then_branch=branch("b", RELU_R)), inputs=[X, value("c", [], BOOL)]),
        "InvalidGraph", "else_branch"),
    "branch that is no graph": (
        one(node("If", ["c"], ["y"], then_branch=1, else_branch=1), inputs=[X, value("c", [], BOOL)]),
        "InvalidGraph", "Expected: GRAPH, actual: INT"),
    "branch that reads nobody": (
        conditional(branch("b", node("Relu", ["nobody"], ["r"])), branch("b", RELU_R)), "InvalidGraph", "nobody"),
    "branch that gives out nothing of its own": (
        conditional(branch("b", output="x"), branch("b", RELU_R)), "InvalidGraph", "output 'x'"),
    "bodies beyond protobuf's limit": (nested_bytes(1000), "InvalidProtobuf", "deeper than|nested"),
    "branch with an input": (
        conditional(body([STATE], [value("r", None)], RELU_R), branch("b", RELU_R)), "InvalidGraph", "which takes 1"),
    "branches of different outputs": (conditional(body([], []), branch("b", RELU_R)), "InvalidGraph", "which has 0"),
    "loop whose body takes too little": (
        loop(body([INDEX, GO], [value("go", [], BOOL), value("r", None)], node("Relu", ["x"], ["r"]))),
        "InvalidGraph", "passes 3 inputs to 'body', which takes 2"),
    "loop whose body gives too little": (
        loop(body([INDEX, GO, STATE], [GO])), "InvalidGraph", "takes 2 outputs from 'body', which has 1"),
    "scan of nothing": (
        one(node("Scan", ["x"], ["y"], num_scan_inputs=0, body=body([STATE], [value("r", None)], node("Relu", ["s"], ["r"])))),
        "InvalidGraph", "num_scan_inputs 0"),
    "input without a type": (undeclared(), "Fail", r"Model input \(x\) does not have type information"),
    "output of another type": (
        one(RELU, outputs=[value("y", None, INT64)]), "InvalidGraph", r"Type \(tensor\(int64\)\) of output arg \(y\)"),
    "function that calls itself": (calling(function("F", call("F"))), "InvalidGraph", "circle: local::F"),
    "functions that call each other": (calling(function("F", call("G")), function("G", call("F"))), "InvalidGraph", "circle"),
    "function that explodes": (explosive(40), "InvalidGraph", "would inline to more than 1000000 nodes"),
    "functions called too deep": (deep(300), "InvalidGraph", "more than 128 deep"),
    "bodies of functions too deep": (deep_bodies(60), "InvalidGraph", "nests bodies of control flow more than 50 deep"),
    "function twice": (calling(*[function("F", node("Relu", ["a"], ["r"]))] * 2), "InvalidGraph", "twice"),
    "function that lacks an input": (
        calling(function("F", node("Add", ["a", "b"], ["r"]))), "InvalidGraph", "function local::F"),
    "function called with too much": (
        one(node("F", ["x", "x"], ["y"], domain="local"), functions=[function("F", node("Relu", ["a"], ["r"]))],
            imports=[helper.make_opsetid("local", 1)]),
        "InvalidGraph", "function of 1 inputs"),
    "attribute handed on with another type": (calling(FUNCTION_OF_ALPHA, alpha="text"), "InvalidGraph", "actual: STRING"),
}  # fmt: skip
"""Fault → (model or bytes, class of the error, key words of its text)."""


def serialized(source):
    return source if isinstance(source, bytes) else source.SerializeToString()
