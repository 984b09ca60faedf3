"""Convolutions of long signals, which are done a piece at a time."""

import gc
import weakref

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from ort_sdk_cpu.conv.onednn.tiled_1d import TILE, tiles_of
from ort_sdk_cpu.kernel.layouts import call
from ort_sdk_cpu.onednn.library import is_available

import ort_sdk as ort
from ort_sdk.testing.collection import only_new_objects

WINDOWS = [(7, 1, 1, (3, 3)), (3, 5, 1, (5, 5)), (5, 1, 2, (2, 2)), (8, 1, 4, (0, 3)), (3, 1, 1, (2, 0))]
"""Taps, dilation, stride, padding."""
SPREADING = [(16, 8, (4, 4)), (4, 2, (1, 1)), (10, 5, (3, 2)), (7, 3, (2, 2)), (4, 4, (0, 0)), (3, 2, (0, 0))]
"""Taps, stride, padding."""


@pytest.mark.parametrize("length", [2 * TILE - 1, 2 * TILE, 2 * TILE + 1, 3 * TILE + 77])
@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_pieces_are_made_of_what_lies_under_their_windows(window, length):
    taps, dilation, stride, (begin, end) = window
    reach = (taps - 1) * dilation + 1
    out_length = (length + begin + end - reach) // stride + 1
    found = tiles_of(length, out_length, reach, stride, begin, transposed=False)
    assert bool(found) == (out_length >= 2 * TILE)
    covered = np.zeros(out_length, int)
    for piece in found:
        covered[piece.out_start : piece.out_start + piece.out_count] += 1
        assert (piece.padded_size - reach) // stride + 1 == piece.out_count
        assert piece.start - piece.before == piece.out_start * stride - begin
        assert piece.start + piece.size <= length
    assert not found or covered.min() == 1
    assert len({piece.kind for piece in found}) <= 4
    assert len({(piece.padded_size, piece.begin, piece.end) for piece in found}) <= 1


@pytest.mark.parametrize("length", [TILE, 3 * TILE + 77])
@pytest.mark.parametrize("window", SPREADING, ids=str)
def test_pieces_get_all_windows_that_reach_them(window, length):
    taps, stride, (begin, end) = window
    out_length = (length - 1) * stride + taps - begin - end
    found = tiles_of(length, out_length, taps, stride, begin, transposed=True)
    covered = np.zeros(out_length, int)
    for piece in found:
        covered[piece.out_start : piece.out_start + piece.out_count] += 1
        assert (piece.padded_size - 1) * stride + taps - piece.begin - piece.end == piece.out_count
        first, last = piece.out_start + begin, piece.out_start + piece.out_count - 1 + begin
        reaching = [i for i in range(length) if i * stride <= last and i * stride + taps > first]
        assert (piece.start, piece.start + piece.size - 1) == (reaching[0], reaching[-1])
        assert piece.begin == first - (reaching[0] - piece.before) * stride
    assert covered.size == 0 or not found or covered.min() >= 1


def test_short_signals_and_such_that_do_not_fit_are_not_cut():
    assert tiles_of(100, 100, 3, 1, 1, transposed=False) == ()
    assert tiles_of(1 << 20, 1 << 20, 1 << 19, 1, 0, transposed=False) == ()
    assert tiles_of(1 << 20, 1 << 20, 3, 1, -1, transposed=False) == ()
    # Elements between windows that reach nowhere.
    assert tiles_of(1 << 12, 3 << 12, 2, 3, 0, transposed=True) == ()


@pytest.mark.skipif(not is_available(), reason="no oneDNN")
@pytest.mark.parametrize("length", [2 * TILE, 2 * TILE + 333])
@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("groups", [1, 4])
def test_long_signals(check, window, length, groups):
    taps, dilation, stride, pads = window
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, 16, length * stride), dtype=np.float32)
    w = rng.standard_normal((24, 16 // groups, taps), dtype=np.float32) / 8
    b = rng.standard_normal(24, dtype=np.float32)
    options = {"strides": [stride], "dilations": [dilation], "pads": [*pads], "group": groups, "kernel_shape": [taps]}
    for lying in (x, np.ascontiguousarray(x.transpose(0, 2, 1)).transpose(0, 2, 1)):
        check("Conv", lying, w, b, constants=(1, 2), tolerance=1e-5, **options)
        check("Conv", lying, w, tolerance=1e-5, **options)


@pytest.mark.skipif(not is_available(), reason="no oneDNN")
@pytest.mark.parametrize("length", [TILE, TILE + 33])
@pytest.mark.parametrize("window", SPREADING, ids=str)
def test_long_signals_spread(check, window, length):
    taps, stride, pads = window
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, 16, length), dtype=np.float32)
    w = rng.standard_normal((16, 8, taps), dtype=np.float32) / 8
    b = rng.standard_normal(8, dtype=np.float32)
    options = {"strides": [stride], "pads": [*pads], "kernel_shape": [taps]}
    for lying in (x, np.ascontiguousarray(x.transpose(0, 2, 1)).transpose(0, 2, 1)):
        check("ConvTranspose", lying, w, b, constants=(1, 2), tolerance=1e-5, **options)


@pytest.mark.skipif(not is_available(), reason="no oneDNN")
def test_activation_and_addend_are_cut_alike(check):
    rng = np.random.default_rng(0)
    x, z = (rng.standard_normal((1, 16, 3 * TILE + 5), dtype=np.float32) for _ in range(2))
    w, b = rng.standard_normal((16, 16, 3), dtype=np.float32) / 8, rng.standard_normal(16, dtype=np.float32)
    options = {"pads": [1, 1], "kernel_shape": [3], "activation": "Relu"}
    check("FusedConv", x, w, b, z, domain="com.microsoft", constants=(1, 2), tolerance=1e-5, **options)


def _layered_model(length):
    """Convolutions of different padding and numbers of channels, one behind the other, in model bytes."""
    rng = np.random.default_rng(0)
    layers = [
        ("Conv", (48, 16, 7), {"pads": [3, 3]}),
        ("ConvTranspose", (48, 40, 4), {"pads": [1, 1], "strides": [2]}),
        ("Conv", (24, 40, 3), {"pads": [9, 9], "dilations": [9]}),
    ]
    nodes, weights = [], []
    for place, (op_type, shape, attributes) in enumerate(layers):
        weights.append(numpy_helper.from_array(rng.standard_normal(shape, dtype=np.float32) / 8, f"w{place}"))
        nodes.append(helper.make_node(op_type, [f"x{place}", f"w{place}"], [f"x{place + 1}"], **attributes))
    ends = [("x0", [1, 16, length]), (f"x{len(layers)}", [1, 24, 2 * length])]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in ends]
    graph = helper.make_graph(nodes, "graph", values[:1], values[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10).SerializeToString()


@pytest.mark.skipif(not is_available(), reason="no oneDNN")
@pytest.mark.parametrize("has_copy_tasks", [True, False])
def test_zeros_are_written_anew_where_convolutions_share_working_memory(monkeypatch, has_copy_tasks):
    if not has_copy_tasks:
        monkeypatch.setattr(call, "task_copy", lambda _source, _target: None)
    length = 2 * TILE + 7
    model = _layered_model(length)
    session, reference = (each.InferenceSession(model, providers=["CPUExecutionProvider"]) for each in (ort, onnxruntime))
    rng = np.random.default_rng(1)
    for _ in range(3):
        x = rng.standard_normal((1, 16, length), dtype=np.float32)
        np.testing.assert_allclose(session.run(None, {"x0": x})[0], reference.run(None, {"x0": x})[0], rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(not is_available(), reason="no oneDNN")
@only_new_objects()
def test_the_signal_of_the_first_run_is_not_kept():
    length = 2 * TILE + 7
    session = ort.InferenceSession(_layered_model(length), providers=["CPUExecutionProvider"])
    x = np.ones((1, 16, length), np.float32)
    session.run(None, {"x0": x})
    kept = weakref.ref(x)
    del x
    gc.collect()
    assert kept() is None
