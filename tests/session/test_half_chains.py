"""Chains of float16 and bfloat16 operators: as exact as with float in between, whatever the level and the way to run."""

import tracemalloc

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from ort_sdk_cpu.platform import libraries
from ort_sdk_cpu.platform.cpu_features import InstructionSet, instruction_set

import ort_sdk as ort
from ort_sdk.plugins import plugin_manager
from ort_sdk.testing.strict.provider import STRICT_PROVIDER, StrictProvider
from tests.models_for_tests import model_bytes, value

node = helper.make_node
LEVELS = [0, 1, 2, 99]
RUNS = 3  # the first is step by step, the second makes the program, the third replays it
DTYPES = {TensorProto.FLOAT16: np.dtype(np.float16), TensorProto.BFLOAT16: np.dtype(ml_dtypes.bfloat16)}
WIDTH = 16


def _perceptron():
    nodes = []
    source = "x"
    for layer, activation in enumerate(["Relu", "Tanh", "Gelu", "Sigmoid"]):
        nodes += [
            node("MatMul", [source, f"w{layer}"], [f"m{layer}"]),
            node("Add", [f"m{layer}", f"b{layer}"], [f"a{layer}"]),
            node(activation, [f"a{layer}"], [f"r{layer}"]),
        ]
        source = f"r{layer}"
    weights = {f"w{layer}": (WIDTH, WIDTH) for layer in range(4)} | {f"b{layer}": (WIDTH,) for layer in range(4)}
    return [*nodes, node("Mul", [source, "b0"], ["y"])], (8, WIDTH), weights


def _attention():
    nodes = []
    for part, order in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
        nodes += [
            node("MatMul", ["x", f"{part}w"], [f"{part}m"]),
            node("Reshape", [f"{part}m", "heads"], [f"{part}r"]),
            node("Transpose", [f"{part}r"], [part], perm=order),
        ]
    nodes += [
        node("MatMul", ["q", "k"], ["scores"]),
        node("Where", ["mask", "scores", "low"], ["masked"]),
        node("Softmax", ["masked"], ["shares"]),
        node("MatMul", ["shares", "v"], ["mixed"]),
        node("Transpose", ["mixed"], ["back"], perm=[0, 2, 1, 3]),
        node("Reshape", ["back", "flat"], ["joined"]),
        node("Add", ["joined", "x"], ["sum"]),
        node("LayerNormalization", ["sum", "scale"], ["y"]),
    ]
    return nodes, (1, 8, WIDTH), {f"{part}w": (WIDTH, WIDTH) for part in "qkv"} | {"scale": (WIDTH,), "low": ()}


def _convolution():
    nodes = [
        node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        node("InstanceNormalization", ["c", "g", "b"], ["n"]),
        node("Relu", ["n"], ["r"]),
        node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Split", ["p"], ["left", "right"], axis=1, num_outputs=2),
        node("Concat", ["right", "left"], ["both"], axis=1),
        node("Conv", ["both", "w2"], ["d"]),
        node("GlobalAveragePool", ["d"], ["y"]),
    ]
    return nodes, (1, 4, 8, 8), {"w": (6, 4, 3, 3), "w2": (4, 6, 1, 1), "g": (6,), "b": (6,)}


def _interpolation():
    nodes = [
        node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        node("Resize", ["c", "region", "scales"], ["r"], mode="linear"),
        node("Concat", ["r", "x2"], ["both"], axis=1),
        node("Conv", ["both", "w2"], ["y"]),
    ]
    return nodes, (1, 4, 8, 8), {"w": (3, 4, 3, 3), "w2": (4, 6, 1, 1), "x2": (1, 3, 16, 12)}


CHAINS = {"perceptron": _perceptron, "attention": _attention, "convolution": _convolution, "interpolation": _interpolation}


def _chain(name, element_type):
    """Model, feed, and the same model and feed in float."""
    nodes, shape, weights = CHAINS[name]()
    generator = np.random.default_rng(len(name))
    dtype = DTYPES[element_type]
    fixed = {
        "heads": np.array([1, 8, 2, WIDTH // 2]),
        "flat": np.array([1, 8, WIDTH]),
        "mask": np.tril(np.ones((8, 8), bool)),
        "region": np.zeros(0, np.float16),
        "scales": np.array([1, 1, 2, 1.5], np.float32),
    }
    arrays = {key: generator.standard_normal(size) * 0.4 for key, size in weights.items()}
    half = {key: np.asarray(array).astype(dtype) for key, array in arrays.items()}
    read = {source for inner in nodes for source in inner.input}
    fixed = {key: array for key, array in fixed.items() if key in read}
    feed = generator.standard_normal(shape).astype(dtype)
    models = [
        model_bytes(nodes, [value("x", shape, kind)], [value("y", None, kind)], tensors | fixed, opset=22)
        for kind, tensors in (
            (element_type, half),
            (TensorProto.FLOAT, {key: array.astype(np.float32) for key, array in half.items()}),
        )
    ]
    return models[0], feed, models[1], feed.astype(np.float32)


def _session(model, level=99, *, programs=True, providers=("CPUExecutionProvider",)):
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel(level)
    options.add_session_config_entry("session.disable_programs", "0" if programs else "1")
    return ort.InferenceSession(model, options, providers=list(providers))


def _reference(model, feed):
    return onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"x": feed})[0]


def _assert_rounded_once(actual, exact, dtype):
    """Each element is the nearest of its type to the exact one, but for float's own error."""
    assert actual.dtype == dtype
    bits = np.finfo(dtype).nmant if dtype == np.float16 else 7
    step = np.exp2(np.floor(np.log2(np.maximum(np.abs(exact), 1e-30))) - bits)
    np.testing.assert_array_less(np.abs(actual.astype(np.float32) - exact), 0.5 * step + 4e-6 * np.abs(exact).max())


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("programs", [True, False])
@pytest.mark.parametrize("element_type", DTYPES)
@pytest.mark.parametrize("name", CHAINS)
def test_a_chain_is_rounded_once(name, element_type, programs, level):
    model, feed, float_model, float_feed = _chain(name, element_type)
    exact = _reference(float_model, float_feed)
    session = _session(model, level, programs=programs)
    for _ in range(RUNS):
        _assert_rounded_once(session.run(None, {"x": feed})[0], exact, DTYPES[element_type])


@pytest.mark.parametrize("name", CHAINS)
def test_a_chain_is_as_exact_as_onnxruntimes(name):
    model, feed, float_model, float_feed = _chain(name, TensorProto.FLOAT16)
    exact = _reference(float_model, float_feed)
    theirs = np.abs(_reference(model, feed).astype(np.float32) - exact).max()
    ours = np.abs(_session(model).run(None, {"x": feed})[0].astype(np.float32) - exact).max()
    assert ours <= theirs * 1.01 + 1e-6


@pytest.mark.parametrize("name", CHAINS)
def test_another_device_computes_the_same(name):
    model, feed, float_model, float_feed = _chain(name, TensorProto.FLOAT16)
    plugin_manager().register(StrictProvider())
    try:
        session = _session(model, providers=(STRICT_PROVIDER, "CPUExecutionProvider"))
        for _ in range(RUNS):
            _assert_rounded_once(session.run(None, {"x": feed})[0], _reference(float_model, float_feed), np.dtype(np.float16))
        assert {row.provider for row in session.placements()} == {STRICT_PROVIDER}
    finally:
        plugin_manager().unregister(STRICT_PROVIDER)


def test_large_values_between_operators_do_not_overflow():
    model = model_bytes(
        [node("Mul", ["x", "x"], ["a"]), node("Mul", ["a", "c"], ["y"])],
        [value("x", [1], TensorProto.FLOAT16)],
        [value("y", [1], TensorProto.FLOAT16)],
        {"c": np.array([0.5], np.float16)},
    )
    feed = np.array([300], np.float16)
    for level in LEVELS:
        assert _session(model, level).run(None, {"x": feed})[0] == _reference(model, feed) == 45000


THIRD = np.array([1.0 / 3], np.float16)


def _products(feed, *, rounded):
    """feed / 3 / 3, rounded to half in between or not."""
    third = THIRD.astype(np.float32)
    between = feed.astype(np.float32) * third
    return ((between.astype(np.float16) if rounded else between).astype(np.float32) * third).astype(np.float16)


@pytest.mark.parametrize("level", LEVELS)
def test_a_pair_of_casts_that_quantizes_rounds(level):
    """float made half and float again is half."""
    nodes = [
        node("Mul", ["x", "third"], ["a"]),
        node("Cast", ["a"], ["down"], to=TensorProto.FLOAT16),
        node("Cast", ["down"], ["up"], to=TensorProto.FLOAT),
        node("Mul", ["up", "third"], ["b"]),
        node("Cast", ["b"], ["y"], to=TensorProto.FLOAT16),
    ]
    outputs = [value("y", [512], TensorProto.FLOAT16)]
    model = model_bytes(nodes, [value("x", [512])], outputs, {"third": THIRD.astype(np.float32)})
    feed = np.random.default_rng(0).standard_normal(512).astype(np.float32)
    assert (_products(feed, rounded=True) != _products(feed, rounded=False)).any()
    session = _session(model, level)
    for _ in range(RUNS):
        np.testing.assert_array_equal(session.run(None, {"x": feed})[0], _products(feed, rounded=True))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("middle", [TensorProto.FLOAT, TensorProto.DOUBLE])
def test_a_pair_of_casts_that_loses_nothing(middle, level):
    """A half value made float and half again is cast as the model says, until the optimizer takes the casts out."""
    half = TensorProto.FLOAT16
    nodes = [
        node("Mul", ["x", "third"], ["a"]),
        node("Cast", ["a"], ["up"], to=middle),
        node("Cast", ["up"], ["down"], to=half),
        node("Mul", ["down", "third"], ["y"]),
    ]
    model = model_bytes(nodes, [value("x", [512], half)], [value("y", [512], half)], {"third": THIRD})
    feed = np.random.default_rng(0).standard_normal(512).astype(np.float16)
    expected = _products(feed, rounded=True) if level == 0 else _reference(model, feed)
    session = _session(model, level)
    for _ in range(RUNS):
        np.testing.assert_array_equal(session.run(None, {"x": feed})[0], expected)


@pytest.mark.parametrize("level", LEVELS)
def test_a_cast_of_a_half_value_reads_it_rounded(level):
    half = TensorProto.FLOAT16
    nodes = [node("Mul", ["x", "third"], ["a"]), node("Mul", ["a", "third"], ["b"]), node("Cast", ["a"], ["y"], to=1)]
    outputs = [value("y", [512]), value("b", [512], half)]
    model = model_bytes(nodes, [value("x", [512], half)], outputs, {"third": THIRD})
    feed = np.random.default_rng(0).standard_normal(512).astype(np.float16)
    product = feed.astype(np.float32) * THIRD.astype(np.float32)
    session = _session(model, level)
    for _ in range(RUNS):
        y, b = session.run(None, {"x": feed})
        np.testing.assert_array_equal(y, product.astype(np.float16).astype(np.float32))
        np.testing.assert_array_equal(b, _products(feed, rounded=False))


@pytest.mark.parametrize("programs", [True, False])
def test_values_carried_by_a_loop_are_rounded_in_each_turn(programs):
    body = helper.make_graph(
        [node("Mul", ["s", "factor"], ["p"]), node("Add", ["p", "factor"], ["r"])],
        "body",
        [value("i", [], TensorProto.INT64), value("c", [], TensorProto.BOOL), value("s", [64], TensorProto.FLOAT16)],
        [value("c", [], TensorProto.BOOL), value("r", [64], TensorProto.FLOAT16), value("p", [64], TensorProto.FLOAT16)],
    )
    nodes = [
        node("Mul", ["x", "third"], ["factor"]),
        node("Loop", ["count", "", "factor"], ["last", "all"], body=body),
        node("Mul", ["last", "factor"], ["y"]),
    ]
    half = TensorProto.FLOAT16
    third = np.array([1.0 / 3], np.float16)
    model = model_bytes(
        nodes,
        [value("x", [64], half)],
        [value("y", None, half), value("all", None, half)],
        {"third": third, "count": np.array(4)},
    )
    feed = np.random.default_rng(0).standard_normal(64).astype(np.float16)
    wide = feed.astype(np.float32) * third.astype(np.float32)
    factor = wide.astype(np.float16).astype(np.float32)
    state, scanned = factor, []
    for _ in range(4):
        product = state * factor
        scanned.append(product.astype(np.float16))
        state = (product + factor).astype(np.float16).astype(np.float32)
    session = _session(model, programs=programs)
    for _ in range(RUNS):
        y, every = session.run(None, {"x": feed})
        np.testing.assert_array_equal(every, np.stack(scanned))
        np.testing.assert_array_equal(y, (state * wide).astype(np.float16))


@pytest.mark.parametrize("level", LEVELS)
def test_saved_models_stay_onnxs(tmp_path, level):
    model, feed, *_ = _chain("attention", TensorProto.FLOAT16)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel(level)
    options.optimized_model_filepath = str(tmp_path / "saved.onnx")
    wanted = ort.InferenceSession(model, options).run(None, {"x": feed})[0]
    saved = (tmp_path / "saved.onnx").read_bytes()
    onnx.checker.check_model(onnx.ModelProto.FromString(saved), full_check=level < 2)
    np.testing.assert_array_equal(_session(saved, level).run(None, {"x": feed})[0], wanted)
    np.testing.assert_allclose(_reference(saved, feed), wanted, rtol=1e-2, atol=1e-2)


def test_results_go_into_the_callers_memory():
    model, feed, float_model, float_feed = _chain("perceptron", TensorProto.FLOAT16)
    session = _session(model)
    target = ort.OrtValue.ortvalue_from_numpy(np.zeros((8, WIDTH), np.float16))
    binding = session.io_binding()
    binding.bind_cpu_input("x", feed)
    binding.bind_ortvalue_output("y", target)
    for _ in range(RUNS):
        session.run_with_iobinding(binding)
        _assert_rounded_once(target.numpy(), _reference(float_model, float_feed), np.dtype(np.float16))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("programs", [True, False])
def test_weights_are_not_held_in_float(tmp_path, level, programs):
    """Arrays are counted: mapped weights are none, and what a run widens, if anything, is gone after it."""
    size, half = 512, TensorProto.FLOAT16
    weights = np.random.default_rng(0).standard_normal((size, size)).astype(np.float16)
    nodes = [node("MatMul", ["x", "w"], ["a"]), node("Relu", ["a"], ["b"]), node("MatMul", ["b", "w"], ["y"])]
    model = model_bytes(nodes, [value("x", [2, size], half)], [value("y", None, half)], {"w": weights})
    onnx.save(onnx.ModelProto.FromString(model), tmp_path / "m.onnx", save_as_external_data=True, location="w", size_threshold=0)
    feed = np.ones((2, size), np.float16)
    session = _session(model, level, programs=programs)
    for _ in range(RUNS):  # imports what runs need, a compiler among it
        session.run(None, {"x": feed})
    tracemalloc.start()
    try:
        session = _session(tmp_path / "m.onnx", level, programs=programs)
        for _ in range(RUNS):
            session.run(None, {"x": feed})
        held_bytes, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held_bytes < weights.nbytes
    is_read_in_place = libraries.compiled_kernels().is_usable and instruction_set() >= InstructionSet.AVX2
    assert (most_bytes > 2 * weights.nbytes) is not is_read_in_place


def test_float_values_are_shown_as_such():
    model, *_ = _chain("perceptron", TensorProto.FLOAT16)
    state = _session(model, 0)._state
    kept = state.assignment.kept_in_float
    assert len(kept) == 12
    assert {state.model.graph.node_arg(name).type for name in kept} == {"tensor(float)"}
