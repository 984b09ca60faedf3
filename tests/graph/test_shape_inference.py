"""Shapes and sizes known before a model runs."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import ort_sdk
from ort_sdk.graph.shape_inference import infer_shapes
from ort_sdk.graph.type_inference import infer_types
from ort_sdk.loader import load_model
from ort_sdk.testing.cases import KINDS, load_cases
from tests.models_for_tests import model_bytes, value

node = helper.make_node
INT64 = TensorProto.INT64


def inferred(*nodes, inputs=(("x", ["n", 3, 8, 8]),), outputs=(("y", None),), constants=None, opset=17):
    """The graph after inference, and the elements known of its values."""
    model = model_bytes(
        list(nodes), [value(*each) for each in inputs], [value(*each) for each in outputs], constants, opset, ["com.microsoft"]
    )
    graph = load_model(model).graph
    infer_types(graph)
    return graph, infer_shapes(graph)[id(graph)]


def shape_of(*nodes, **settings):
    graph, _ = inferred(*nodes, **settings)
    return graph.node_arg("y").shape


def test_symbols_go_through_a_network():
    weights = {"w": np.zeros((4, 3, 3, 3), np.float32), "m": np.zeros((16, 10), np.float32)}
    assert shape_of(
        node("Conv", ["x", "w"], ["c"], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("MaxPool", ["c"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Flatten", ["p"], ["f"]),
        node("MatMul", ["f", "m"], ["y"]),
        constants=weights,
    ) == ("n", 10)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ([0, -1], ("n", 192)),
        ([-1, 192], ("n", 192)),
        ([0, 3, 64], ("n", 3, 64)),
        ([-1, 2, 96], ("n", 2, 96)),
        ([-1], (None,)),
        ([-1, 5], (None, 5)),
    ],
)
def test_reshape_cancels_symbols(wanted, expected):
    assert shape_of(node("Reshape", ["x", "s"], ["y"]), constants={"s": np.array(wanted)}) == expected


def test_axes_named_twice_give_no_shape():
    """The kernel says what is wrong."""
    assert shape_of(node("Unsqueeze", ["x", "a"], ["y"]), constants={"a": np.array([1, 1])}) is None


def test_sizes_computed_from_shapes_are_followed():
    """The way exporters write ``x.reshape(x.shape[0], x.shape[1] // 3, -1)``."""
    graph, contents = inferred(
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "zero"], ["b"]),
        node("Slice", ["s", "one", "two"], ["c"]),
        node("Div", ["c", "three"], ["d"]),
        node("Unsqueeze", ["b", "axis"], ["u"]),
        node("Concat", ["u", "d", "rest"], ["t"], axis=0),
        node("Reshape", ["x", "t"], ["y"]),
        constants={
            "zero": np.array(0),
            "one": np.array([1]),
            "two": np.array([2]),
            "three": np.array([3]),
            "axis": np.array([0]),
            "rest": np.array([-1]),
        },
    )
    assert contents["s"] == ("n", 3, 8, 8)
    assert contents["t"] == ("n", 1, -1)
    assert graph.node_arg("y").shape == ("n", 1, 192)


@pytest.mark.parametrize(("op_type", "expected"), [("Max", (4, 9, 4)), ("Min", (2, 2, 1))])
def test_the_largest_and_the_least_of_three_vectors(op_type, expected):
    _, contents = inferred(
        node("Shape", ["x"], ["s"]),
        node(op_type, ["s", "fours", "twos"], ["y"]),
        inputs=[("x", [3, 9, 1])],
        outputs=[("y", None, INT64)],
        constants={"fours": np.array([4]), "twos": np.array([2, 2, 2])},
    )
    assert contents["y"] == expected


@pytest.mark.parametrize(
    ("start", "end", "step"),
    [(-9, -(2**31), -1), (1, -9, -2), (9, 0, -1), (-3, -9, -1), (-9, 9, 2), (2, 9, -1)],
)
def test_slices_in_either_direction_as_onnxruntime(start, end, step):
    nodes = [node("Shape", ["x"], ["s"]), node("Slice", ["s", "start", "end", "axis", "step"], ["y"])]
    constants = {"start": np.array([start]), "end": np.array([end]), "axis": np.array([0]), "step": np.array([step])}
    model = model_bytes(nodes, [value("x", [2, 3, 4])], [value("y", None, INT64)], constants)
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, {"x": np.zeros((2, 3, 4), np.float32)})
    graph, contents = inferred(*nodes, inputs=[("x", [2, 3, 4])], outputs=[("y", None, INT64)], constants=constants)
    assert contents["y"] == tuple(expected)
    assert graph.node_arg("y").shape == expected.shape


@pytest.mark.parametrize(("op_type", "numbers"), [("Mul", [2**30]), ("Add", [2**31 - 1]), ("Sub", [-(2**31) + 1]), ("Cast", [])])
def test_numbers_that_do_not_fit_their_type_are_computed_as_onnxruntime_does(op_type, numbers):
    if op_type == "Cast":
        nodes, constants = [node("Mul", ["s", "k"], ["w"]), node("Cast", ["w"], ["y"], to=TensorProto.INT32)], np.array([2**40])
    else:
        nodes = [node("Cast", ["s"], ["c"], to=TensorProto.INT32), node(op_type, ["c", "k"], ["y"])]
        constants = np.array(numbers, np.int32)
    model = model_bytes(
        [node("Shape", ["x"], ["s"]), *nodes], [value("x", [5])], [value("y", [1], TensorProto.INT32)], {"k": constants}
    )
    feeds = {"x": np.zeros(5, np.float32)}
    expected = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, feeds)
    np.testing.assert_array_equal(ort_sdk.InferenceSession(model).run(None, feeds), expected)


@pytest.mark.parametrize(("constants", "expected"), [({}, (2, 3)), ({"axes": np.array([0])}, (6,))])
def test_a_product_over_no_axes_is_what_it_is_of(constants, expected):
    product = node("ReduceProd", ["s", *constants], ["p"], noop_with_empty_axes=1)
    inputs = (("x", [2, 3]), ("z", [6]))
    nodes = [node("Shape", ["x"], ["s"]), product, node("Reshape", ["z", "p"], ["y"])]
    assert shape_of(*nodes, inputs=inputs, constants=constants, opset=18) == expected


def test_expand_to_a_shape_with_minus_ones():
    """The way exporters write ``x.expand(-1, 5)``: minus ones are replaced by ones."""
    graph, contents = inferred(
        node("ConstantOfShape", ["two"], ["ones"], value=helper.make_tensor("v", INT64, [1], [1])),
        node("Equal", ["wanted", "minus"], ["e"]),
        node("Where", ["e", "ones", "wanted"], ["t"]),
        node("Expand", ["x", "t"], ["y"]),
        inputs=[("x", ["n", 1])],
        constants={"two": np.array([2]), "wanted": np.array([-1, 5]), "minus": np.array([-1])},
    )
    assert contents["t"] == (1, 5)
    assert graph.node_arg("y").shape == ("n", 5)


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (["n", 1], [1, 4], ("n", 4)),
        (["n", 3], ["n", 1], ("n", 3)),
        (["n"], ["m"], (None,)),
        (["n"], [4], (4,)),
        ([], [2, "n"], (2, "n")),
        ([0], [1], (0,)),
        (None, [1], None),
    ],
)
def test_broadcasting(left, right, expected):
    assert shape_of(node("Add", ["x", "z"], ["y"]), inputs=[("x", left), ("z", right)]) == expected


def test_a_declared_output_keeps_what_it_says():
    """Open dimensions are filled in; a contradiction is left to the one who wrote it."""
    filled, _ = inferred(node("Relu", ["x"], ["y"]), outputs=[("y", ["batch", None, 8, "w"])])
    assert filled.outputs[0].shape == ("batch", 3, 8, 8)
    contradicting, _ = inferred(node("Relu", ["x"], ["y"]), outputs=[("y", [7, 4, 8, 8])])
    assert contradicting.outputs[0].shape == (7, 4, 8, 8)
    assert contradicting.node_arg("y").shape == (7, 3, 8, 8)
    other_rank, _ = inferred(node("Relu", ["x"], ["y"]), outputs=[("y", [4])])
    assert other_rank.outputs[0].shape == (4,)


@pytest.mark.parametrize(
    "odd",
    [
        node("Transpose", ["x"], ["y"], perm=[0, 1, 2, 9]),
        node("Squeeze", ["x", "big"], ["y"]),
        node("Reshape", ["x", "zeros"], ["y"]),
        node("Concat", ["x", "x"], ["y"], axis=7),
        node("Einsum", ["x"], ["y"], equation="abcde->a"),
        node("Gather", ["x", "big"], ["y"], axis=-9),
        node("MatMul", ["odd", "x"], ["y"]),
        node("MaxPool", ["x"], ["y"], kernel_shape=[2]),
        node("Split", ["x", "big"], ["y"], axis=1),
        node("Split", ["x", "none"], ["y", "z"], axis=1),
        node("OneHot", ["x", "big", "x"], ["y"], axis=12),
    ],
)
def test_nonsense_is_not_known(odd):
    inferred(
        odd,
        constants={
            "big": np.array([99]),
            "zeros": np.zeros(6, np.int64),
            "odd": np.zeros((9, 9), np.float32),
            "none": np.zeros(0, np.int64),
        },
    )


def test_branches_give_the_shapes_they_agree_on():
    def branch(name, size):
        output = value(name, None)
        return helper.make_graph([node("Expand", ["x", f"s{size}"], [name])], name, [], [output])

    assert shape_of(
        node("If", ["c"], ["y"], then_branch=branch("t", 5), else_branch=branch("e", 6)),
        inputs=[("x", ["n", 1]), ("c", [], TensorProto.BOOL)],
        constants={"s5": np.array([1, 5]), "s6": np.array([1, 6])},
    ) == ("n", None)


def test_bodies_of_scans_get_shapes_and_give_them():
    body = helper.make_graph(
        [node("Add", ["s", "e"], ["t"]), node("Identity", ["t"], ["o"])],
        "body",
        [value("s", None), value("e", None)],
        [value("t", None), value("o", None)],
    )
    graph, _ = inferred(
        node("Scan", ["z", "x"], ["last", "y"], body=body, num_scan_inputs=1, scan_input_axes=[1], scan_output_axes=[-1]),
        inputs=[("z", [4]), ("x", [4, "n"])],
    )
    assert graph.node_arg("last").shape == (4,)
    assert graph.node_arg("y").shape == (4, "n")


def test_loop_state_is_known_as_far_as_it_does_not_change():
    body = helper.make_graph(
        [node("Concat", ["s", "s"], ["t"], axis=0), node("Identity", ["go"], ["on"])],
        "body",
        [value("i", [], INT64), value("go", [], TensorProto.BOOL), value("s", [None, 3])],
        [value("on", [], TensorProto.BOOL), value("t", None), value("s2", None)],
    )
    body.node.append(node("ReduceSum", ["s"], ["s2"], keepdims=0))
    graph, _ = inferred(
        node("Loop", ["count", "", "x"], ["y", "each"], body=body),
        inputs=[("x", [2, 3]), ("count", [], INT64)],
        outputs=[("y", None), ("each", None)],
    )
    assert graph.node_arg("y").shape == (None, 3)
    assert graph.node_arg("each").shape == (None,)


def test_five_hundred_nodes_take_milliseconds():
    nodes = [node("Relu", [f"v{index}" if index else "x"], [f"v{index + 1}"]) for index in range(500)]
    graph, _ = inferred(*nodes, outputs=[("v500", None)])
    started = time.process_time()
    infer_shapes(graph)
    assert time.process_time() - started < 0.1
    assert graph.outputs[0].shape == ("n", 3, 8, 8)


def _onnx_cases():
    return [case for kind in KINDS for case in load_cases(kind)]


def test_onnx_cases_have_the_shapes_inferred_for_them():
    """Every output of ONNX's own cases, its declared shape forgotten."""
    checked = 0
    for case in _onnx_cases():
        proto = onnx.ModelProto.FromString(case.model_bytes())
        for output in proto.graph.output:
            output.type.tensor_type.ClearField("shape")
        graph = load_model(proto.SerializeToString()).graph
        infer_types(graph)
        infer_shapes(graph)
        for _, expected in case.data_sets():
            for argument, array in zip(graph.outputs, expected, strict=True):
                if not isinstance(array, np.ndarray) or argument.shape is None:
                    continue
                checked += 1
                fits = all(
                    not isinstance(size, int) or size == actual for size, actual in zip(argument.shape, array.shape, strict=True)
                )
                assert fits, f"{case.name}: {argument}, is {array.shape}"
    assert checked > 1500


def test_quantized_embeddings_are_rows_of_their_table():
    tables = {"table": np.zeros((9, 8), np.uint8), "scale": np.float32(1), "zero": np.uint8(0)}
    inputs = ["ids", "", *["table"] * 5, "", *["scale"] * 5, *["zero"] * 5]
    found = shape_of(
        node("QEmbedLayerNormalization", inputs, ["y", "m"], domain="com.microsoft"),
        inputs=(("ids", ["b", "n"], TensorProto.INT32),),
        constants=tables,
    )
    assert found == ("b", "n", 8)


FAMILIES = """
import importlib, json, pathlib
import ort_sdk.graph.shape_inference.rules as package
from ort_sdk.graph.shape_inference import infer, node_call
families, at_first, wrong = infer._family_of(), set(node_call.SHAPE_RULES), []
for key, family in families.items():
    importlib.import_module(f"{package.__name__}.{family}")
    wrong += [key] * (key in at_first or key not in node_call.SHAPE_RULES)
for path in pathlib.Path(package.__file__).parent.glob("*.py"):
    importlib.import_module(f"{package.__name__}.{path.stem}")
wrong += sorted(node_call.SHAPE_RULES.keys() - at_first - families.keys())
wrong += sorted(node_call.CONTENTS_RULES.keys() - node_call.SHAPE_RULES.keys())
print(json.dumps(wrong))
"""


def test_rules_are_found_in_the_modules_that_have_them():
    done = subprocess.run([sys.executable, "-c", FAMILIES], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []
