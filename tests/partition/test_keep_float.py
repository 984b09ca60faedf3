"""Which half values are float between nodes, and where they are rounded."""

import dataclasses

import numpy as np
import pytest
from onnx import TensorProto, helper

from ort_sdk.api import CPU_DEVICE, ExecutionProvider, HalfSupport, KernelRegistry
from ort_sdk.graph.shape_inference import infer_shapes
from ort_sdk.graph.type_inference import infer_types
from ort_sdk.loader import load_model
from ort_sdk.opset import add_opset
from ort_sdk.partition import ProviderBinding, keep_float, partition
from tests.models_for_tests import model_bytes, value

node = helper.make_node
HALF, BFLOAT16, FLOAT = TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.FLOAT
FLOAT_TYPE = "tensor(float)"


def _binding(name, register):
    registry = KernelRegistry(name)
    register(registry)
    return ProviderBinding(name, ExecutionProvider(name, CPU_DEVICE), registry, lambda *_: None, lambda _nodes: [])


def _shared_set(registry):
    add_opset(registry, np)


def _kept(nodes, outputs, *, inputs=("x",), element_type=HALF, initializers=None, bindings=None, opset=20):
    """The graph and the assignment after the step."""
    model = load_model(
        model_bytes(
            nodes,
            [value(name, [2, 2], element_type) for name in inputs],
            [value(name, None, output_type) for name, output_type in outputs.items()],
            initializers,
            opset=opset,
        )
    )
    infer_types(model.graph)
    infer_shapes(model.graph)
    bindings = bindings or [_binding("CpuExecutionProvider", _shared_set)]
    assignment = partition(model.graph, model.opset_imports, bindings, lambda _node, _graph: None)
    return model.graph, keep_float(assignment, model.opset_imports, bindings)


def _operators(graph):
    return [inner.op_type for inner in graph.nodes]


def _type(graph, name):
    return graph.node_arg(name).type


@pytest.mark.parametrize("element_type", [HALF, BFLOAT16])
def test_values_between_neighbours_are_float(element_type):
    nodes = [node("Exp", ["x"], ["a"]), node("Transpose", ["a"], ["b"]), node("Sqrt", ["b"], ["y"])]
    graph, assignment = _kept(nodes, {"y": element_type}, element_type=element_type)
    assert _operators(graph) == ["Cast", "Exp", "Transpose", "Sqrt", "Cast"]
    assert assignment.kept_in_float == ("a", "b")
    assert _type(graph, "a") == _type(graph, "b") == FLOAT_TYPE
    assert _type(graph, "x_as_float") == _type(graph, "y_as_float") == FLOAT_TYPE
    assert _type(graph, "y") == _type(graph, "x") != FLOAT_TYPE


def test_other_types_are_left_alone():
    nodes = [node("Exp", ["x"], ["a"]), node("Sqrt", ["a"], ["y"])]
    graph, assignment = _kept(nodes, {"y": TensorProto.DOUBLE}, element_type=TensorProto.DOUBLE)
    assert assignment.kept_in_float == ()
    assert _type(graph, "a") == "tensor(double)"


def test_a_value_that_is_an_output_too_is_rounded_once_for_that():
    nodes = [node("Exp", ["x"], ["a"]), node("Sqrt", ["a"], ["y"]), node("Neg", ["a"], ["z"])]
    graph, assignment = _kept(nodes, {"a": HALF, "y": HALF, "z": HALF})
    assert _operators(graph) == ["Cast", "Exp", "Cast", "Sqrt", "Cast", "Neg", "Cast"]
    _, exponential, cast, root, *_ = graph.nodes
    assert cast.inputs == exponential.outputs == root.inputs == ["a_as_float"]
    assert cast.outputs == ["a"]
    assert _type(graph, "a_as_float") == FLOAT_TYPE
    assert _type(graph, "a") == "tensor(float16)"
    assert [row.op_type for row in assignment.placements] == ["Exp", "Sqrt", "Neg", *["Cast"] * 4]
    assert assignment.placements[-1].provider == "CpuExecutionProvider"
    assert assignment.kernel_for(cast) is not None


def test_a_value_without_computing_readers_is_rounded_where_it_is_made():
    graph, assignment = _kept([node("Exp", ["x"], ["a"]), node("Transpose", ["a"], ["y"])], {"y": HALF})
    assert _operators(graph) == ["Cast", "Exp", "Cast", "Transpose"]
    assert assignment.kept_in_float == ()


@pytest.mark.parametrize(
    ("middle", "kept"),
    [
        ([node("Cast", ["a"], ["b"], to=FLOAT), node("Cast", ["b"], ["c"], to=HALF)], ()),
        ([node("Identity", ["a"], ["b"]), node("Cast", ["b"], ["c"], to=HALF)], ("a", "b", "c")),
        ([node("CastLike", ["a", "x"], ["b"]), node("Identity", ["b"], ["c"])], ("a", "b", "c")),
    ],
)
def test_casts_of_the_model_round_where_they_change_the_type(middle, kept):
    nodes = [node("Exp", ["x"], ["a"]), *middle, node("Sqrt", ["c"], ["y"])]
    graph, assignment = _kept(nodes, {"y": HALF})
    assert assignment.kept_in_float == kept
    assert "CastLike" not in _operators(graph)
    assert sorted(row.op_type for row in assignment.placements) == sorted(_operators(graph))


def test_a_type_that_is_only_named_costs_no_rounding():
    nodes = [node("Exp", ["x"], ["a"]), node("CastLike", ["one", "a"], ["b"]), node("Add", ["a", "b"], ["y"])]
    graph, assignment = _kept(nodes, {"y": HALF}, initializers={"one": np.ones(1, np.float32)})
    assert _operators(graph) == ["Cast", "Exp", "Cast", "Cast", "Add", "Cast"]
    assert [node.inputs for node in graph.nodes[2:4]] == [["one"], ["b"]]
    assert assignment.kept_in_float == ("a",)


def test_shapes_are_read_of_float():
    nodes = [node("Exp", ["x"], ["a"]), node("Shape", ["a"], ["s"]), node("Sqrt", ["a"], ["y"])]
    graph, assignment = _kept(nodes, {"y": HALF, "s": TensorProto.INT64})
    assert _operators(graph) == ["Cast", "Exp", "Shape", "Sqrt", "Cast"]
    assert assignment.kept_in_float == ("a",)


def test_all_parts_of_a_split_are_float_or_none():
    nodes = [
        node("Exp", ["x"], ["a"]),
        node("Split", ["a"], ["b", "c"], axis=0, num_outputs=2),
        node("Sqrt", ["b"], ["y"]),
    ]
    graph, assignment = _kept(nodes, {"y": HALF, "c": HALF})
    assert _operators(graph) == ["Cast", "Exp", "Split", "Cast", "Sqrt", "Cast"]
    assert assignment.kept_in_float == ("a", "b", "c")
    assert graph.nodes[2].outputs == ["b", "c_as_float"]


@pytest.mark.parametrize(
    ("others", "initializers", "kept", "operators"),
    [
        (["past"], {}, (), ["Exp", "Cast", "Concat", "Cast", "Sqrt"]),
        (["w"], {"w": np.ones((2, 2), np.float16)}, ("a", "b"), ["Exp", "Concat", "Sqrt"]),
        (["w"], {"w": np.ones((1 << 16, 2), np.float16)}, (), ["Exp", "Cast", "Concat", "Cast", "Sqrt"]),
    ],
)
def test_moving_a_large_half_value_along_does_not_widen_it(others, initializers, kept, operators):
    nodes = [node("Exp", ["x"], ["a"]), node("Concat", ["a", *others], ["b"], axis=0), node("Sqrt", ["b"], ["y"])]
    graph, assignment = _kept(nodes, {"y": HALF}, inputs=("x", "past"), initializers=initializers)
    assert assignment.kept_in_float == kept
    assert _operators(graph) == ["Cast", *operators, "Cast"]


def test_what_moves_float_beside_constants_reads_those_in_float_too():
    nodes = [
        node("Exp", ["x"], ["a"]),
        node("Pad", ["a", "pads", "w"], ["b"]),
        node("Concat", ["w1", "b"], ["c"], axis=0),
        node("Sqrt", ["c"], ["y"]),
    ]
    constants = {"pads": np.array([0, 1, 0, 0]), "w": np.float16(0.5), "w1": np.full((1, 3), 0.5, np.float16)}
    graph, assignment = _kept(nodes, {"y": HALF}, initializers=constants)
    assert assignment.kept_in_float == ("a", "b", "c")
    assert _operators(graph) == ["Cast", "Exp", "Pad", "Concat", "Sqrt", "Cast"]
    read = [name for inner in graph.nodes[2:4] for name in inner.inputs if name != "pads"]
    assert {_type(graph, name) for name in read} == {FLOAT_TYPE}


def test_weights_keep_their_type():
    nodes = [node("MatMul", ["x", "w"], ["a"]), node("Transpose", ["w"], ["t"]), node("MatMul", ["a", "t"], ["y"])]
    graph, assignment = _kept(nodes, {"y": HALF}, initializers={"w": np.ones((2, 2), np.float16)})
    assert assignment.kept_in_float == ("a",)
    assert _type(graph, "w") == _type(graph, "t") == "tensor(float16)"


def test_a_value_a_body_reads_is_rounded_for_it():
    branch = helper.make_graph([node("Neg", ["a"], ["r"])], "branch", [], [value("r", None, HALF)])
    nodes = [
        node("Exp", ["x"], ["a"]),
        node("If", ["flag"], ["b"], then_branch=branch, else_branch=branch),
        node("Add", ["a", "b"], ["y"]),
    ]
    graph, assignment = _kept(nodes, {"y": HALF}, initializers={"flag": np.array(True)})
    assert _operators(graph) == ["Cast", "Exp", "Cast", "If", "Cast", "Add", "Cast"]
    assert assignment.kept_in_float == ("a",)
    assert graph.nodes[3].attributes["then_branch"].nodes[0].inputs == ["a"]
    assert _type(graph, "b") == "tensor(float16)"


def test_bodies_keep_float_inside_and_return_float16():
    body = helper.make_graph(
        [node("Exp", ["s"], ["e"]), node("Sqrt", ["e"], ["r"])],
        "body",
        [value("i", [], TensorProto.INT64), value("c", [], TensorProto.BOOL), value("s", [2, 2], HALF)],
        [value("c", [], TensorProto.BOOL), value("r", [2, 2], HALF)],
    )
    graph, assignment = _kept(
        [node("Loop", ["count", "", "x"], ["y"], body=body)], {"y": HALF}, initializers={"count": np.array(3)}
    )
    assert assignment.kept_in_float == ("e",)
    inner = graph.nodes[0].attributes["body"]
    assert _type(inner, "e") == FLOAT_TYPE
    assert _type(inner, "r") == _type(inner, "s") == "tensor(float16)"


def test_a_native_float16_kernel_reads_and_makes_float16():
    def register(registry):
        registry.kernel("Relu", 14, {"T": ["tensor(float16)"]})(lambda _info: lambda x: np.maximum(x, 0))
        add_opset(registry, np)

    nodes = [node("Exp", ["x"], ["a"]), node("Relu", ["a"], ["b"]), node("Sqrt", ["b"], ["c"]), node("Neg", ["c"], ["y"])]
    graph, assignment = _kept(nodes, {"y": HALF}, bindings=[_binding("OwnExecutionProvider", register)])
    assert assignment.kept_in_float == ("c",)
    assert _operators(graph) == ["Cast", "Exp", "Cast", "Relu", "Cast", "Sqrt", "Neg", "Cast"]
    assert graph.nodes[3].inputs == ["a"]


def test_a_faster_kernel_for_float_is_found():
    def register(registry):
        registry.kernel("Sqrt", 13, {"T": ["tensor(float)"]})(lambda _info: np.sqrt)
        add_opset(registry, np)

    nodes = [node("Exp", ["x"], ["a"]), node("Sqrt", ["a"], ["b"]), node("Neg", ["b"], ["y"])]
    graph, assignment = _kept(nodes, {"y": HALF}, bindings=[_binding("FastExecutionProvider", register)])
    assert assignment.kept_in_float == ("a", "b")
    assert assignment.kernel_for(graph.nodes[2]).kernel_def.half_support is HalfSupport.NATIVE


def test_values_that_cross_to_another_provider_are_float16():
    def first(registry):
        rows = KernelRegistry("rows")
        add_opset(rows, np)
        for op_type in ("Exp", "Sqrt", "Cast"):
            registry.add_source(lambda domain, name, rows=rows: rows.candidates(domain, name), [("", op_type)])

    bindings = [_binding("FirstExecutionProvider", first), _binding("SecondExecutionProvider", _shared_set)]
    nodes = [node("Exp", ["x"], ["a"]), node("Sqrt", ["a"], ["b"]), node("Neg", ["b"], ["c"]), node("Neg", ["c"], ["y"])]
    _, assignment = _kept(nodes, {"y": HALF}, bindings=bindings)
    assert assignment.kept_in_float == ("a", "c")


def test_a_provider_that_cannot_round_rounds_in_every_kernel():
    bindings = [_binding("NoCastExecutionProvider", lambda registry: add_opset(registry, np, exclude={"Cast"}))]
    _, assignment = _kept([node("Exp", ["x"], ["a"]), node("Sqrt", ["a"], ["y"])], {"y": HALF}, bindings=bindings)
    assert assignment.kept_in_float == ()


def test_a_type_that_an_attribute_names_stays():
    nodes = [node("RandomNormal", [], ["a"], dtype=HALF, shape=[2, 2]), node("Add", ["a", "x"], ["y"])]
    _, assignment = _kept(nodes, {"y": HALF})
    assert assignment.kept_in_float == ()


def test_sequences_hold_float16():
    nodes = [
        node("Exp", ["x"], ["a"]),
        node("SequenceConstruct", ["a"], ["s"]),
        node("SequenceAt", ["s", "zero"], ["b"]),
        node("Add", ["a", "b"], ["y"]),
    ]
    graph, assignment = _kept(nodes, {"y": HALF}, initializers={"zero": np.array(0)})
    assert assignment.kept_in_float == ("a",)
    assert _operators(graph)[:4] == ["Cast", "Exp", "Cast", "SequenceConstruct"]
    assert graph.nodes[3].inputs == ["a"]


def test_registered_kernels_know_the_types_unless_they_say_otherwise():
    registry = KernelRegistry("OwnExecutionProvider")
    registry.kernel("Relu", 14)(lambda _info: np.abs)
    (row,) = registry.candidates("", "Relu")
    assert row.kernel_def.half_support is HalfSupport.NATIVE
    assert dataclasses.replace(row.kernel_def, half_support=HalfSupport.MOVED).half_support is HalfSupport.MOVED
