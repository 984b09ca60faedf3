"""GEMM with a large constant B packed into panels: every size beside float64, and what becomes of the matrix itself."""

import concurrent.futures
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from ort_sdk_cpu.gemm import packing
from ort_sdk_cpu.gemm.constant_b import ConstantBGemm
from ort_sdk_cpu.gemm.plan import GemmCall, GemmFunction
from ort_sdk_cpu.gemm.select import BLayout
from ort_sdk_cpu.kernel.activation import Activation, ActivationKind
from ort_sdk_cpu.memory.allocator import CpuAllocator
from ort_sdk_cpu.memory.workspace import Workspace
from ort_sdk_cpu.platform import libraries
from ort_sdk_cpu.platform.addresses import address_of
from ort_sdk_cpu.platform.cpu_features import InstructionSet, machine_instruction_set

from ort_sdk import InferenceSession, SessionOptions
from ort_sdk.api import KernelInfo, NodeArg, OrtMemoryInfo
from ort_sdk.graph.tensor import ArrayTensor
from ort_sdk.testing.collection import only_new_objects

pytestmark = pytest.mark.skipif(not libraries.compiled_kernels().is_usable, reason="GEMMs are compiled")

ROWS = (1, 2, 3, 4, 5, 11, 12, 13, 24, 25, 36, 47, 64, 128, 130)
SIZES = ((1, 70000), (3, 1000), (127, 300), (128, 32), (130, 33), (257, 600), (768, 96), (1300, 64), (3100, 31))
SMAPS = Path("/proc/self/smaps")


def random(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def panels_of(matrix, *, transposed=False):
    given = np.ascontiguousarray(matrix.T) if transposed else matrix
    return packing.packed_panels(ArrayTensor(given), CpuAllocator(OrtMemoryInfo()), transposed=transposed)


def gemm(a, panels, columns, *, bias=None, **tail):
    """The product written into the middle of a larger array, whose rest must stay."""
    rows, inner = a.shape
    guarded = np.full(rows * columns + 128, 7, np.float32)
    out = guarded[64:-64].reshape(rows, columns)
    out.fill(np.nan)
    sizes = BLayout(inner, columns, is_packed=True)
    GemmCall(sizes.problem(rows), Workspace(), **tail)(a, panels, bias, out)
    assert (guarded[:64] == 7).all()
    assert (guarded[-64:] == 7).all()
    return out


def check(rows, inner, columns, *, transposed=False):
    a, b = random(rows, inner), random(inner, columns, seed=1)
    found = gemm(a, panels_of(b, transposed=transposed), columns)
    expected, scale = a.astype(np.float64) @ b, np.abs(a).astype(np.float64) @ np.abs(b)
    assert (np.abs(found - expected) <= 1e-6 * scale).all()


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("inner", "columns"), SIZES)
def test_every_size_beside_float64(inner, columns, transposed):
    for rows in ROWS:
        check(rows, inner, columns, transposed=transposed)


@pytest.mark.parametrize("transposed", [False, True])
def test_what_panels_are(transposed):
    inner, columns = 300, 330
    matrix, panel = random(inner, columns), BLayout(inner, columns, is_packed=True).problem(1).ldb // 4
    found = panels_of(matrix, transposed=transposed).view(np.float32).reshape(-1, inner, panel // inner)
    whole = np.concatenate(list(found), axis=1)
    np.testing.assert_array_equal(whole[:, :columns], matrix)
    if not transposed:
        assert not whole[:, columns:].any()


@pytest.mark.parametrize("rows", [520, 600, 1100])
@pytest.mark.parametrize("inner", [300, 2500])
def test_more_rows_than_are_multiplied_at_a_time(rows, inner):
    check(rows, inner, 70)


@pytest.mark.parametrize("threads", [1, 3, 8])
def test_any_number_of_threads(monkeypatch, threads):
    monkeypatch.setattr(libraries, "thread_count", lambda: threads)
    for rows, inner, columns in ((3, 600, 400), (40, 512, 512), (250, 300, 290), (2000, 200, 100)):
        for transposed in (False, True):
            check(rows, inner, columns, transposed=transposed)


ACTIVATIONS = {
    ActivationKind.LEAKY_RELU: lambda x: np.where(x < 0, x * 0.25, x),
    ActivationKind.SIGMOID: lambda x: 1 / (1 + np.exp(-x)),
    ActivationKind.TANH: np.tanh,
    ActivationKind.IDENTITY: lambda x: x,
}


@pytest.mark.parametrize("kind", ACTIVATIONS)
@pytest.mark.parametrize("rows", [1, 9, 50])
def test_bias_factor_and_activation(rows, kind):
    """Of so many columns that they are finished some at a time."""
    a, b, bias = random(rows, 130), random(130, 611, seed=1) / 12, random(611, seed=2)
    found = gemm(a, panels_of(b), 611, bias=bias, alpha=0.5, activation=Activation(kind, 0.25))
    expected = ACTIVATIONS[kind](0.5 * (a.astype(np.float64) @ b) + bias)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("rows", [1, 2, 20])
def test_infinities_and_nan_stay_in_their_column(rows):
    a, b = random(rows, 100), random(100, 90, seed=1)
    b[99, 89], b[0, 0] = np.inf, np.nan
    with np.errstate(invalid="ignore"):
        expected = a @ b
    found = gemm(a, panels_of(b), 90)
    assert np.isnan(found[:, 0]).all()
    np.testing.assert_array_equal(found[:, 89], expected[:, 89])
    assert np.isfinite(found[:, 1:89]).all()


def test_one_function_for_any_number_of_rows():
    b = random(300, 260, seed=1)
    panels, function = panels_of(b), GemmFunction(BLayout(300, 260, is_packed=True), Workspace())
    for rows in (1, 500, 7, 90):
        a, out = random(rows, 300, seed=rows), np.empty((rows, 260), np.float32)
        function(rows, a, panels, None, out)
        np.testing.assert_allclose(out, a.astype(np.float64) @ b, rtol=1e-4, atol=1e-4)


def info_of(shape, weight, config=None):
    inputs = (NodeArg("x", "tensor(float)", shape), NodeArg("w", "tensor(float)", weight.shape))
    return KernelInfo("MatMul", 13, inputs=inputs, constants={1: weight}, session_config=config or {})


def test_which_matrices_are_packed():
    large, small = ArrayTensor(random(256, 256)), ArrayTensor(random(255, 256))
    assert packing.is_worth_packing(info_of(("rows", 256), large), large)
    assert packing.is_worth_packing(info_of((2, "tokens", 256), large), large)
    assert packing.is_worth_packing(info_of(None, large), large)
    assert packing.is_worth_packing(info_of((8, 256), large), large)
    assert not packing.is_worth_packing(info_of((7, 256), large), large)
    assert not packing.is_worth_packing(info_of((256,), large), large)
    turned = {"transA": 1}
    assert packing.is_worth_packing(info_of((256, 8), large).with_attributes(turned), large)
    assert packing.is_worth_packing(info_of((256, "rows"), large).with_attributes(turned), large)
    assert not packing.is_worth_packing(info_of((256, 7), large).with_attributes(turned), large)
    assert not packing.is_worth_packing(info_of(("rows", 255), small), small)
    doubles = ArrayTensor(np.zeros((512, 512)))
    assert not packing.is_worth_packing(info_of(("rows", 512), doubles), doubles)


def test_large_matrices_of_other_files_stay_shared(monkeypatch):
    tensor = ArrayTensor(random(300, 300))
    monkeypatch.setattr(packing, "MOST_PANEL_ELEMENTS", 300 * 300 - 1)
    assert not packing.is_worth_packing(info_of(("rows", 300), tensor), tensor)
    stored = {"session.prepack_cache_dir": "folder"}
    assert packing.is_worth_packing(info_of(("rows", 300), tensor, stored), tensor)


def save(path, weight, *, op_type="MatMul", **attributes):
    """A product and what follows it."""
    inner = weight.shape[1 if attributes.get("transB") else 0]
    graph = helper.make_graph(
        [helper.make_node(op_type, ["x", "w"], ["h"], **attributes), helper.make_node("Tanh", ["h"], ["y"])],
        "product",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [*(["batch"] if op_type == "MatMul" else []), "rows", inner])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(weight, "w")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def session_of(path, config=None):
    options = SessionOptions()
    for key, value in (config or {}).items():
        options.add_session_config_entry(key, value)
    return InferenceSession(path, options, providers=["CPUExecutionProvider"])


def check_session(session, weight, *, is_stack=True, runs=2):
    for batch, rows in ((1, 1), (2, 5), (1, 40), (3, 30)):
        x = random(*((batch,) if is_stack else ()), rows, weight.shape[0], seed=rows)
        for _ in range(runs):
            (found,) = session.run(None, {"x": x})
        np.testing.assert_allclose(found, np.tanh(x.astype(np.float64) @ weight), rtol=1e-4, atol=1e-5)


CONFIGS = ({}, {"session.disable_prepacking": "1"}, {"session.disable_programs": "1"})


@pytest.mark.parametrize("config", CONFIGS, ids=str)
@pytest.mark.parametrize(("op_type", "attributes"), [("MatMul", {}), ("Gemm", {"transB": 1}), ("Gemm", {})])
def test_sessions(tmp_path, config, op_type, attributes):
    weight = random(300, 400, seed=5) / 17
    given = np.ascontiguousarray(weight.T) if attributes.get("transB") else weight
    session = session_of(save(tmp_path / "model.onnx", given, op_type=op_type, **attributes), config)
    check_session(session, weight, is_stack=op_type == "MatMul")


@only_new_objects()
def test_sessions_of_one_file_share_the_panels(tmp_path, monkeypatch):
    made = []
    original = ConstantBGemm.use_prepacked

    def use_prepacked(self, weights, index):
        made.append(weights.buffers[0])
        original(self, weights, index)

    monkeypatch.setattr(ConstantBGemm, "use_prepacked", use_prepacked)
    weight = random(300, 400, seed=5) / 17
    path = save(tmp_path / "model.onnx", weight)
    for session in [session_of(path) for _ in range(2)]:
        check_session(session, weight)
    assert len(made) == 2
    assert address_of(made[0]) == address_of(made[1])
    assert address_of(made[0]) % 64 == 0
    assert not made[0].flags.writeable


def test_files_keep_the_panels(tmp_path, monkeypatch):
    weight, folder = random(300, 400, seed=5) / 17, tmp_path / "packed"
    path = save(tmp_path / "model.onnx", weight)
    config = {"session.prepack_cache_dir": str(folder)}
    check_session(session_of(path, config), weight)
    packed_bytes = panels_of(weight).nbytes
    assert any(file.stat().st_size >= packed_bytes for file in folder.rglob("*") if file.is_file())

    def packed(*_arguments, **_options):
        raise AssertionError("what a file keeps is not packed again")

    monkeypatch.setattr("ort_sdk_cpu.gemm.constant_b.packed_panels", packed)
    check_session(session_of(path, config), weight)


def test_a_model_is_saved_with_the_panels(tmp_path, monkeypatch):
    weight, target = random(300, 400, seed=5) / 17, tmp_path / "packed.onnx"
    options = SessionOptions()
    options.optimized_model_filepath = str(target)
    entries = {
        "optimized_model_external_initializers_file_name": "packed.data",
        "optimized_model_external_initializers_min_size_in_bytes": "0",
        "save_external_prepacked_constant_initializers": "1",
    }
    for key, value in entries.items():
        options.add_session_config_entry(f"session.{key}", value)
    InferenceSession(save(tmp_path / "model.onnx", weight), options, providers=["CPUExecutionProvider"])

    def packed(*_arguments, **_options):
        raise AssertionError("what the model has is not packed again")

    monkeypatch.setattr("ort_sdk_cpu.gemm.constant_b.packed_panels", packed)
    check_session(session_of(target), weight)


def test_a_session_on_several_threads(tmp_path):
    weight = random(300, 400, seed=5) / 17
    session = session_of(save(tmp_path / "model.onnx", weight))
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(check_session, session, weight, runs=10) for _ in range(16)]:
            done.result()


@pytest.mark.skipif(not SMAPS.exists(), reason="needs Linux's list of maps")
@only_new_objects()
@pytest.mark.parametrize("external", [False, True])
def test_the_files_memory_is_given_back(tmp_path, external):
    weight = random(2000, 1500, seed=5) / 44
    path = save(tmp_path / "model.onnx", weight)
    if external:
        onnx.save(onnx.load(path), path, save_as_external_data=True, location="weights.bin")
    session = session_of(path)
    check_session(session, weight)
    assert mapped_bytes(tmp_path) < weight.nbytes / 4


def mapped_bytes(folder):
    """Bytes of a folder's files that are mapped and in memory."""
    found, is_inside = 0, False
    for line in SMAPS.read_text(encoding="utf-8").splitlines():
        if "-" in line.split(" ", 1)[0]:
            is_inside = str(folder) in line
        elif is_inside and line.startswith("Rss:"):
            found += int(line.split()[1]) * 1024
    return found


_CHILD = """
import sys
sys.path.insert(0, {folder!r})
import test_gemm_packed as tests
for rows in (1, 4, 6, 9, 20, 50, 130):
    for transposed in (False, True):
        tests.check(rows, 301, 231, transposed=transposed)
"""


@pytest.mark.instruction_sets
@pytest.mark.parametrize("level", [level for level in InstructionSet if level < machine_instruction_set()])
def test_other_instruction_sets(level):
    environment = {**os.environ, "ORT_SDK_CPU_ISA": level.name.lower()}
    code = _CHILD.format(folder=str(Path(__file__).parent))
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=300)
