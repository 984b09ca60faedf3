"""Small versions of the models that people run, against onnxruntime: results, what stays on the host, and what a run costs."""

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


NETWORKS = {
    "residual": (networks.residual, images(2, 3, 32, 32)),
    "inverted": (networks.inverted, images(1, 3, 32, 32)),
    "encoder": (networks.encoder, texts(2, 16)),
    "encoder of 8 bits": (functools.partial(networks.encoder, quantized=True), texts(1, 16)),
    "detector": (networks.detector, images(1, 3, 64, 96)),
    "recogniser": (networks.recogniser, images(1, 3, 32, 48)),
    "voice at 16 kHz": (networks.voice, voices(16000)),
    "voice at 8 kHz": (networks.voice, voices(8000)),
}


def session_of(model, providers, **config):
    options = ort.SessionOptions()
    for key, value in config.items():
        options.add_session_config_entry(key.replace("__", "."), value)
    return ort.InferenceSession(model, options, providers=providers)


def assert_near(found, expected, tolerance):
    for own, wanted in zip(found, expected, strict=True):
        assert own.shape == wanted.shape
        assert own.dtype == wanted.dtype
        np.testing.assert_allclose(own, wanted, rtol=0, atol=tolerance * max(np.abs(wanted).max(), 1e-3))


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_is_one_call_on_the_device(name, providers, monkeypatch):
    make, feeds = NETWORKS[name]
    model = make()
    session, oracle = session_of(model, providers), onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    counts, tolerance = counted(monkeypatch), QUANTIZED_TOLERANCE if "8 bits" in name else TOLERANCE
    for seed in range(5):
        given = feeds(np.random.default_rng(seed))
        counts.reset()
        assert_near(session.run(None, given), oracle.run(None, given), tolerance)
    assert {row.op_type for row in session.placements() if row.provider != DEVICE} <= OF_SHAPES
    assert (counts.calls, counts.launches, counts.uploads, counts.downloads) == (1, 0, 0, 0)


VARYING = {
    "encoder": (networks.encoder, [texts(1, length) for length in (17, 21, 25, 29, 33, 37, 41, 45)]),
    "detector": (
        networks.detector,
        [images(1, 3, *size) for size in ((64, 96), (96, 64), (128, 96), (64, 64), (96, 128), (160, 64))],
    ),
    "recogniser": (networks.recogniser, [images(1, 3, 32, width) for width in (64, 72, 80, 88, 96, 104, 112)]),
}
"""Inputs of several sizes; those after the first few need no kernel that there was not."""
FEW = 3


@pytest.mark.parametrize("name", VARYING)
def test_sizes_that_vary_compile_no_kernels_anew(name, providers, context):
    make, sizes = VARYING[name]
    model = make()
    session, oracle = session_of(model, providers), onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    programs, known = context.launcher.programs, []
    for seed, feeds in enumerate(sizes):
        given = feeds(np.random.default_rng(seed))
        assert_near(session.run(None, given), oracle.run(None, given), TOLERANCE)
        known.append(programs.built + programs.loaded)
    assert known[FEW:] == [known[FEW]] * len(known[FEW:])
