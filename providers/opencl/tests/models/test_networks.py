"""Small versions of the models that people run, against onnxruntime: results, what stays on the host, and what a run costs."""

import dataclasses
import functools

import numpy as np
import onnxruntime
import pytest

import ort_sdk as ort

from . import networks
from .counts import counted

pytestmark = pytest.mark.opencl

DEVICE = "OpenCLExecutionProvider"
OF_SHAPES = {"Shape", "Gather", "Unsqueeze", "Concat", "Slice", "Cast"}
"""Operators that may be left to the host: they compute a few numbers of shapes."""
TOLERANCE = 2e-4
"""Of a network's results, over their largest element."""
QUANTIZED_TOLERANCE = 2e-2
"""Of some layers of sums of 8 bits, which are rounded to another number now and then."""


def images(*shape):
    return lambda rng: {"x": rng.standard_normal(shape, np.float32)}


def texts(batch, length):
    def feeds(rng):
        mask = np.ones((batch, length), np.int64)
        mask[:, length - 3 :] = 0
        ids = rng.integers(0, 80, (batch, length))
        return {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(mask)}

    return feeds


def voices(rate):
    def feeds(rng):
        x, state = rng.standard_normal((1, 128), np.float32), rng.standard_normal((2, 1, 16), np.float32)
        return {"x": x, "state": state, "sr": np.array(rate)}

    return feeds


ONE_CALL = {"calls": 1, "launches": 0, "uploads": 0, "downloads": 0}
BRANCHES = {"calls": 2, "launches": 0, "uploads": 0, "downloads": 2}
"""Where the host decides which branch runs, and gets its two results."""

NETWORKS = {
    "residual": (networks.residual, images(2, 3, 32, 32), ONE_CALL),
    "inverted": (networks.inverted, images(1, 3, 32, 32), ONE_CALL),
    "encoder": (networks.encoder, texts(2, 16), ONE_CALL),
    "encoder of 8 bits": (functools.partial(networks.encoder, quantized=True), texts(1, 16), ONE_CALL),
    "detector": (networks.detector, images(1, 3, 64, 96), ONE_CALL),
    "recogniser": (networks.recogniser, images(1, 3, 32, 48), ONE_CALL),
    "voice at 16 kHz": (networks.voice, voices(16000), BRANCHES),
    "voice at 8 kHz": (networks.voice, voices(8000), BRANCHES),
}
"""Name → (makes the model, makes inputs, what a run that is replayed costs)."""


def sessions_of(model, providers):
    """Ours on the device, and onnxruntime's."""
    return ort.InferenceSession(model, providers=providers), onnxruntime.InferenceSession(
        model, providers=["CPUExecutionProvider"]
    )


def assert_near(found, expected, tolerance):
    for own, wanted in zip(found, expected, strict=True):
        assert own.shape == wanted.shape
        assert own.dtype == wanted.dtype
        np.testing.assert_allclose(own, wanted, rtol=0, atol=tolerance * max(np.abs(wanted).max(), 1e-3))


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_is_replayed_as_one_call(name, providers, monkeypatch):
    make, feeds, costs = NETWORKS[name]
    session, oracle = sessions_of(make(), providers)
    counts, tolerance = counted(monkeypatch), QUANTIZED_TOLERANCE if "8 bits" in name else TOLERANCE
    for seed in range(5):
        given = feeds(np.random.default_rng(seed))
        counts.reset()
        assert_near(session.run(None, given), oracle.run(None, given), tolerance)
    assert {row.op_type for row in session.placements() if row.provider != DEVICE} <= OF_SHAPES | {"If"}
    assert dataclasses.asdict(counts) == costs


VARYING = {
    "encoder": (functools.partial(networks.encoder, positions=256), [texts(1, 12 * n) for n in range(2, 11)]),
    "detector": (networks.detector, [images(1, 3, 96 * m, 96 * n) for m in (1, 2, 3) for n in (1, 2, 3)]),
    "recogniser": (networks.recogniser, [images(1, 3, 32, 48 * n) for n in range(2, 12)]),
}
"""Inputs of many sizes, all of them multiples of the blocks that kernels compute."""
FEW = 6
"""Runs after which all kernels are there, with those of steps that are fused for any sizes."""


@pytest.mark.parametrize("name", VARYING)
def test_sizes_that_vary_compile_no_kernels_anew(name, providers, context):
    make, sizes = VARYING[name]
    session, oracle = sessions_of(make(), providers)
    programs, known = context.launcher.programs, []
    for seed, feeds in enumerate(sizes):
        given = feeds(np.random.default_rng(seed))
        assert_near(session.run(None, given), oracle.run(None, given), TOLERANCE)
        known.append(programs.built + programs.loaded)
    assert set(known[FEW - 1 :]) == {known[-1]}
