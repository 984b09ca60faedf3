"""Models of products with 4-bit weights: results beside onnxruntime's, and what they cost in private memory."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.external_data_helper import convert_model_to_external_data
from ort_sdk_cpu.platform import libraries
from ort_sdk_cpu.platform.cpu_features import has_amx

import ort_sdk

pytestmark = pytest.mark.skipif(not libraries.compiled_kernels().is_usable, reason="numba is not installed")

BLOCK = 32
FORMS = ("MatMulNBits", "DQ+MatMul")
ROWS, MANY_ROWS = (1, 2, 3, 7, 16), (40, 130)

MEASURE = """
import sys
import numpy as np
import ort_sdk

def private_bytes():
    with open("/proc/self/smaps_rollup") as file:
        fields = dict(line.split(":") for line in file if ":" in line)
    return sum(int(fields[name].split()[0]) for name in ("Pss_Anon", "Pss_Shmem")) << 10

def run(path):
    session = ort_sdk.InferenceSession(path)
    size = session.get_inputs()[0].shape[-1]
    for rows in (1, 1, 4, 16, 16):
        session.run(None, {"x": np.ones((1, rows, size), np.float32)})
    return session

run(sys.argv[1])
before = private_bytes()
kept = run(sys.argv[2])
print(private_bytes() - before)
"""


def pack(codes):
    return codes[..., 0::2] | codes[..., 1::2] << 4


def constants(form, codes, scales):
    """Operands of the weight (N, K)."""
    if form == "MatMulNBits":
        packed = pack(codes).reshape(len(codes), -1, BLOCK // 2)
        return [numpy_helper.from_array(packed, "w"), numpy_helper.from_array(scales, "s")]
    data = pack(np.ascontiguousarray(codes.T)) ^ 0x88
    weight = helper.make_tensor("w", TensorProto.INT4, codes.T.shape, data.tobytes(), raw=True)
    return [weight, numpy_helper.from_array(np.ascontiguousarray(scales.T), "s")]


def numbers(size_k, size_n):
    """Codes and scales of a weight."""
    rng = np.random.default_rng([size_k, size_n])
    codes = rng.integers(0, 16, (size_n, size_k), dtype=np.uint8)
    return codes, rng.uniform(0.01, 0.03, (size_n, size_k // BLOCK)).astype(np.float32)


def model(form, size_k, size_n, accuracy_level=4):
    codes, scales = numbers(size_k, size_n)
    if form == "MatMulNBits":
        sizes = {"K": size_k, "N": size_n, "bits": 4, "block_size": BLOCK, "accuracy_level": accuracy_level}
        nodes = [helper.make_node("MatMulNBits", ["x", "w", "s"], ["y"], domain="com.microsoft", **sizes)]
    else:
        nodes = [
            helper.make_node("DequantizeLinear", ["w", "s"], ["d"], axis=0, block_size=BLOCK),
            helper.make_node("MatMul", ["x", "d"], ["y"]),
        ]
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, "rows", size]) for name, size in (("x", size_k), ("y", size_n))
    ]
    graph = helper.make_graph(nodes, "product", values[:1], values[1:], constants(form, codes, scales))
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def results(form, level, row_counts, size_k=1024, size_n=768):
    """Activations, our result and onnxruntime's for some numbers of rows."""
    sessions = []
    for runtime, its_form in ((ort_sdk, form), (onnxruntime, "MatMulNBits")):
        options = runtime.SessionOptions()
        options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", str(level))
        data = model(its_form, size_k, size_n, level).SerializeToString()
        sessions.append(runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"]))
    for rows in row_counts:
        x = np.random.default_rng(rows).standard_normal((1, rows, size_k)).astype(np.float32)
        yield x[0].astype(np.float64), *(session.run(None, {"x": x})[0] for session in sessions)


@pytest.mark.parametrize(
    ("form", "level", "row_counts"),
    [("MatMulNBits", 0, ROWS), ("DQ+MatMul", 0, ROWS), ("MatMulNBits", 4, ROWS[-1:]), ("DQ+MatMul", 4, ROWS)],
)
def test_results_are_onnxruntimes(form, level, row_counts):
    for _, ours, theirs in results(form, level, row_counts):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=2e-5 * np.abs(theirs).max())


def check_that_ours_are_nearer_to_the_truth(form, row_counts):
    codes, scales = numbers(1024, 768)
    weight = (codes.reshape(768, -1, BLOCK) - 8.0) * scales[..., None]
    for x, *both in results(form, 4, row_counts):
        expected = x @ weight.reshape(768, 1024).T
        ours, theirs = (np.square(found - expected).mean() for found in both)
        assert 0 < ours < 0.6 * theirs


def test_few_rows_quantised_are_nearer_to_the_truth_than_onnxruntimes():
    check_that_ours_are_nearer_to_the_truth("MatMulNBits", ROWS[:-1])


@pytest.mark.skipif(not has_amx(), reason="a processor without a matrix unit")
@pytest.mark.parametrize("form", FORMS)
def test_many_rows_rounded_are_nearer_to_the_truth_than_onnxruntimes(form):
    check_that_ours_are_nearer_to_the_truth(form, MANY_ROWS)


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
@pytest.mark.parametrize("form", FORMS)
def test_weights_cost_no_private_memory(form, tmp_path):
    paths = []
    for size_n in (256, 32768):
        made, folder = model(form, 4096, size_n), tmp_path / str(size_n)
        folder.mkdir()
        convert_model_to_external_data(made, location="weights.bin", size_threshold=1024)
        onnx.save(made, folder / "model.onnx")
        paths.append(str(folder / "model.onnx"))
    weights = (Path(paths[1]).parent / "weights.bin").stat().st_size
    done = subprocess.run([sys.executable, "-c", MEASURE, *paths], capture_output=True, text=True, check=True)
    outputs = 16 * 32768 * 4
    assert int(done.stdout) < max(0.01 * weights, 5 << 20) + 2 * outputs
