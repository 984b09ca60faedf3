"""Convolution and pooling over oneDNN: against float64 and exact integers, in every layout, in sessions, on threads."""

import concurrent.futures
import subprocess
import sys

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from ort_sdk_cpu.kernel.layouts.memory import is_channels_last
from ort_sdk_cpu.onednn import library as onednn_library
from ort_sdk_cpu.pool.channels_last import PoolKernel

import ort_sdk as ort
from ort_sdk.testing.error_bounds import assert_sums_close

pytestmark = pytest.mark.skipif(not onednn_library.is_available(), reason="oneDNN is not installed")

MICROSOFT = "com.microsoft"
FLOAT_TOLERANCE = {"rtol": 2e-5, "atol": 2e-5}


def random(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


def channels_last(array):
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(array, 1, -1)), -1, 1)


def in_float64(make_kernel, op_type, inputs, attributes, domain=""):
    wide = tuple(None if value is None else value.astype(np.float64) for value in inputs)
    return make_kernel(op_type, wide, attributes, domain, None, (), ()).compute(*wide)


def cases(count):
    """Random convolutions: one to three spatial axes, groups, strides, dilations, pads, sizes that fill no vector."""
    rng = np.random.default_rng(7)
    for _ in range(count):
        rank = int(rng.integers(1, 4))
        group = int(rng.choice([1, 1, 2, 3]))
        per_group, out_per_group = (int(rng.integers(1, 40)) for _ in range(2))
        if rng.random() < 0.3:
            group, per_group, out_per_group = int(rng.integers(2, 70)), 1, int(rng.integers(1, 3))
        kernel, strides, dilations = ([int(rng.integers(1, high)) for _ in range(rank)] for high in (6, 4, 3))
        pads = [int(rng.integers(0, 3)) for _ in range(2 * rank)]
        low = [(size - 1) * dilation + 1 for size, dilation in zip(kernel, dilations, strict=True)]
        size = [int(rng.integers(least, least + (60, 24, 9)[rank - 1])) for least in low]
        batch = int(rng.integers(1, 4))
        attributes = {"group": group, "strides": strides, "dilations": dilations, "pads": pads}
        yield (batch, group * per_group, *size), (group * out_per_group, per_group, *kernel), attributes


@pytest.mark.parametrize(("x_shape", "w_shape", "attributes"), list(cases(40)), ids=str)
def test_random_convolutions(make_kernel, run_all, x_shape, w_shape, attributes, monkeypatch):
    monkeypatch.setattr("ort_sdk_cpu.conv.select.MINIMUM_WORK", 0)
    rng = np.random.default_rng(0)
    x, w, bias = random(rng, *x_shape), random(rng, *w_shape) / np.sqrt(np.prod(w_shape[1:])).astype(np.float32), None
    expected = in_float64(make_kernel, "Conv", (x, w), attributes)
    magnitudes = in_float64(make_kernel, "Conv", (np.abs(x), np.abs(w)), attributes)
    for source in (x, channels_last(x), np.asfortranarray(x)):
        for results in run_all("Conv", source, w, **attributes):
            np.testing.assert_allclose(results[0], expected, **FLOAT_TOLERANCE)
            assert_sums_close(results[0], expected, magnitudes, np.prod(w_shape[1:]))
    bias = random(rng, w_shape[0])
    added = channels_last(random(rng, *expected.shape))
    fused = {"domain": MICROSOFT, "activation": "LeakyRelu", "activation_params": [0.25], **attributes}
    columns = bias.reshape(-1, *(1 for _ in x_shape[2:])).astype(np.float64)
    total = expected + columns + added
    activated = np.where(total > 0, total, total / 4)
    for results in run_all("FusedConv", x, w, bias, added, constants=(1, 2), **fused):
        np.testing.assert_allclose(results[0], activated, **FLOAT_TOLERANCE)
        sums = magnitudes + np.abs(columns) + np.abs(added)
        assert_sums_close(results[0], activated, sums, np.prod(w_shape[1:]) + len(("bias", "addend", "activation")))


@pytest.mark.parametrize(
    "activation", ["Relu", "Tanh", "Sigmoid", "LeakyRelu", "HardSigmoid", "HardSwish", "Clip", "Softsign", "Elu"]
)
@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER", "VALID"])
def test_activations_and_auto_pad(make_kernel, run_all, activation, auto_pad):
    rng = np.random.default_rng(1)
    x, w, bias = random(rng, 1, 20, 15, 16), random(rng, 33, 20, 3, 2) / np.float32(10), random(rng, 33)
    parameters = {"HardSigmoid": [0.1, 0.4], "Clip": [-0.5, 0.75], "LeakyRelu": [0.1], "Elu": [0.5]}.get(activation, [])
    attributes = {"activation": activation, "activation_params": parameters, "auto_pad": auto_pad, "strides": [2, 1]}
    expected = in_float64(make_kernel, "FusedConv", (x, w, bias), attributes, MICROSOFT)
    for results in run_all("FusedConv", x, w, bias, domain=MICROSOFT, constants=(1, 2), **attributes):
        np.testing.assert_allclose(results[0], expected, **FLOAT_TOLERANCE)


TRANSPOSED = [
    ((1, 64, 20, 20), (64, 32, 3, 3), {"strides": [2, 2]}),
    ((2, 16, 20, 21), (16, 24, 4, 4), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
    ((2, 16, 20, 21), (16, 6, 3, 3), {"group": 4, "output_padding": [1, 1], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    ((1, 16, 20, 21), (16, 5, 3, 3), {"output_padding": [1, 0], "strides": [2, 2]}),
    ((1, 16, 20, 21), (16, 5, 3, 3), {"auto_pad": "SAME_UPPER", "strides": [2, 3]}),
    ((1, 16, 20, 21), (16, 5, 3, 3), {"output_shape": [41, 44], "strides": [2, 2]}),
    ((1, 16, 200), (16, 24, 16), {"strides": [8], "dilations": [1]}),
    ((1, 8, 6, 7, 8), (8, 4, 3, 3, 3), {"strides": [2, 1, 2], "dilations": [1, 2, 1]}),
]


@pytest.mark.parametrize(("x_shape", "w_shape", "attributes"), TRANSPOSED, ids=str)
def test_transposed_convolutions(make_kernel, run_all, x_shape, w_shape, attributes):
    rng = np.random.default_rng(2)
    x, w = random(rng, *x_shape), random(rng, *w_shape) / np.sqrt(np.prod(w_shape)).astype(np.float32)
    bias = random(rng, w_shape[1] * attributes.get("group", 1))
    expected = in_float64(make_kernel, "ConvTranspose", (x, w, bias), attributes)
    for constants in ((), (1, 2)):
        for results in run_all("ConvTranspose", channels_last(x), w, bias, constants=constants, **attributes):
            np.testing.assert_allclose(results[0], expected, **FLOAT_TOLERANCE)


@pytest.mark.parametrize(
    ("x_shape", "w_shape", "attributes"),
    [
        ((1, 32, 33, 33), (32, 32, 3, 3), {"strides": [2, 2], "dilations": [2, 2], "pads": [1, 1, 1, 1]}),
        ((3, 32, 8, 33), (32, 32, 7, 1), {"strides": [2, 1], "dilations": [2, 1], "pads": [3, 0, 3, 0]}),
        ((1, 16, 400), (16, 32, 5), {"strides": [4], "dilations": [2]}),
        ((1, 48, 20, 33), (48, 16, 4, 3), {"strides": [1, 2], "group": 2}),
        ((2, 8, 40, 20), (8, 16, 3, 1), {"pads": [2, 2, 0, 1]}),
    ],
    ids=str,
)
@pytest.mark.parametrize("is_alone", [False, True])
def test_transposed_convolutions_of_one_thread(x_shape, w_shape, attributes, is_alone, monkeypatch):
    monkeypatch.setattr("ort_sdk_cpu.platform.threads.should_run_serially", lambda _threads: is_alone)
    rng = np.random.default_rng(6)
    x, weight = random(rng, *x_shape), random(rng, *w_shape) / np.sqrt(np.prod(w_shape)).astype(np.float32)
    given, made = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in (("x", x_shape), ("y", None)))
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], **attributes)
    graph = helper.make_graph([node], "graph", [given], [made], [numpy_helper.from_array(weight, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    (expected,) = onnxruntime.InferenceSession(model).run(None, {"x": x})
    session = ort.InferenceSession(model)
    for _ in range(3):
        np.testing.assert_allclose(session.run(None, {"x": x})[0], expected, **FLOAT_TOLERANCE)


@pytest.mark.parametrize("op_type", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize(
    "attributes",
    [
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
        {"kernel_shape": [3, 2], "strides": [2, 3], "pads": [0, 1, 2, 0]},
        {"kernel_shape": [2, 2], "strides": [3, 3], "ceil_mode": 1, "pads": [1, 1, 1, 1]},
        {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1},
        {"kernel_shape": [90, 64], "strides": [90, 64], "ceil_mode": 1},
        {"kernel_shape": [3, 3], "dilations": [2, 2], "pads": [2, 2, 2, 2]},
        {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_LOWER"},
    ],
    ids=str,
)
@pytest.mark.parametrize("counts", [0, 1])
def test_pools(make_kernel, run_all, op_type, attributes, counts):
    given = attributes | ({"count_include_pad": 1} if counts and op_type == "AveragePool" else {})
    x = random(np.random.default_rng(3), 2, 21, 40, 41)
    expected = in_float64(make_kernel, op_type, (x,), given)
    assert isinstance(make_kernel(op_type, (x,), given, "", None, (), ()), PoolKernel)
    for source in (x, channels_last(x)):
        for results in run_all(op_type, source, **given):
            np.testing.assert_allclose(results[0], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("op_type", ["MaxPool", "GlobalMaxPool"])
@pytest.mark.parametrize("channels", [64, 21])
def test_maximum_of_infinities_and_nan(run_both, make_kernel, op_type, channels):
    x = random(np.random.default_rng(5), 1, channels, 40, 41)
    x[:, 1] = -np.inf
    x[:, 2, 20:23, 20:23] = [[-np.inf, 4, np.nan], [np.inf, -np.inf, 3], [np.nan, np.nan, -np.inf]]
    attributes = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]} if op_type == "MaxPool" else {}
    expected = in_float64(make_kernel, op_type, (x,), attributes).astype(np.float32)
    for source in (x, channels_last(x)):
        found, bound = run_both(op_type, source, **attributes)
        np.testing.assert_array_equal(found[0], expected)
        np.testing.assert_array_equal(bound[0], expected)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_maximum_of_bytes(run_both, make_kernel, dtype):
    limits = np.iinfo(dtype)
    x = np.random.default_rng(4).integers(limits.min, limits.max + 1, (1, 64, 40, 40)).astype(dtype)
    attributes = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}
    expected = in_float64(make_kernel, "MaxPool", (x,), attributes)
    for source in (x, channels_last(x)):
        found, bound = run_both("MaxPool", source, **attributes)
        np.testing.assert_array_equal(found[0], expected)
        np.testing.assert_array_equal(bound[0], expected)


@pytest.mark.parametrize("op_type", ["GlobalAveragePool", "GlobalMaxPool"])
def test_global_pools(make_kernel, run_all, op_type):
    x = random(np.random.default_rng(5), 2, 300, 30, 30)
    small = x[:1, :20, :3, :3]
    for source in (x, channels_last(x), small, channels_last(small)):
        expected = in_float64(make_kernel, op_type, (source,), {})
        for results in run_all(op_type, source):
            np.testing.assert_allclose(results[0], expected, rtol=1e-4, atol=1e-6)


def test_results_lie_channels_last_but_for_small_ones_of_row_major_arrays(make_kernel):
    x, w = np.ones((1, 16, 30, 30), np.float32), np.ones((16, 16, 3, 3), np.float32)
    assert is_channels_last(make_kernel("Conv", (x, w), {}, "", None, (1,), ()).compute(x, w))
    small, weight = random(np.random.default_rng(8), 1, 2, 5, 5), w[:2, :2]
    kernel = make_kernel("Conv", (small, weight), {}, "", None, (1,), ())
    expected = kernel.compute(small, weight)
    assert expected.flags.c_contiguous
    for _ in range(2):
        found = kernel.compute(channels_last(small), weight)
        assert is_channels_last(found)
        np.testing.assert_allclose(found, expected, **FLOAT_TOLERANCE)


def test_small_models_do_not_load_the_library():
    script = (
        "import numpy as np, sys, ort_sdk as ort\n"
        "session = ort.InferenceSession(sys.stdin.buffer.read())\n"
        "for _ in range(3): session.run(None, {'x': np.ones((1, 3, 8, 8), np.float32)})\n"
        "assert not any('libdnnl' in line for line in open('/proc/self/maps')), 'loaded'\n"
    )
    done = subprocess.run([sys.executable, "-c", script], input=network(1, size=8), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()


def test_shapes_that_do_not_fit_are_refused(make_kernel):
    x, w = np.ones((1, 16, 30, 30), np.float32), np.ones((16, 16, 3, 3), np.float32)
    kernel = make_kernel("Conv", (x, w), {}, "", None, (1,), ())
    with pytest.raises(ort.capi.onnxruntime_pybind11_state.InvalidArgument, match=r"\[1, 15, 30, 30\]"):
        kernel.compute(x[:, :15], w)


def network(batch, size=None):
    """Convolutions, a concatenation, a residual, an activation and pools; x is (batch, 3, size, size)."""
    rng = np.random.default_rng(6)
    shapes = {"a": (32, 3, 3, 3), "b": (32, 1, 3, 3), "c": (24, 32, 1, 1), "d": (32, 56, 3, 3), "e": (32, 32, 2, 2)}
    weights = {name: random(rng, *shape) / np.float32(np.sqrt(np.prod(shape[1:]))) for name, shape in shapes.items()}
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "a"], ["t0"], pads=[1] * 4, strides=[2, 2]),
        node("Sigmoid", ["t0"], ["t1"]),
        node("Mul", ["t0", "t1"], ["t2"]),
        node("Conv", ["t2", "b"], ["t3"], pads=[1] * 4, group=32),
        node("Conv", ["t3", "c"], ["t4"]),
        node("Relu", ["t4"], ["t5"]),
        node("Concat", ["t2", "t5"], ["t6"], axis=1),
        node("Conv", ["t6", "d"], ["t7"], pads=[1] * 4),
        node("Add", ["t7", "t2"], ["t8"]),
        node("MaxPool", ["t8"], ["t9"], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4),
        node("ConvTranspose", ["t9", "e"], ["t10"], strides=[2, 2]),
        node("GlobalAveragePool", ["t10"], ["y"]),
        node("Softmax", ["t10"], ["z"], axis=1),
    ]
    initializers = [numpy_helper.from_array(weight, name) for name, weight in weights.items()]
    shape = [batch, 3, size or "height", size or "width"]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("y", "z", "t5")],
        initializers,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def session(level, *, programs, batch="batch"):
    options = ort.SessionOptions()
    options.graph_optimization_level = level
    options.add_session_config_entry("session.disable_programs", "0" if programs else "1")
    return ort.InferenceSession(network(batch), options)


LEVELS = ort.GraphOptimizationLevel


@pytest.mark.parametrize("programs", [True, False])
@pytest.mark.parametrize("level", [LEVELS.ORT_DISABLE_ALL, LEVELS.ORT_ENABLE_BASIC, LEVELS.ORT_ENABLE_ALL])
def test_sessions_of_changing_sizes(level, programs):
    import onnxruntime

    theirs = onnxruntime.InferenceSession(network("batch"), providers=["CPUExecutionProvider"])
    ours = session(level, programs=programs)
    for shape in [(1, 3, 32, 32), (2, 3, 40, 24), (1, 3, 32, 32), (1, 3, 32, 32), (1, 3, 64, 66), (2, 3, 40, 24)]:
        x = random(np.random.default_rng(shape[2]), *shape)
        results = ours.run(None, {"x": x})
        for found, expected in zip(results, theirs.run(None, {"x": x}), strict=True):
            assert found.flags.c_contiguous
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("op_type", ["Conv", "ConvTranspose", "com.microsoft::FusedConv"])
def test_weights_fed_in_any_shape(op_type):
    domain, _, name = op_type.rpartition("::")
    inputs = [helper.make_tensor_value_info(each, TensorProto.FLOAT, [f"{each}{axis}" for axis in range(4)]) for each in "xw"]
    nodes = [helper.make_node(name, ["x", "w"], ["y"], domain=domain, **({"activation": "Relu"} if domain else {}))]
    graph = helper.make_graph(nodes, "graph", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(MICROSOFT, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    ours, theirs = ort.InferenceSession(model), onnxruntime.InferenceSession(model)
    rng = np.random.default_rng(3)
    for x_shape, w_shape in [((1, 3, 8, 9), (3, 3, 3, 3)), ((2, 5, 40, 40), (5, 5, 5, 2)), ((1, 3, 8, 9), (3, 3, 3, 3))]:
        feeds = {"x": random(rng, *x_shape), "w": random(rng, *w_shape)}
        np.testing.assert_allclose(ours.run(None, feeds)[0], theirs.run(None, feeds)[0], **FLOAT_TOLERANCE)


def test_one_session_on_many_threads():
    ours = session(LEVELS.ORT_ENABLE_ALL, programs=True)
    inputs = [random(np.random.default_rng(seed), 1, 3, 32 + 8 * (seed % 2), 32) for seed in range(6)]
    expected = [ours.run(None, {"x": x}) for x in inputs]

    def task(number):
        return [ours.run(None, {"x": inputs[number % 6]}) for _ in range(10)]

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for number, results in enumerate(pool.map(task, range(12))):
            for result in results:
                for found, wanted in zip(result, expected[number % 6], strict=True):
                    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_without_the_library():
    script = (
        "import numpy as np, sys, ort_sdk as ort\n"
        "model = sys.stdin.buffer.read()\n"
        "y = ort.InferenceSession(model).run(None, {'x': np.full((1, 3, 32, 32), .5, np.float32)})[1]\n"
        "assert not any('libdnnl' in line for line in open('/proc/self/maps')), 'loaded'\n"
        "print(repr(float(np.abs(y).sum())))\n"
    )
    environment = {"ORT_SDK_CPU_DISABLE": "onednn", "PATH": ""}
    done = subprocess.run([sys.executable, "-c", script], input=network(1), capture_output=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr.decode()
    ours = session(LEVELS.ORT_ENABLE_ALL, programs=True, batch=1)
    y = ours.run(None, {"x": np.full((1, 3, 32, 32), 0.5, np.float32)})[1]
    assert float(done.stdout) == pytest.approx(float(np.abs(y).sum()), rel=1e-5)


def test_packed_weights_are_kept_in_files(tmp_path):
    options = ort.SessionOptions()
    options.add_session_config_entry("session.prepack_cache_dir", str(tmp_path))
    x = random(np.random.default_rng(9), 1, 3, 64, 64)
    expected = session(LEVELS.ORT_ENABLE_ALL, programs=True, batch=1).run(None, {"x": x})
    for _ in range(2):
        results = ort.InferenceSession(network(1), options).run(None, {"x": x})
        for found, wanted in zip(results, expected, strict=True):
            np.testing.assert_array_equal(found, wanted)
    assert any(tmp_path.rglob("*"))
