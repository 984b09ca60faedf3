"""Operators of dynamically quantized models beside onnxruntime: products, convolutions, LSTM; bound and step by step."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from ort_sdk_cpu.onednn import library as onednn_library
from ort_sdk_cpu.platform import libraries
from ort_sdk_cpu.platform.cpu_features import has_vnni
from ort_sdk_cpu.quantized.conv.integer import ConvIntegerKernel
from ort_sdk_cpu.quantized.matmul.constant_b import IntegerMatMulKernel

import ort_sdk as ort

onnxruntime = pytest.importorskip("onnxruntime")
needs_libraries = pytest.mark.skipif(
    not onednn_library.is_available() or not libraries.compiled_kernels().is_usable, reason="oneDNN or numba is not installed"
)
node = helper.make_node
RNG = np.random.default_rng(5)
MICROSOFT = "com.microsoft"


def _run_both(nodes, feeds, constants, outputs, rtol, atol, *, shapes=None, opset=18):
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), (shapes or {}).get(name, array.shape))
        for name, array in feeds.items()
    ]
    results = [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()]
    initializers = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid(MICROSOFT, 1)]
    graph = helper.make_graph(nodes, "graph", infos, results, initializers)
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    expected = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, feeds)
    for _ in range(4):
        for found, wanted in zip(session.run(None, feeds), expected, strict=True):
            assert found.dtype == wanted.dtype
            np.testing.assert_allclose(found, wanted, rtol=rtol, atol=atol)
    return session


def _bytes(kind, *shape):
    limits = np.iinfo(kind)
    return RNG.integers(limits.min, limits.max + 1, shape).astype(kind)


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
@pytest.mark.parametrize("shape", [(3, 40), (2, 7, 129), (64, 256), (1, 17)])
@pytest.mark.parametrize("per_column", [True, False])
@pytest.mark.parametrize("extras", ["none", "zero point", "zero point and bias", "bias"])
@pytest.mark.parametrize("operator", ["DynamicQuantizeMatMul", "MatMulIntegerToFloat"])
def test_products(kind, shape, per_column, extras, operator):
    columns, rng = 83, RNG
    count = columns if per_column else 1
    constants = {"b": _bytes(kind, shape[-1], columns), "s": (rng.random(count) * 0.02 + 0.001).astype(np.float32)}
    if "zero point" in extras:
        constants["z"] = _bytes(kind, count)
    if "bias" in extras:
        constants["c"] = rng.standard_normal(columns).astype(np.float32)
    zero, bias = "z" if "zero point" in extras else "", "c" if "bias" in extras else ""
    if operator == "DynamicQuantizeMatMul":
        feeds, inputs = {"a": rng.standard_normal(shape).astype(np.float32)}, ["a", "b", "s", zero, bias]
    else:
        feeds = {"a": _bytes(np.uint8, *shape), "t": np.array(0.013, np.float32), "y0": np.array(117, np.uint8)}
        inputs = ["a", "b", "t", "s", "y0", zero, bias]
    _run_both([node(operator, inputs, ["y"], domain=MICROSOFT)], feeds, constants, {"y": TensorProto.FLOAT}, 1e-4, 2e-3)


@needs_libraries
def test_which_kernels_compute(make_kernel):
    b, scale = _bytes(np.int8, 32, 16), np.ones(1, np.float32)
    inputs = (np.ones((4, 32), np.float32), b, scale)
    assert isinstance(make_kernel("DynamicQuantizeMatMul", inputs, {}, MICROSOFT, None, (1, 2), ()), IntegerMatMulKernel)
    x, w, zero = _bytes(np.uint8, 1, 8, 9, 9), _bytes(np.int8, 8, 8, 3, 3), np.array(3, np.uint8)
    # oneDNN adds pairs of products in 16 bits on processors without VNNI, which is not exact
    assert isinstance(make_kernel("ConvInteger", (x, w, zero), {}, "", None, (1,), ()), ConvIntegerKernel) == has_vnni()


@pytest.mark.parametrize("shape", [(2, 16, 30, 20), (1, 1, 3, 3), (1, 3, 17, 40)])
def test_quantization_by_range(shape):
    x = RNG.standard_normal(shape).astype(np.float32)
    kinds = {"y": TensorProto.UINT8, "s": TensorProto.FLOAT, "z": TensorProto.UINT8}
    for values in (x, np.abs(x) + 3, np.zeros_like(x), -np.abs(x)):
        _run_both([node("DynamicQuantizeLinear", ["x"], list(kinds))], {"x": values}, {}, kinds, 0, 0)


@pytest.mark.parametrize("shape", [(256, 256), (700,), (3, 5, 7)])
def test_a_zero_point_is_stored_as_one_byte(shape):
    """Into the memory of the user, whose bytes around it stay."""
    made = node("DynamicQuantizeLinear", ["x"], ["y", "scale", "zero"])
    outputs = [("y", TensorProto.UINT8, shape), ("scale", TensorProto.FLOAT, ()), ("zero", TensorProto.UINT8, ())]
    results = [helper.make_tensor_value_info(*output) for output in outputs]
    graph = helper.make_graph([made], "graph", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)], results)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    x = RNG.uniform(-1, 1, shape).astype(np.float32)
    for _ in range(4):
        memory = np.full(16, 0xAA, np.uint8)
        binding = session.io_binding()
        binding.bind_cpu_input("x", x)
        binding.bind_output("y")
        binding.bind_output("scale")
        binding.bind_ortvalue_output("zero", ort.OrtValue.ortvalue_from_numpy(memory[5:6].reshape(())))
        session.run_with_iobinding(binding)
        assert abs(int(memory[5]) - 255 * -min(x.min(), 0) / (x.max() - min(x.min(), 0))) <= 1
        assert (np.delete(memory, 5) == 0xAA).all()


@needs_libraries
@pytest.mark.parametrize("shift", [0, 0.4, 9])
def test_quantization_by_nodes_of_operator_set_10(shift):
    quantizer = [
        *(node("ReduceMin", ["x"], ["low"], keepdims=0), node("ReduceMax", ["x"], ["high"], keepdims=0)),
        *(node("Sub", ["zero", "low"], ["below"]), node("Sub", ["high", "low"], ["all"]), node("Div", ["all", "most"], ["s"])),
        *(node("Div", ["below", "s"], ["steps"]), node("Floor", ["steps"], ["floor"])),
        *(node("Cast", ["floor"], ["z"], to=TensorProto.UINT8), node("QuantizeLinear", ["x", "s", "z"], ["q"])),
    ]
    nodes = [
        *(node("Conv", ["picture", "pointwise"], ["y"]), node("Add", ["y", "shift"], ["x"]), *quantizer),
        node("ConvInteger", ["q", "w", "z", "wz"], ["sums"], pads=[1, 1, 1, 1]),
    ]
    constants = {"zero": np.array(0, np.float32), "most": np.array(255, np.float32), "shift": np.array(shift, np.float32)}
    constants |= {"pointwise": RNG.integers(-3, 4, (16, 8, 1, 1)).astype(np.float32) / 4}
    constants |= {"w": _bytes(np.int8, 24, 16, 3, 3), "wz": np.array(0, np.int8)}
    feeds = {"picture": RNG.integers(-20, 21, (1, 8, 13, 18)).astype(np.float32) / 8}
    outputs = {"sums": TensorProto.INT32, "s": TensorProto.FLOAT, "z": TensorProto.UINT8}
    session = _run_both(nodes, feeds, constants, outputs, 0, 0, opset=10)
    (row,) = session.program_report()
    assert row.bound_count == len(row.operators)


@pytest.mark.parametrize(("weight_kind", "weight_zero"), [(np.int8, 0), (np.uint8, 128), (np.uint8, 90)])
@pytest.mark.parametrize(("group", "kernel", "attributes"), [
    (1, 3, {"pads": [1, 1, 1, 1]}),
    (1, 1, {}),
    (2, 3, {"pads": [0, 1, 2, 1], "strides": [2, 1]}),
    (16, 3, {"pads": [1, 1, 1, 1], "dilations": [2, 1]}),
])  # fmt: skip
@pytest.mark.parametrize("zero_point", [0, 117])
def test_convolutions(weight_kind, weight_zero, group, kernel, attributes, zero_point):
    w = _bytes(weight_kind, 32, 16 // group, kernel, kernel)
    constants = {"w": w, "wz": np.array(weight_zero, weight_kind)}
    feeds = {"x": RNG.standard_normal((2, 16, 15, 18)).astype(np.float32) + np.float32(zero_point / 60)}
    nodes = [
        node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        node("ConvInteger", ["q", "w", "z", "wz"], ["y"], group=group, kernel_shape=[kernel] * 2, **attributes),
    ]
    _run_both(nodes, feeds, constants, {"y": TensorProto.INT32, "s": TensorProto.FLOAT}, 0, 0)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("per_column", [True, False])
def test_lstm(direction, per_column):
    steps, batch, size, hidden, directions = 6, 2, 24, 32, 2 if direction == "bidirectional" else 1
    count = (directions, 4 * hidden) if per_column else (directions,)
    constants = {
        "w": _bytes(np.int8, directions, size, 4 * hidden),
        "r": _bytes(np.int8, directions, hidden, 4 * hidden),
        "b": RNG.standard_normal((directions, 8 * hidden)).astype(np.float32),
        **{name: np.full(count, 0.002, np.float32) for name in ("ws", "rs")},
        **{name: np.zeros(count, np.int8) for name in ("wz", "rz")},
    }
    feeds = {"x": RNG.standard_normal((steps, batch, size)).astype(np.float32)}
    inputs = ["x", "w", "r", "b", "", "", "", "", "ws", "wz", "rs", "rz"]
    lstm = node("DynamicQuantizeLSTM", inputs, ["y", "h", "c"], domain=MICROSOFT, hidden_size=hidden, direction=direction)
    kinds = dict.fromkeys(("y", "h", "c"), TensorProto.FLOAT)
    _run_both([lstm], feeds, constants, kinds, 2e-2, 2e-2)  # onnxruntime quantizes the inputs, too
