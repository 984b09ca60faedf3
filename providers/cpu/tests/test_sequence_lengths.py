"""LSTM, GRU and RNN that are told how long sequences are, beside the shared set."""

from types import SimpleNamespace

import numpy as np
import pytest

from ort_sdk.api import InvalidArgument, NodeArg


@pytest.mark.parametrize(("op_type", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
@pytest.mark.parametrize("lengths", [[6, 6], [6, 3], [0, 6]], ids=str)
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("hidden", [5, 64])
def test_lengths(run_both, op_type, gates, lengths, direction, hidden):
    rng = np.random.default_rng(0)
    directions = 2 if direction == "bidirectional" else 1
    draw = lambda *shape: rng.standard_normal(shape, dtype=np.float32) / 4  # noqa: E731
    x, b = draw(6, 2, 24), draw(directions, 2 * gates * hidden)
    w, r = draw(directions, gates * hidden, 24), draw(directions, gates * hidden, hidden)
    given = (x, w, r, b, np.array(lengths, np.int32))
    wanted = (0, 1, 2) if op_type == "LSTM" else (0, 1)
    found, bound = run_both(op_type, *given, wanted=wanted, constants=(1, 2, 3), direction=direction, hidden_size=hidden)
    for one, other in zip(found, bound, strict=False):
        if one is not None:
            np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("lengths", [[-1, 6], [6, 9], [-1, 9]], ids=str)
@pytest.mark.parametrize("is_bound", [False, True])
@pytest.mark.parametrize("op_type", ["LSTM", "GRU", "RNN"])
def test_lengths_beyond_the_steps_are_refused(make_kernel, op_type, is_bound, lengths):
    """As onnxruntime refuses them; a bound call looks at them each time."""
    gates, draw = {"LSTM": 4, "GRU": 3, "RNN": 1}[op_type], np.random.default_rng(3).standard_normal
    shapes = ((6, 2, 24), (1, gates * 64, 24), (1, gates * 64, 64), (1, 2 * gates * 64))
    arrays = [draw(shape, dtype=np.float32) / 4 for shape in shapes]
    given = (*arrays, np.array([6, 3], np.int32))
    declared = (NodeArg("y", "tensor(float)", (6, 1, 2, 64)),)
    kernel = make_kernel(op_type, given, {"hidden_size": 64}, "", None, (1, 2, 3), declared)
    out = np.empty((6, 1, 2, 64), np.float32)
    slots = [SimpleNamespace(array=array, is_fixed=True) for array in (*given, out)]
    call = kernel.bind(slots[:-1], slots[-1:]) if is_bound else lambda: kernel.compute(*given)
    call()
    given[-1][...] = lengths
    with pytest.raises(InvalidArgument, match="sequence_lens"):
        call()
    given[-1][...] = [2, 6]
    call()


def test_lengths_may_change_between_runs(make_kernel):
    rng = np.random.default_rng(1)
    draw = lambda *shape: rng.standard_normal(shape, dtype=np.float32) / 4  # noqa: E731
    lengths = np.array([6], np.int32)
    given = (draw(6, 1, 24), draw(1, 192, 24), draw(1, 192, 64), draw(1, 384), lengths)
    declared = (NodeArg("y", "tensor(float)", (6, 1, 1, 64)),)
    kernel = make_kernel("GRU", given, {"hidden_size": 64}, "", None, (1, 2, 3), declared)
    out = np.empty((6, 1, 1, 64), np.float32)
    call = kernel.bind(
        [SimpleNamespace(array=array, is_fixed=True) for array in given], [SimpleNamespace(array=out, is_fixed=True)]
    )
    for length in (6, 2, 6, 5):
        lengths[0] = length
        call()
        expected = kernel.compute(*given)
        expected = expected[0] if isinstance(expected, tuple) else expected
        np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("function", ["Tanh", "Relu"])
@pytest.mark.parametrize("steps", [3, 40])
@pytest.mark.parametrize("directions", [1, 2])
def test_activations_of_simple_recurrence(run_both, function, steps, directions):
    rng = np.random.default_rng(2)
    draw = lambda *shape: rng.standard_normal(shape, dtype=np.float32) / 8  # noqa: E731
    given = (draw(steps, 3, 24), draw(directions, 70, 24), draw(directions, 70, 70), draw(directions, 140))
    options = {"direction": "bidirectional" if directions == 2 else "reverse", "activations": [function] * directions}
    found, bound = run_both("RNN", *given, wanted=(0, 1), constants=(1, 2, 3), hidden_size=70, **options)
    for one, other in zip(found, bound, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-5)
