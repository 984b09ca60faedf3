"""8-bit convolutions and GEMMs by AMX: exactly what vectors give, and what is defined."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import helper, numpy_helper
from ort_sdk_cpu.conv.geometry import ConvGeometry
from ort_sdk_cpu.memory.workspace import Workspace
from ort_sdk_cpu.platform import libraries
from ort_sdk_cpu.platform.cpu_features import ISA_VARIABLE, has_amx
from ort_sdk_cpu.quantized.conv import direct, select, tiling
from ort_sdk_cpu.quantized.conv.centered_weight import CenteredWeight
from ort_sdk_cpu.quantized.conv.dequantized import DequantizationEpilogue, DequantizedConvolution
from ort_sdk_cpu.quantized.conv.direct import DirectConvolution, QuantizedAdd

import ort_sdk as ort
from ort_sdk.opset.nn.windows import WindowAttributes

pytestmark = pytest.mark.skipif(
    not libraries.compiled_kernels().is_usable or not has_amx(), reason="no compiler, or a processor without a matrix unit"
)

X_SCALE, Y_SCALE, X_ZERO, Y_ZERO = np.float32(0.02), np.float32(0.61), 7, 3
ADDITION = {"product": (0.61, Y_ZERO), "addend": (0.35, 9), "total": (0.71, 5)}
WINDOWS = [
    # channels, outputs, kernel, (height, width), stride, pads, dilation
    (64, 64, (1, 1), (5, 9)),
    (68, 70, (1, 1), (7, 7)),
    (100, 130, (1, 1), (1, 31)),
    (256, 33, (1, 1), (4, 8)),
    (64, 48, (1, 1), (9, 33), 2),
    (16, 96, (3, 3), (6, 35), 1, (1, 1)),
    (9, 17, (3, 3), (7, 19), 1, (1, 1)),
    (32, 64, (3, 3), (15, 21), 2, (1, 1)),
    (64, 65, (1, 3), (9, 40), 1, (0, 2), 2),
    (18, 30, (1, 5), (2, 70), 1, (0, 6), 3),
    (3, 40, (7, 7), (20, 40), 2, (3, 3)),
    (1, 16, (5, 5), (8, 18)),
    (6, 15, (5, 5), (5, 50), 1, (2, 2)),
]
BYTES = [np.uint8, np.int8]


@pytest.fixture(autouse=True)
def everything(monkeypatch):
    """Let the unit do what would be too little for it."""
    for module, name in (
        (select, "LEAST_AMX_WORK"),
        (select, "LEAST_OF_TILE"),
        (select, "TEAM_WORK"),
    ):
        monkeypatch.setattr(module, name, 0)


def _in_bytes(rng, shape, dtype):
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max + 1, shape).astype(dtype)


def _geometry(stride, pads, dilation):
    windows = WindowAttributes("node", None, (stride,) * 2, (dilation,) * 2, (*pads, *pads), "NOTSET", ceil_mode=False)
    return ConvGeometry(windows, 1)


def _sums(x, weight, zero, stride, pads, dilation):
    """Exact, int64."""
    centred = np.pad(x.astype(np.int64) - zero, ((0, 0), (0, 0), *((pad, pad) for pad in pads)))
    reach = [dilation * (length - 1) + 1 for length in weight.shape[2:]]
    windows = np.lib.stride_tricks.sliding_window_view(centred, reach, axis=(2, 3))
    taken = windows[:, :, ::stride, ::stride, ::dilation, ::dilation]
    return np.einsum("nchwij,mcij->nmhw", taken, weight.astype(np.int64), optimize=True)


def _channels_last(array):
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(array, 1, -1)), -1, 1)


class Case:
    """One convolution with all that belongs to it."""

    def __init__(
        self, dtype, channels, outputs, kernel, size, stride=1, pads=(0, 0), dilation=1, *, samples=2, has_zero_points=False
    ):
        self.rng = np.random.default_rng(channels + outputs)
        self.x = _channels_last(_in_bytes(self.rng, (samples, channels, *size), dtype))
        self.weight = self.rng.integers(-128, 128, (outputs, channels, *kernel)).astype(np.int8)
        self.zero_points = np.zeros(1, np.int8)
        if has_zero_points:
            self.weight = _in_bytes(self.rng, self.weight.shape, np.uint8)
            self.zero_points = self.rng.integers(20, 90, outputs).astype(np.uint8)
        self.scales = (self.rng.random(outputs) / (20 * np.sqrt(self.weight[0].size)) + 1e-4).astype(np.float32)
        self.bias = self.rng.integers(-900, 900, outputs).astype(np.int32)
        self.geometry = _geometry(stride, pads, dilation)
        centred = self.weight.astype(np.int64) - self.zero_points[:, None, None, None]
        self.sums = _sums(self.x, centred, X_ZERO, stride, pads, dilation)

    def along_outputs(self, values):
        return values[:, None, None]

    def weights(self):
        return CenteredWeight.of(self.weight, self.zero_points)

    def quantized(self, added=()):
        """What the task writes."""
        factors, zeros = self.scales * X_SCALE / Y_SCALE, (X_ZERO, Y_ZERO)
        can_add = self.weight.dtype == np.int8
        constants = {"can_add": can_add, "scales": factors, "bias": self.bias, "zero_points": zeros, "workspace": Workspace()}
        convolution = DirectConvolution(self.geometry, self.weight.shape, self.weights, **constants)
        out = _channels_last(np.zeros(self.sums.shape, self.x.dtype))
        convolution.call(self.x, out, added or None).run(self.x, *added[:1], out)
        return out

    def requantized(self):
        """The result less its zero point, before it is narrowed."""
        sums = (self.sums + self.along_outputs(self.bias)).astype(np.int32).astype(np.float32)
        return np.rint(sums * self.along_outputs(self.scales * X_SCALE / Y_SCALE))

    def floats(self, finish):
        """What the task of a scale and zero point of the run writes."""
        convolution = DequantizedConvolution(self.geometry, self.weight.shape, self.weights, finish, Workspace())
        out = _channels_last(np.zeros(self.sums.shape, np.float32))
        arrays = self.x, np.array([X_ZERO], self.x.dtype), np.array([X_SCALE]), out
        convolution.call(*arrays).run(*arrays)
        return out


def _by_vectors(compute, monkeypatch):
    with monkeypatch.context() as context:
        context.setattr(select, "has_amx", lambda: False)
        return compute()


@pytest.fixture
def modules(monkeypatch):
    """The modules of the tasks that were called."""
    found, made = [], direct.TaskCall

    def call(module, *rest):
        found.append(module)
        return made(module, *rest)

    for place in ("direct", "dequantized"):
        monkeypatch.setattr(f"ort_sdk_cpu.quantized.conv.{place}.TaskCall", call)
    return found


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("has_zero_points", [False, True])
@pytest.mark.parametrize("windows", WINDOWS)
def test_bytes_are_exact(windows, has_zero_points, dtype, monkeypatch, modules):
    case, limits = Case(dtype, *windows, has_zero_points=has_zero_points), np.iinfo(dtype)
    found = case.quantized()
    assert modules == ["quantized.conv.amx"]
    np.testing.assert_array_equal(found, np.clip(case.requantized() + Y_ZERO, limits.min, limits.max))
    np.testing.assert_array_equal(found, _by_vectors(case.quantized, monkeypatch))


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("windows", [WINDOWS[index] for index in (0, 1, 3, 4, 5, 6)])
def test_bytes_with_an_addition_are_exact(windows, dtype, monkeypatch, modules):
    case = Case(dtype, *windows)
    total = QuantizedAdd(ADDITION["product"], np.dtype(dtype), ADDITION["addend"], ADDITION["total"])
    addend = _channels_last(_in_bytes(case.rng, case.sums.shape, dtype))
    found = case.quantized((addend, total))
    assert modules == ["quantized.conv.amx"]
    np.testing.assert_array_equal(found, _by_vectors(lambda: case.quantized((addend, total)), monkeypatch))
    limits, scale = np.iinfo(dtype), {name: np.float32(pair[0]) for name, pair in ADDITION.items()}
    steps = np.clip(case.requantized(), limits.min - Y_ZERO, limits.max - Y_ZERO).astype(np.float32)
    added = steps * scale["product"] + (addend.astype(np.float32) - ADDITION["addend"][1]) * scale["addend"]
    expected = np.clip(np.rint(added / scale["total"]) + ADDITION["total"][1], limits.min, limits.max)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("has_zero_points", [False, True])
@pytest.mark.parametrize("windows", WINDOWS)
def test_floats_are_exact(windows, has_zero_points, dtype, monkeypatch, modules):
    case = Case(dtype, *windows, has_zero_points=has_zero_points)
    finish = DequantizationEpilogue(case.scales, case.bias.astype(np.float32) / 99, -1.5, 2.5)
    found = case.floats(finish)
    assert modules == ["quantized.conv.amx"]
    np.testing.assert_array_equal(found, _by_vectors(lambda: case.floats(finish), monkeypatch))
    scaled = case.sums.astype(np.float32) * case.along_outputs(finish.scales * X_SCALE) + case.along_outputs(finish.bias)
    np.testing.assert_array_equal(found, np.clip(scaled, np.float32(finish.low), np.float32(finish.high)))


@pytest.mark.parametrize("rows", [1, 2, 15, 16, 17, 31, 32, 33, 47, 65])
def test_any_number_of_rows(rows, monkeypatch):
    case = Case(np.uint8, 128, 80, (1, 1), (rows, 1), samples=1)
    np.testing.assert_array_equal(case.quantized(), _by_vectors(case.quantized, monkeypatch))
    np.testing.assert_array_equal(case.quantized(), np.clip(case.requantized() + Y_ZERO, 0, 255))


def test_threads_share_rows_and_columns(monkeypatch):
    for size, outputs in (((13, 21), 64), ((2, 3), 640)):
        case = Case(np.uint8, 64, outputs, (3, 3), size, 1, (1, 1))
        monkeypatch.setattr(libraries, "thread_count", lambda: 2)
        np.testing.assert_array_equal(case.quantized(), np.clip(case.requantized() + Y_ZERO, 0, 255))


def test_largest_numbers(monkeypatch):
    case = Case(np.uint8, 1024, 16, (1, 1), (16, 1), samples=1)
    case.x[...], case.weight[...] = 255, -128
    case.sums = _sums(case.x, case.weight, X_ZERO, 1, (0, 0), 1)
    finish = DequantizationEpilogue(case.scales)
    np.testing.assert_array_equal(case.floats(finish), _by_vectors(lambda: case.floats(finish), monkeypatch))
    np.testing.assert_array_equal(case.floats(finish), case.sums.astype(np.float32) * case.along_outputs(case.scales * X_SCALE))


def test_little_work_and_lines_that_do_not_divide_stay_with_vectors(monkeypatch, modules):
    monkeypatch.undo()
    found = []
    for channels, size in ((64, (2, 2)), (68, (40, 40)), (64, (40, 40))):
        case = Case(np.uint8, channels, 64, (1, 1), size)
        threads = libraries.thread_count()
        image = tiling.Image.of(
            case.x.shape,
            case.weight.shape,
            case.sums.shape,
            case.geometry.padding(case.x.shape, case.weight.shape),
            is_interleaved=False,
        )
        found.append(select.with_amx(tiling.Tiling(image, 0, 64, threads)).chunk)
    assert found == [0, 0, 16]
    assert modules == []


def test_working_memory_is_what_the_task_uses():
    from ort_sdk_cpu.quantized.conv.compiled.amx import WORKSPACE_BYTES

    assert WORKSPACE_BYTES == tiling.AMX_WORKSPACE_BYTES


GEMMS = {
    "MatMulInteger": ("", ["a", "b", "az", "bz"], np.int32),
    "QLinearMatMul": ("", ["a", "as", "az", "b", "bs", "bz", "ys", "yz"], np.uint8),
    "DynamicQuantizeMatMul": ("com.microsoft", ["f", "b", "bs", "bz"], np.float32),
    "QGemm": ("com.microsoft", ["a", "as", "az", "b", "bs", "bz", "c", "ys", "yz"], np.uint8),
}


def gemm(name):
    """A node's output for many rows."""
    rng, (domain, inputs, kind) = np.random.default_rng(len(name)), GEMMS[name]
    rows, inner, columns = 130, 260, 300
    values = {
        "a": _in_bytes(rng, (rows, inner), np.uint8),
        "f": rng.standard_normal((rows, inner)).astype(np.float32),
        "b": rng.integers(-127, 128, (inner, columns)).astype(np.int8),
        "as": np.float32(0.02),
        "bs": (rng.random(columns) / 100 + 0.003).astype(np.float32),
        "ys": np.float32(0.7),
        "az": np.uint8(119),
        "bz": np.zeros(columns, np.int8),
        "yz": np.uint8(101),
        "c": rng.integers(-900, 900, columns).astype(np.int32),
    }
    node = helper.make_node(name, inputs, ["y"], domain=domain)
    fed = inputs[0]
    constants = [numpy_helper.from_array(np.asarray(values[key]), key) for key in inputs[1:]]
    infos = [
        helper.make_tensor_value_info(key, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), [rows, width])
        for key, dtype, width in ((fed, values[fed].dtype, inner), ("y", kind, columns))
    ]
    graph = helper.make_graph([node], "gemm", infos[:1], infos[1:], constants)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {fed: values[fed]})[0]


_CHILD = """
import sys
sys.path.insert(0, {folder!r})
import numpy as np
import test_amx_convolutions as tests
np.savez({file!r}, **{{name: tests.gemm(name) for name in tests.GEMMS}})
"""


@pytest.mark.instruction_sets
def test_gemms_are_those_of_vectors(tmp_path, monkeypatch):
    monkeypatch.undo()
    file = tmp_path / "gemms.npz"
    code = _CHILD.format(folder=str(Path(__file__).parent), file=str(file))
    subprocess.run([sys.executable, "-c", code], env={**os.environ, ISA_VARIABLE: "avx512"}, check=True, timeout=300)
    with np.load(file) as expected:
        for name in GEMMS:
            np.testing.assert_array_equal(gemm(name), expected[name], err_msg=name)
