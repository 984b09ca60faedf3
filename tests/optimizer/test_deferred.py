"""Passes come by the operators of a model, and of what other passes make of it."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from onnx import TensorProto, helper

from ort_sdk.loader import load_model
from ort_sdk.optimizer import TransformerContext, apply_transformers, transformers_of_level
from tests.optimizer.basic.random_graph import random_model
from tests.optimizer.extended.fused_graph import build

FLOAT = TensorProto.FLOAT
CONTEXT = TransformerContext({"": 17, "com.microsoft": 1}, lambda *_: None, lambda *_: True, lambda *_: True)


def names_for(level, op_types):
    return {found.imported().name for found in transformers_of_level(level) if found.may_find(op_types)}


@pytest.mark.parametrize("level", [1, 2, 3])
def test_passes_have_names_of_their_own(level):
    names = [found.imported().name for found in transformers_of_level(level)]
    assert names
    assert len(set(names)) == len(names)


def test_passes_come_by_the_operators_of_the_model():
    always = {"ShapeInference", "SizeNaming", "ConstantFolding", "CommonSubexpressionElimination", "UnusedRemoval"}
    assert names_for(1, set()) == always
    assert names_for(1, {"Relu", "Identity", "Conv"}) == {*always, "EliminateIdentity"}
    assert names_for(1, {"Relu", "Clip", "Where"}) == {*always, "FuseReluClip"}
    assert names_for(2, set()) == names_for(3, set()) == set()
    assert names_for(2, {"Conv", "Relu"}) == {"ConvActivationFusion"}
    assert names_for(2, {"Conv", "Relu", "Add"}) == {"ConvActivationFusion", "ConvAddActivationFusion"}
    assert names_for(2, {"MatMulInteger"}) == {"MatMulIntegerToFloatFusion"}
    assert names_for(2, {"MatMulIntegerToFloat"}) == {"DynamicQuantizeMatMulFusion"}


def test_passes_that_start_from_an_operator_need_one_of_them():
    for level in (1, 2, 3):
        for found in transformers_of_level(level):
            anchors = {key.rpartition(":")[2] for key in getattr(found.imported(), "anchors", ())}
            beside = {"Add", "DequantizeLinear", "Mul", "QuantizeLinear", "ReduceMean", "Transpose"}
            assert not anchors or found.may_find(anchors | beside), anchors


@pytest.mark.parametrize("seed", range(40))
def test_a_pass_that_is_left_out_would_have_changed_nothing(seed):
    graph = load_model(random_model(seed)[0]).graph
    op_types = {node.op_type for inner in graph.walk() for node in inner.nodes}
    every = [found for level in (1, 2, 3) for found in transformers_of_level(level)]
    left_out = [found.imported() for found in every if not found.may_find(op_types)]
    assert left_out
    assert [found.name for found in left_out if found.apply(graph, CONTEXT)] == []


def relu_model():
    return build([helper.make_node("Relu", ["x"], ["y"])], [("x", FLOAT, [2, 3])], [("y", FLOAT, [2, 3])])


class IntoIdentity:
    """Stands for any pass, a plugin's for one, after which the graph has an operator that it did not have."""

    name = "IntoIdentity"

    def apply(self, graph, _context):
        relus = [node for node in graph.nodes if node.op_type == "Relu"]
        for node in relus:
            node.op_type = "Identity"
        graph.touch()
        return bool(relus)


@pytest.mark.parametrize("comes_first", [True, False])
def test_pass_runs_for_operators_that_come_of_another_pass(comes_first):
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Abs", ["a"], ["y"])]
    graph = load_model(build(nodes, [("x", FLOAT, [2, 3])], [("y", FLOAT, [2, 3])])).graph
    ours = transformers_of_level(1)
    passes = [IntoIdentity(), *ours] if comes_first else [*ours, IntoIdentity()]
    assert apply_transformers(graph, passes, CONTEXT) == ["IntoIdentity", "EliminateIdentity"]
    assert [(node.op_type, node.inputs) for node in graph.nodes] == [("Abs", ["x"])]


def test_pass_runs_for_operators_in_bodies():
    branch = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Identity", ["r"], ["b"])],
        "branch",
        [],
        [helper.make_tensor_value_info("b", FLOAT, [2, 3])],
    )
    nodes = [helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)]
    values = [("x", FLOAT, [2, 3]), ("c", TensorProto.BOOL, [])]
    graph = load_model(build(nodes, values, [("y", FLOAT, [2, 3])])).graph
    assert apply_transformers(graph, transformers_of_level(1), CONTEXT) == ["EliminateIdentity"]
    assert [[node.op_type for node in inner.nodes] for inner in graph.walk()] == [["Relu"], ["Relu"], ["If"]]


def test_disabled_pass_does_not_run():
    graph = load_model(
        build(
            [helper.make_node("Identity", ["x"], ["a"]), helper.make_node("Abs", ["a"], ["y"])],
            [("x", FLOAT, [2, 3])],
            [("y", FLOAT, [2, 3])],
        )
    ).graph
    assert apply_transformers(graph, transformers_of_level(1), CONTEXT, {"EliminateIdentity"}) == []


def test_session_imports_no_pass_in_vain(tmp_path):
    path = tmp_path / "relu.onnx"
    path.write_bytes(relu_model())
    code = (
        "import json, sys, numpy, ort_sdk\n"
        f"session = ort_sdk.InferenceSession({str(path)!r}, providers=['CPUExecutionProvider'])\n"
        "result = session.run(None, {'x': numpy.array([[-1, 2, 3], [4, -5, 6]], numpy.float32)})[0]\n"
        "modules = [name for name in sys.modules if name.startswith('ort_sdk.optimizer.')]\n"
        "print(json.dumps([result.tolist(), modules]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    result, modules = json.loads(done.stdout)
    np.testing.assert_array_equal(result, [[0, 2, 3], [4, 0, 6]])
    wanted = {"shape_inference", "size_naming", "constant_folding", "common_subexpression_elimination", "unused_removal"}
    passes = {module.rpartition(".")[2] for module in modules if module.startswith("ort_sdk.optimizer.basic.")}
    assert wanted <= passes <= wanted | {"inline_branch"}
    assert not {module for module in modules if module.startswith("ort_sdk.optimizer.extended.")}
