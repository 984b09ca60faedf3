"""Panels of few columns of 8-bit convolutions: all numbers of columns and of rows, beside float64."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import helper, numpy_helper
from ort_sdk_cpu.onednn import library as onednn_library
from ort_sdk_cpu.platform import libraries
from ort_sdk_cpu.platform.cpu_features import InstructionSet, machine_instruction_set
from ort_sdk_cpu.quantized.conv import select

import ort_sdk as ort

pytestmark = pytest.mark.skipif(
    not onednn_library.is_available() or not libraries.compiled_kernels().is_usable, reason="oneDNN or numba is missing"
)

OUTPUTS = (1, 15, 16, 20, 32, 47, 96)
WIDTHS = (*range(1, 14), 29)
SCALE, ZERO = 0.43, 3


def _constants(dtype, outputs, channels, kernel, *, has_zero_points):
    rng = np.random.default_rng(outputs)
    shape = (outputs, channels, kernel, kernel)
    wide = {"w": rng.integers(0, 256, shape).astype(np.uint8), "wz": rng.integers(20, 90, outputs).astype(np.uint8)}
    narrow = {"w": rng.integers(-127, 128, shape).astype(np.int8), "wz": np.zeros(outputs, np.int8)}
    return {
        **(wide if has_zero_points else narrow),
        "xs": np.float32(0.02),
        "xz": dtype(7),
        "ws": (rng.random(outputs) / 60 + 0.003).astype(np.float32),
        "ys": np.float32(SCALE),
        "yz": dtype(ZERO),
        "b": rng.integers(-900, 900, outputs).astype(np.int32),
    }


def _session(dtype, constants, kernel):
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    node = helper.make_node("QLinearConv", ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"], ["y"], pads=[kernel // 2] * 4)
    infos = [helper.make_tensor_value_info(name, kind, [None] * 4) for name in ("x", "y")]
    tensors = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    graph = helper.make_graph([node], "panels", infos[:1], infos[1:], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    return ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def _defined(x, constants, kernel, dtype):
    """In float64."""
    limits, pad = np.iinfo(dtype), kernel // 2
    centred = np.pad(x.astype(np.float64) - int(constants["xz"]), ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    windows = np.lib.stride_tricks.sliding_window_view(centred, (kernel, kernel), axis=(2, 3))
    weight = constants["w"].astype(np.float64) - constants["wz"][:, None, None, None]
    sums = np.einsum("nchwij,mcij->nmhw", windows, weight) + constants["b"][:, None, None]
    scales = float(constants["xs"]) * constants["ws"].astype(np.float64) / float(constants["ys"])
    return np.clip(np.rint(sums * scales[:, None, None]) + ZERO, limits.min, limits.max)


def check(dtype, outputs, kernel=3, channels=8, *, has_zero_points=False):
    rng, limits = np.random.default_rng(0), np.iinfo(dtype)
    constants = _constants(dtype, outputs, channels, kernel, has_zero_points=has_zero_points)
    session = _session(dtype, constants, kernel)
    different = []
    for width in WIDTHS:
        x = rng.integers(limits.min, limits.max + 1, (1, channels, 5, width)).astype(dtype)
        difference = np.abs(session.run(None, {"x": x})[0] - _defined(x, constants, kernel, dtype))
        assert difference.max() <= 1  # What is between two integers may be rounded to either: float32 rounded it before.
        different.append((difference > 0).mean())
    assert np.mean(different) < 1e-3


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("outputs", OUTPUTS)
def test_few_columns(outputs, dtype, monkeypatch):
    monkeypatch.setattr(select, "TEAM_WORK", 0)
    monkeypatch.setattr("ort_sdk_cpu.quantized.conv.select.MINIMUM_WORK", 0)
    check(dtype, outputs)
    check(dtype, outputs, kernel=1, channels=5)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("outputs", [7, 32, 48])
def test_few_columns_with_zero_points(outputs, dtype, monkeypatch):
    monkeypatch.setattr(select, "TEAM_WORK", 0)
    monkeypatch.setattr("ort_sdk_cpu.quantized.conv.select.MINIMUM_SLOW_WORK", 0)
    check(dtype, outputs, has_zero_points=True)


def test_columns_that_are_there_decide():
    found = {outputs: select.panel_for(outputs, is_plain=True) for outputs in (1, 16, 17, 48, 64, 80, 96, 256)}
    assert found == {1: 16, 16: 16, 17: 32, 48: 16, 64: 64, 80: 16, 96: 32, 256: 64}
    assert select.panel_for(48, is_plain=False) == select.PANEL


_CHILD = """
import sys
sys.path.insert(0, {folder!r})
import numpy as np
import test_int8_panels as tests
from ort_sdk_cpu.quantized.conv import select
select.TEAM_WORK = select.MINIMUM_WORK = select.MINIMUM_SLOW_WORK = 0
for outputs in (15, 32, 64):
    tests.check(np.uint8, outputs)
    tests.check(np.uint8, outputs, has_zero_points=True)
"""


@pytest.mark.instruction_sets
@pytest.mark.parametrize("level", [level for level in InstructionSet if level < machine_instruction_set()])
def test_other_instruction_sets(level):
    environment = {**os.environ, "ORT_SDK_CPU_ISA": level.name.lower()}
    code = _CHILD.format(folder=str(Path(__file__).parent))
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=300)
