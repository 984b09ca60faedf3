"""Optimizer passes on models in ORT format: those of the ONNX file, without onnx and protobuf."""

import collections
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import ort_sdk
from tests.loader.ort_files import convert
from tests.models.test_models import FEEDS, QUANTIZED_FEEDS

MODELS = Path(__file__).resolve().parents[1] / "models" / "data"
LEVELS = ("ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL")
COUNT = """
import collections, json, sys
sys.modules.update(dict.fromkeys(("onnx", "google", "google.protobuf")))
import ort_sdk
options = ort_sdk.SessionOptions()
options.graph_optimization_level = getattr(ort_sdk.GraphOptimizationLevel, sys.argv[2])
session = ort_sdk.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
print(json.dumps(collections.Counter(node.op_type for node in session.placements())))
"""


def make(model, level):
    options = ort_sdk.SessionOptions()
    options.graph_optimization_level = getattr(ort_sdk.GraphOptimizationLevel, level)
    return ort_sdk.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def operators(session):
    return collections.Counter(node.op_type for node in session.placements())


@pytest.fixture(scope="module", params=[*FEEDS, *QUANTIZED_FEEDS])
def pair(request, tmp_path_factory):
    """A model in both formats, nothing optimized."""
    path = MODELS / f"{request.param}.onnx"
    return path, convert(str(path), tmp_path_factory.mktemp("ort") / f"{request.param}.ort")


@pytest.mark.parametrize("level", LEVELS)
def test_same_nodes_are_left_in_both_formats(level, pair):
    in_onnx, in_ort = (operators(make(path, level)) for path in pair)
    if LEVELS.index(level) < LEVELS.index("ORT_ENABLE_EXTENDED"):
        # onnxruntime gives each reader a node of its own before it writes.
        assert in_ort.pop("DequantizeLinear", 0) >= in_onnx.pop("DequantizeLinear", 0)
    assert in_ort == in_onnx


def test_levels_do_something(tmp_path):
    counts = {level: make(convert(str(MODELS / "encoder_opset14.onnx"), tmp_path / "m.ort"), level) for level in LEVELS}
    kinds = [operators(counts[level]) for level in LEVELS]
    assert kinds[0].total() > kinds[1].total() > kinds[2].total()


@pytest.mark.parametrize("level", LEVELS)
def test_levels_need_neither_onnx_nor_protobuf(level, tmp_path):
    path = convert(str(MODELS / "encoder_opset14.onnx"), tmp_path / "m.ort")
    command = [sys.executable, "-c", COUNT, path, level]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert json.loads(done.stdout) == operators(make(path, level))


def test_results_stay(pair):
    feeds = (FEEDS | QUANTIZED_FEEDS)[pair[1].stem][0]
    plain, optimized = (make(pair[1], level).run(None, feeds) for level in (LEVELS[0], LEVELS[-1]))
    for actual, expected in zip(optimized, plain, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-3, atol=1e-4)
