"""Small models of real architectures, as exporters write them (``tools/export_models.py``), against onnxruntime.

Every model runs unoptimized and optimized, with two or more input shapes, and each shape often enough to be replayed by a
program.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import ort_sdk
from tests.opset.one_node import assert_same

DATA = Path(__file__).parent / "data"
LEVELS = ["ORT_DISABLE_ALL", "ORT_ENABLE_ALL"]
RUNS = 3
RNG = np.random.default_rng(5)


def real(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def tokens(*shape):
    return RNG.integers(0, 30, shape)


def text(batch, length, padding):
    mask = np.ones((batch, length), np.int64)
    mask[:, length - padding :] = 0
    return {"ids": tokens(batch, length), "mask": mask}


def step(length, past):
    return {"ids": tokens(2, length), "past_key": real(2, 1, past, 8), "past_value": real(2, 1, past, 8)}


IMAGES = [{"x": RNG.random((2, 3, 32, 32), np.float32)}, {"x": RNG.random((1, 3, 48, 40), np.float32)}]
TEXTS = [text(2, 6, 0), text(3, 4, 2)]
# One prompt without a past, then steps whose past grows: every shape is new once, as in use.
STEPS = [step(4, 0), step(1, 4), step(1, 5), step(2, 6)]
FEEDS = {
    "mobilenet_opset9": IMAGES,
    "lstm_opset10": [{"ids": tokens(2, 7)}, {"ids": tokens(2, 3)}],
    "unet_opset11": [{"x": real(1, 3, 16, 16)}, {"x": real(2, 3, 16, 16)}],
    "gru_opset12": [{"x": real(6, 2, 6), "state": real(2, 2, 8)}, {"x": real(3, 2, 6), "state": real(2, 2, 8)}],
    "control_flow_opset13": [
        {"x": real(3, 4), "count": np.array(4)},
        {"x": -RNG.random((5, 4), np.float32), "count": np.array(0)},
        {"x": real(1, 4), "count": np.array(9)},
    ],
    "encoder_opset14": TEXTS,
    "grid_opset16": [{"x": real(2, 3, 10, 12)}],
    "decoder_opset17": STEPS,
    "decoder_opset18": STEPS,
}
QUANTIZED_FEEDS = {
    "mobilenet_qdq_opset13": IMAGES,
    "mobilenet_qlinear_opset13": IMAGES,
    "encoder_dynamic_opset14": TEXTS,
}


def reference(name, feeds):
    """Outputs of onnxruntime, unoptimized, for each feed."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(DATA / f"{name}.onnx", options, providers=["CPUExecutionProvider"])
    return [session.run(None, feed) for feed in feeds]


def session_at(name, level):
    options = ort_sdk.SessionOptions()
    options.graph_optimization_level = getattr(ort_sdk.GraphOptimizationLevel, level)
    return ort_sdk.InferenceSession(DATA / f"{name}.onnx", options, providers=["CPUExecutionProvider"])


def test_every_model_is_run():
    assert sorted(path.stem for path in DATA.glob("*.onnx")) == sorted({**FEEDS, **QUANTIZED_FEEDS})


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", FEEDS)
def test_agrees_with_onnxruntime(name, level):
    feeds = FEEDS[name]
    expected = reference(name, feeds)
    session = session_at(name, level)
    for _ in range(RUNS):
        for feed, wanted in zip(feeds, expected, strict=True):
            for got, want in zip(session.run(None, feed), wanted, strict=True):
                assert_same(got, want, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", QUANTIZED_FEEDS)
def test_quantized_model_agrees_with_onnxruntime(name, level):
    feeds = QUANTIZED_FEEDS[name]
    expected = reference(name, feeds)
    session = session_at(name, level)
    for _ in range(RUNS):
        for feed, wanted in zip(feeds, expected, strict=True):
            for got, want in zip(session.run(None, feed), wanted, strict=True):
                # A sum next to a tie may round to the neighbouring level, which the layers after it carry on.
                assert_same(got, want, rtol=0, atol=0.02 * float(np.abs(want).max()))


@pytest.mark.parametrize("name", FEEDS)
def test_outputs_outlive_later_runs(name):
    session, feed = session_at(name, "ORT_ENABLE_ALL"), FEEDS[name][0]
    for _ in range(RUNS):
        outputs = session.run(None, feed)
    copies = [output.copy() for output in outputs]
    session.run(None, {key: value[::-1].copy() if value.ndim else value for key, value in feed.items()})
    for output, copy in zip(outputs, copies, strict=True):
        np.testing.assert_array_equal(output, copy)
