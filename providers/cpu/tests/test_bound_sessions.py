"""Sessions replayed with bound kernels: equal to step-by-step runs, nothing shared with users, memory flat."""

import tracemalloc

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from ort_sdk_cpu.onednn import library as onednn_library

import ort_sdk as ort
from ort_sdk.run.program.lowering.liveness import COPIED_BYTES

node = helper.make_node


def _value(name, shape, element_type=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, element_type, shape)


def _model(nodes, inputs, outputs, constants):
    initializers = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "graph", inputs, outputs, initializers)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


def _session(model, *, programs=True, prepacking=True, level=ort.GraphOptimizationLevel.ORT_ENABLE_ALL):
    options = ort.SessionOptions()
    options.graph_optimization_level = level
    options.add_session_config_entry("session.disable_programs", "0" if programs else "1")
    options.add_session_config_entry("session.disable_prepacking", "0" if prepacking else "1")
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _random(*shape, seed=0):
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


def _conv_net():
    weights = {
        "w1": _random(8, 3, 3, 3),
        "b1": _random(8),
        "w2": _random(8, 1, 3, 3),
        "w3": _random(16, 8, 1, 1),
        "scale": _random(16) ** 2,
        "bias": _random(16),
        "mean": _random(16, seed=1),
        "variance": _random(16, seed=2) ** 2 + 1,
        "dense": _random(16, 10),
    }
    nodes = [
        node("Conv", ["x", "w1", "b1"], ["c1"], pads=[1, 1, 1, 1]),
        node("Relu", ["c1"], ["r1"]),
        node("MaxPool", ["r1"], ["p1"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", ["p1", "w2"], ["c2"], pads=[1, 1, 1, 1], group=8),
        node("Add", ["c2", "p1"], ["a2"]),
        node("Conv", ["a2", "w3"], ["c3"]),
        node("BatchNormalization", ["c3", "scale", "bias", "mean", "variance"], ["n3"]),
        node("HardSwish", ["n3"], ["h3"]),
        node("GlobalAveragePool", ["h3"], ["g"]),
        node("Flatten", ["g"], ["f"]),
        node("MatMul", ["f", "dense"], ["m"]),
        node("Softmax", ["m"], ["y"]),
    ]
    return _model(nodes, [_value("x", ["n", 3, 32, 32])], [_value("y", ["n", 10]), _value("h3", None)], weights)


def _transformer_block():
    width, heads = 32, 4
    constants = {name: _random(width, width, seed=seed) / 6 for seed, name in enumerate("qkvo")}
    constants |= {"up": _random(width, 64) / 6, "down": _random(64, width) / 8, "gain": _random(width), "shift": _random(width)}
    constants |= {"split": np.array([0, 0, heads, -1]), "merge": np.array([0, 0, -1]), "root": np.array(8**0.5, np.float32)}
    nodes = []
    for name in "qkv":
        nodes += [node("MatMul", ["x", name], [f"{name}1"]), node("Reshape", [f"{name}1", "split"], [f"{name}2"])]
        nodes.append(node("Transpose", [f"{name}2"], [f"{name}3"], perm=[0, 2, 3, 1] if name == "k" else [0, 2, 1, 3]))
    nodes += [
        node("MatMul", ["q3", "k3"], ["scores"]),
        node("Div", ["scores", "root"], ["scaled"]),
        node("Add", ["scaled", "mask"], ["masked"]),
        node("Softmax", ["masked"], ["weights"]),
        node("MatMul", ["weights", "v3"], ["mixed"]),
        node("Transpose", ["mixed"], ["turned"], perm=[0, 2, 1, 3]),
        node("Reshape", ["turned", "merge"], ["merged"]),
        node("MatMul", ["merged", "o"], ["projected"]),
        node("Add", ["projected", "x"], ["sum"]),
        node("LayerNormalization", ["sum", "gain", "shift"], ["normal"]),
        node("MatMul", ["normal", "up"], ["wide"]),
        node("Gelu", ["wide"], ["bent"], domain="com.microsoft"),
        node("MatMul", ["bent", "down"], ["narrow"]),
        node("SkipLayerNormalization", ["narrow", "normal", "gain", "shift"], ["y", "", "", "skip"], domain="com.microsoft"),
        node("Concat", ["y", "skip"], ["both"], axis=-1),
    ]
    inputs = [_value("x", ["b", "s", width]), _value("mask", ["b", 1, 1, "s"])]
    return _model(nodes, inputs, [_value("y", None), _value("both", None)], constants)


def _conv_feeds(seed, size):
    return {"x": _random(size, 3, 32, 32, seed=seed)}


def _block_feeds(seed, size):
    return {
        "x": _random(size, 6, 32, seed=seed),
        "mask": np.where(_random(size, 1, 1, 6, seed=seed) > 1, -1e9, 0).astype(np.float32),
    }


VIEWS = {"Flatten", "Reshape", "Transpose"}
"""Operators that hand on views of their input: nothing to bind."""

MODELS = {"convolutions": (_conv_net, _conv_feeds), "transformer": (_transformer_block, _block_feeds)}


@pytest.mark.parametrize("level", ["ORT_DISABLE_ALL", "ORT_ENABLE_ALL"])
@pytest.mark.parametrize("name", MODELS)
def test_replayed_runs_equal_runs_step_by_step(name, level):
    make, feeds_of = MODELS[name]
    level = getattr(ort.GraphOptimizationLevel, level)
    replayed, plain = _session(make(), level=level), _session(make(), programs=False, level=level)
    held = []
    for seed in range(12):
        feeds = feeds_of(seed, 1 + seed % 3)
        held.append((replayed.run(None, feeds), plain.run(None, feeds)))
    for row in replayed.program_report():
        # A view that cannot be one is a copy, which is bound, too.
        assert sum(op_type not in VIEWS for op_type in row.operators) <= row.bound_count <= len(row.operators)
    for found, expected in held:  # compared at the end: later runs must not have overwritten what a user holds
        for value, wanted in zip(found, expected, strict=True):
            np.testing.assert_allclose(value, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_feeds_of_any_strides_are_read_and_never_written(name):
    make, feeds_of = MODELS[name]
    session = _session(make())
    feeds = feeds_of(0, 2)
    expected = session.run(None, feeds)
    for _ in range(2):
        for layout in (np.asfortranarray, lambda array: np.repeat(array, 2, axis=-1)[..., ::2], np.copy):
            turned = {name: layout(array) for name, array in feeds.items()}
            for array in turned.values():
                array.flags.writeable = False
            for value, wanted in zip(session.run(None, turned), expected, strict=True):
                np.testing.assert_allclose(value, wanted, rtol=1e-4, atol=1e-5)


def test_results_belong_to_the_user_and_those_that_kernels_write_are_aligned():
    """Small ones are NumPy's copies of buffers, which are aligned."""
    session = _session(_conv_net())
    seen = set()
    results = [session.run(None, _conv_feeds(0, 16)) for _ in range(6)]
    expected = results[0][0].copy()
    for outputs in results[2:]:
        for value in outputs:
            assert value.flags.writeable
            assert value.nbytes <= COPIED_BYTES or value.ctypes.data % 64 == 0
            seen.add(value.ctypes.data)
            value.fill(0)
    assert len(seen) == 8
    assert max(value.nbytes for value in results[0]) > COPIED_BYTES
    np.testing.assert_allclose(session.run(None, _conv_feeds(0, 16))[0], expected, rtol=1e-4)


def test_runs_of_a_bound_network_do_not_grow():
    session = _session(_conv_net())
    feeds = _conv_feeds(0, 2)
    for _ in range(4):
        session.run(None, feeds)
    tracemalloc.start()
    try:
        session.run(None, feeds)
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        for _ in range(100):
            session.run(None, feeds)
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # The intermediate values take 500 KB: they are in the arena, not allocated anew. The interpreter keeps some freed tuples.
    assert after - before < 200_000
    # Without oneDNN a convolution copies its windows in each run.
    assert peak - before < 400_000 or not onednn_library.is_available()


def _file_with_weights_at(path, misalignment):
    """A model of a file in which the first weight starts ``misalignment`` bytes past a multiple of four."""
    weights = {"w": _random(64, 32, 3, 3), "dense": _random(64, 300)}
    nodes = [
        node("Conv", ["x", "w"], ["c"]),
        node("GlobalAveragePool", ["c"], ["g"]),
        node("Flatten", ["g"], ["f"]),
        node("MatMul", ["f", "dense"], ["y"]),
    ]
    inputs, outputs = [_value("x", ["n", 32, 8, 8])], [_value("y", ["n", 300])]
    for length in range(1, 9):
        initializers = [numpy_helper.from_array(array, name) for name, array in weights.items()]
        graph = helper.make_graph(nodes, "g" * length, inputs, outputs, initializers)
        content = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
        if content.index(weights["w"].tobytes()) % 4 == misalignment:
            path.write_bytes(content)
            return weights
    raise AssertionError(misalignment)


@pytest.mark.parametrize("misalignment", range(4))
def test_weights_are_packed_where_they_are_not_aligned(tmp_path, misalignment):
    _file_with_weights_at(tmp_path / "model.onnx", misalignment)
    feeds = {"x": _random(2, 32, 8, 8)}
    packed, plain = (_session(str(tmp_path / "model.onnx"), prepacking=prepacking) for prepacking in (True, False))
    for _ in range(4):
        (expected,) = plain.run(None, feeds)
        np.testing.assert_allclose(packed.run(None, feeds)[0], expected, rtol=1e-5, atol=1e-5)


def test_packing_copies_a_weight_once(tmp_path):
    path = str(tmp_path / "model.onnx")
    weights = _file_with_weights_at(tmp_path / "model.onnx", 1)
    size = sum(array.nbytes for array in weights.values())
    feeds = {"x": _random(1, 32, 8, 8)}
    _session(path).run(None, feeds)  # modules that are imported on the way
    tracemalloc.start()
    try:
        sessions = [_session(path) for _ in range(3)]
        for session in sessions:
            session.run(None, feeds)
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert kept < 1.5 * size + 300_000
