"""Float16 and bfloat16 in files in ORT format: ONNX Runtime runs these as they are, so that casts must be in the file."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnxruntime.capi.onnxruntime_pybind11_state as onnxruntime_state
import pytest
from onnx import TensorProto, helper, numpy_helper

from ort_sdk.loader import load_model
from ort_sdk.session.export import half_precision
from tests.loader.ort_files import run_reference, value
from tests.loader.test_ort_format_writer import run_ours, write

HALF = np.random.default_rng(0).normal(size=(2, 3)).astype(np.float16)


def _model(nodes, kind=TensorProto.FLOAT16, constants=(), domains=()):
    graph = helper.make_graph(nodes, "half", [value("x", (2, 3), kind)], [value("y", (2, 3), kind)], list(constants))
    imports = [helper.make_opsetid("", 18), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString()


def test_values_stay_in_float_from_node_to_node(tmp_path):
    weight = numpy_helper.from_array(np.full(3, 1.5, np.float16), "w")
    nodes = [
        helper.make_node("Mul", ["x", "w"], ["a"]),
        helper.make_node("Sigmoid", ["a"], ["b"]),
        helper.make_node("Add", ["b", "x"], ["c"]),
        helper.make_node("Transpose", ["c"], ["d"], perm=[1, 0]),
        helper.make_node("Transpose", ["d"], ["e"], perm=[1, 0]),
        helper.make_node("Tanh", ["e"], ["y"]),
    ]
    target = write(_model(nodes, constants=[weight]), tmp_path / "m.ort")
    counts = Counter(node.op_type for node in load_model(target).graph.nodes)
    # x, w and x again go up, c comes down; e goes up, y comes down: neither a nor b is rounded.
    assert counts == {"Mul": 1, "Sigmoid": 1, "Add": 1, "Transpose": 2, "Tanh": 1, "Cast": 6}
    wide = HALF.astype(np.float32)
    expected = np.tanh(1 / (1 + np.exp(-1.5 * wide)) + wide)
    for results in (run_reference(target, {"x": HALF}), run_ours(target, {"x": HALF})):
        assert results[0].dtype == np.float16
        np.testing.assert_allclose(results[0], expected, rtol=2e-3)


def test_bodies(tmp_path):
    branches = {}
    for name, op_type in (("then_branch", "Mul"), ("else_branch", "Add")):
        made = helper.make_node(op_type, ["x", "x"], [f"{op_type}_y"])
        branches[name] = helper.make_graph([made], name, [], [value(f"{op_type}_y", (2, 3), TensorProto.FLOAT16)])
    inputs = [value("x", (2, 3), TensorProto.FLOAT16), value("flag", (), TensorProto.BOOL)]
    node = helper.make_node("If", ["flag"], ["y"], **branches)
    graph = helper.make_graph([node], "g", inputs, [value("y", (2, 3), TensorProto.FLOAT16)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8).SerializeToString()
    target = write(model, tmp_path / "m.ort")
    for flag, expected in ((True, HALF * HALF), (False, HALF + HALF)):
        feeds = {"x": HALF, "flag": np.array(flag)}
        for results in (run_reference(target, feeds), run_ours(target, feeds)):
            np.testing.assert_allclose(results[0], expected, rtol=2e-3)


def test_models_without_such_nodes_are_written_as_they_are(tmp_path):
    moves = [helper.make_node("Transpose", ["x"], ["a"]), helper.make_node("Reshape", ["a", "shape"], ["y"])]
    shape = numpy_helper.from_array(np.array([2, 3]), "shape")
    target = write(_model(moves, constants=[shape]), tmp_path / "m.ort")
    assert [node.op_type for node in load_model(target).graph.nodes] == ["Transpose", "Reshape"]
    # A runtime's own model stays: only the file is another one.
    model = load_model(_model([helper.make_node("Sqrt", ["x"], ["y"])]))
    portable = half_precision.with_portable_half(model)
    assert [node.op_type for node in model.graph.nodes] == ["Sqrt"]
    assert [node.op_type for node in portable.graph.nodes] == ["Cast", "Sqrt", "Cast"]


def test_operators_of_other_domains_and_other_providers_stay():
    model = load_model(_model([helper.make_node("Sqrt", ["x"], ["y"])]))
    model.graph.nodes[0].execution_provider = "SomeExecutionProvider"
    assert half_precision.with_portable_half(model) is model
    model.graph.nodes[0].execution_provider = ""
    model.graph.nodes[0].domain = "some.domain"
    assert half_precision.with_portable_half(model) is model


@pytest.mark.parametrize("kind", ["tensor(float16)", "tensor(bfloat16)"])
def test_the_table_is_onnxruntimes(kind):
    """Whatever the table calls runnable is so, and whatever ONNX operator onnxruntime runs in the type is in the table."""
    kernels = [each for each in onnxruntime_state.get_all_opkernel_def() if each.provider == "CPUExecutionProvider"]
    first: dict[str, int] = {}
    for each in kernels:
        if any(kind in types for types in each.type_constraints.values()):
            key = f"{each.domain}:{each.op_name}" if each.domain else each.op_name
            first[key] = min(first.get(key, each.version_range[0]), each.version_range[0])
    table = dict(half_precision._FIRST_VERSIONS[kind])
    del table["NonMaxSuppression"]  # which has no such inputs
    assert table.keys() <= first.keys()
    assert all(table[key] in (1, first[key]) for key in table)
    bodies = {"If", "Loop", "Scan"}
    out_of_use = {"Dropout", "MemcpyFromHost", "MemcpyToHost"}
    assert {key for key in first if ":" not in key} - table.keys() <= bodies | out_of_use
