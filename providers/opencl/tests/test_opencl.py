"""The OpenCL provider on each platform's device, against onnxruntime and ONNX's real networks.

ONNX's small cases are in ``test_conformance.py``.
"""

import subprocess
import sys
import threading

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import ort_sdk as ort
from ort_sdk.testing.cases import load_cases
from ort_sdk.testing.compare import assert_same

pytestmark = pytest.mark.opencl

CASES = [case for case in load_cases("real") if case.name in ("test_squeezenet", "test_resnet50")]
SLOW = {"test_resnet50"}
"""Half a minute where a processor is the device; another real network stays."""


def _session(model, providers):
    return ort.InferenceSession(model, providers=providers)


def _model(nodes, inputs, outputs, initializers=(), opset=17):
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(initializers))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    model.ir_version = 8
    return model.SerializeToString()


def _float(name, shape):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=case.name, marks=[pytest.mark.slow] if case.name in SLOW else []) for case in CASES]
)
def test_case(case, providers):
    model = case.model_bytes()
    graph = onnx.ModelProto.FromString(model).graph
    constants = {tensor.name for tensor in graph.initializer}
    names = [value.name for value in graph.input if value.name not in constants]
    session = _session(model, providers)
    for inputs, expected in case.data_sets():
        for _ in range(3):
            outputs = session.run(None, dict(zip(names, inputs, strict=False)))
            for actual, wanted in zip(outputs, expected, strict=True):
                assert_same(actual, wanted, rtol=case.rtol, atol=max(case.atol, 1e-6))


def test_the_covered_operators_run_on_the_device(providers):
    rng = np.random.default_rng(0)
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1], name="conv"),
        helper.make_node("Relu", ["c"], ["r"], name="relu"),
        helper.make_node("Concat", ["r", "c"], ["k"], axis=1, name="concat"),
        helper.make_node("Transpose", ["k"], ["t"], perm=[0, 2, 3, 1], name="transpose"),
        helper.make_node("Reshape", ["t", "shape"], ["s"], name="reshape"),
        helper.make_node("MatMul", ["s", "m"], ["p"], name="matmul"),
        helper.make_node("Add", ["p", "a"], ["q"], name="add"),
        helper.make_node("Mul", ["q", "q"], ["u"], name="mul"),
        helper.make_node("Softmax", ["u"], ["v"], axis=-1, name="softmax"),
        helper.make_node("ReduceMean", ["v"], ["y"], axes=[1], name="mean"),
    ]
    weights = {
        "w": rng.standard_normal((4, 3, 3, 3)).astype(np.float32),
        "b": rng.standard_normal(4).astype(np.float32),
        "m": rng.standard_normal((8, 5)).astype(np.float32),
        "a": rng.standard_normal(5).astype(np.float32),
        "shape": np.array([0, -1, 8]),
    }
    initializers = [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()]
    model = _model(nodes, [_float("x", ["n", 3, 6, 5])], [_float("y", None)], initializers)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    session = ort.InferenceSession(model, options, providers=providers)
    placed = {node.name: row.ep_name for row in session.get_provider_graph_assignment_info() for node in row.get_nodes()}
    assert {placed[node.name] for node in nodes} == {"OpenCLExecutionProvider"}
    reference = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    for batch in (1, 3, 1, 1, 3):
        x = rng.standard_normal((batch, 3, 6, 5)).astype(np.float32)
        np.testing.assert_allclose(session.run(None, {"x": x})[0], reference.run(None, {"x": x})[0], rtol=1e-4, atol=1e-6)


def test_what_the_device_lacks_runs_on_the_host_with_copies_between(providers):
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("LinearRegressor", ["r"], ["e"], domain="ai.onnx.ml", coefficients=[0.5, -2.0, 1.0], intercepts=[0.25]),
        helper.make_node("Add", ["e", "r"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "g", [_float("x", ["n", 3])], [_float("y", ["n", 3])])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    session = _session(model, providers)
    assert {row.op_type: row.provider for row in session.placements()}["LinearRegressor"] == "CPUExecutionProvider"
    x = np.linspace(-2, 2, 21, dtype=np.float32).reshape(7, 3)
    reference = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    for _ in range(3):
        np.testing.assert_allclose(session.run(None, {"x": x})[0], reference.run(None, {"x": x})[0], rtol=1e-6)


@pytest.mark.parametrize("element_type", ["FLOAT16", "BFLOAT16", "DOUBLE"])
def test_types_of_16_and_64_bits(providers, element_type):
    code = getattr(TensorProto, element_type)
    x, y = (helper.make_tensor_value_info(name, code, ["n", 33]) for name in "xy")
    nodes = [helper.make_node("Exp", ["x"], ["e"]), helper.make_node("ReduceMax", ["e"], ["m"], axes=[1])]
    nodes += [helper.make_node("Div", ["e", "m"], ["y"])]
    dtype = helper.tensor_dtype_to_np_dtype(code)
    values = np.random.default_rng(0).standard_normal((5, 33)).astype(dtype)
    (got,) = _session(_model(nodes, [x], [y]), [providers[0]]).run(None, {"x": values})
    assert got.dtype == dtype
    wanted = np.exp(values.astype(np.float64))
    tolerance = {"FLOAT16": 2e-3, "BFLOAT16": 2e-2, "DOUBLE": 1e-14}[element_type]
    np.testing.assert_allclose(got.astype(np.float64), wanted / wanted.max(axis=1, keepdims=True), rtol=tolerance)


def test_no_elements(providers):
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Add", ["r", "x"], ["y"])]
    session = _session(_model(nodes, [_float("x", ["n", 3])], [_float("y", ["n", 3])]), providers)
    assert session.run(None, {"x": np.empty((0, 3), np.float32)})[0].shape == (0, 3)


def test_a_shape_error_names_node_and_provider(providers):
    nodes = [helper.make_node("MatMul", ["a", "b"], ["y"], name="product")]
    session = _session(_model(nodes, [_float("a", ["n", "k"]), _float("b", ["l", "m"])], [_float("y", None)]), providers)
    with pytest.raises(ort.api.InvalidArgument, match=r"product.*OpenCLExecutionProvider"):
        session.run(None, {"a": np.ones((2, 3), np.float32), "b": np.ones((4, 5), np.float32)})


def test_threads_share_one_session(providers):
    nodes = [helper.make_node("MatMul", ["x", "x"], ["p"]), helper.make_node("Softmax", ["p"], ["y"])]
    session = _session(_model(nodes, [_float("x", ["n", "n"])], [_float("y", ["n", "n"])]), providers)
    feeds = [np.random.default_rng(seed).standard_normal((16, 16)).astype(np.float32) for seed in range(4)]
    wanted = [session.run(None, {"x": x})[0] for x in feeds]
    wrong = []

    def work(position):
        for _ in range(20):
            wrong.extend([position] if not np.array_equal(session.run(None, {"x": feeds[position]})[0], wanted[position]) else [])

    threads = [threading.Thread(target=work, args=(position,)) for position in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_results_stay_where_programs_end_at_shapes_that_vary(providers):
    nodes = [
        *(helper.make_node("Add", ["x", "x"], ["twice"]), helper.make_node("NonZero", ["x"], ["where"])),
        *(helper.make_node("Transpose", ["where"], ["places"]), helper.make_node("GatherND", ["twice", "places"], ["picked"])),
        *(helper.make_node("Mul", ["picked", "picked"], ["a"]), helper.make_node("Sub", ["a", "picked"], ["b"])),
        helper.make_node("Relu", ["b"], ["y"]),
    ]
    session = _session(_model(nodes, [_float("x", ["n", "n"])], [_float("y", ["m"]), _float("twice", ["n", "n"])]), providers)
    kept = []
    for seed in range(80):
        x = np.random.default_rng(seed % 9).integers(-1, 2, (3, 4)).astype(np.float32) * (seed + 1)
        got = session.run(None, {"x": x})
        picked = 2 * x[x != 0]
        np.testing.assert_allclose(got[0], np.maximum(picked * picked - picked, 0), rtol=1e-6)
        np.testing.assert_array_equal(got[1], 2 * x)
        kept.append((got, [array.copy() for array in got]))
    for got, copies in kept:
        for array, copy in zip(got, copies, strict=True):
            np.testing.assert_array_equal(array, copy)


def test_the_plugin_module_does_not_import_pyopencl():
    code = "import sys, ort_sdk_opencl.plugin; sys.exit('pyopencl' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
