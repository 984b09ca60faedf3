"""Bodies of control flow on devices: what they carry and gather stays there, and only conditions and results are read."""

import threading

import numpy as np
import onnx
import onnx.parser
import pyopencl as cl
import pytest

import ort_sdk as ort

pytestmark = pytest.mark.opencl

UNTIL = """g (float[n, 4] x) => (float[n, 4] y, float[k, n, 4] z) {
    yes = Constant <value = bool {1}> ()
    last, all = Loop (, yes, x) <body = b (int64 i, bool going, float[n, 4] state) =>
        (bool goes_on, float[n, 4] next, float[n, 4] each) {
            next = Mul (state, half)
            most = ReduceMax <keepdims = 0> (next)
            goes_on = Greater (most, limit)
            each = Sin (next)
    }>
    y = Neg (last)
    z = Cos (all)
}"""
COUNTED = """g (int64 trips, float[n, 4] x) => (float[n, 4] y, float[k, n, 4] z) {
    yes = Constant <value = bool {1}> ()
    last, all = Loop (trips, yes, x) <body = b (int64 i, bool going, float[n, 4] state) =>
        (bool going, float[n, 4] next, float[n, 4] each) {
            next = Mul (state, half)
            wave = Sin (next)
            each = MatMul (wave, square)
    }>
    y = Neg (last)
    z = Cos (all)
}"""
SCANNED = """g (float[t, n, 4] x) => (float[n, 4] y, float[n, t, 4] z) {
    first = ReduceSum <keepdims = 0> (x, axis)
    last, all = Scan (first, x) <num_scan_inputs = 1, scan_output_axes = [1], body = b (
        float[n, 4] state, float[n, 4] row
    ) => (float[n, 4] next, float[n, 4] each) {
        sum = Add (state, row)
        next = Sin (sum)
        each = MatMul (next, square)
    }>
    y = Neg (last)
    z = Cos (all)
}"""
CHOSEN = """g (bool c, float[n, 4] x) => (float[n, 4] y) {
    a = Sin (x)
    b = If (c) <
        then_branch = t () => (float[n, 4] o) { p = Neg (a)  q = Exp (p)  o = MatMul (q, square) },
        else_branch = e () => (float[n, 4] u) { p = Exp (a)  u = Mul (p, x) }
    >
    y = Cos (b)
}"""


def _model(graph):
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {graph}')
    constants = {
        "half": np.float32(0.5).reshape(()),
        "limit": np.float32(0.3).reshape(()),
        "square": np.arange(16, dtype=np.float32).reshape(4, 4) / 16,
        "axis": np.array([0]),
    }
    read = {name for node in model.graph.node for name in str(node).split('"')}
    model.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in constants.items() if name in read)
    return model.SerializeToString()


@pytest.fixture
def copies(monkeypatch):
    """Copies to the device and from it by this thread, since the list was cleared; sessions make programs on others."""
    found, own, thread = [], cl.enqueue_copy, threading.get_ident()

    def enqueue_copy(queue, target, source, **options):
        if threading.get_ident() == thread:
            found.append("down" if isinstance(target, np.ndarray) else "up")
        return own(queue, target, source, **options)

    monkeypatch.setattr(cl, "enqueue_copy", enqueue_copy)
    return found


def _x(seed, *shape):
    return np.random.default_rng(seed).random(shape).astype(np.float32)


CASES = {
    # conditions of two iterations, and the results
    "until": (UNTIL, [{"x": np.full((3, 4), 1 + seed % 2, np.float32)} for seed in range(7)], (1, 4)),
    "counted": (COUNTED, [{"trips": np.array(3), "x": _x(seed, 3, 4)} for seed in range(6)], (1, 2)),
    # whole for the sum, and row by row
    "scanned": (SCANNED, [{"x": _x(seed, 3, 2, 4)} for seed in range(6)], (4, 2)),
    "chosen": (CHOSEN, [{"c": np.array(seed % 2 == 0), "x": _x(seed, 3, 4)} for seed in range(8)], (1, 1)),
}


@pytest.mark.parametrize("programs", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_values_of_bodies_stay_on_the_device(providers, copies, case, programs):
    graph, feeds, expected = CASES[case]
    options = ort.SessionOptions()
    options.add_session_config_entry("session.disable_programs", "0" if programs else "1")
    session = ort.InferenceSession(_model(graph), options, providers=providers)
    reference = ort.InferenceSession(_model(graph), providers=["CPUExecutionProvider"])
    for each in feeds:
        wanted = reference.run(None, each)
        copies.clear()
        for one, other in zip(session.run(None, each), wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    assert (copies.count("up"), copies.count("down")) == expected


def test_no_iterations(providers):
    session = ort.InferenceSession(_model(COUNTED), providers=providers)
    for trips in (0, 2, 0, 1, 0):
        y, z = session.run(None, {"trips": np.array(trips), "x": np.ones((3, 4), np.float32)})
        np.testing.assert_array_equal(y, np.full((3, 4), -(0.5**trips), np.float32))
        assert z.shape[0] == trips
