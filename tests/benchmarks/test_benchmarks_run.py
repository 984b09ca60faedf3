"""The benchmarks run and print their tables. Nothing here looks at a time."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SMALL = {
    "bench_bindings.py": ["--layers", "1", "--runs", "2", "--repetitions", "2"],
    "bench_creation.py": ["--models", "voice", "MatMulNBits", "--layers", "1", "--rounds", "1", "--warm", "1"],
    "bench_decode.py": [
        *("--layers", "2", "--contexts", "8", "--prompts", "4", "--forms", "float", "dequantized", "--modes", "shared"),
        *("--rounds", "1", "--seconds", "0.01", "--warm", "1"),
    ],
    "bench_decoders.py": ["--shapes", "tiny", "--past", "8", "--prefill", "4", "--rounds", "1", "--runs", "1"],
    "bench_dispatch.py": ["--nodes", "3", "30", "--runs", "2", "--repetitions", "2"],
    "bench_files.py": [str(ROOT / "examples" / "digits" / "digits.onnx"), "--rounds", "1"],
    "bench_import.py": ["--runs", "1"],
    "bench_load.py": ["--megabytes", "0.1", "--count", "2", "--rounds", "1"],
    "bench_matmul_nbits.py": ["--layers", "2", "--rows", "1", "--rounds", "1"],
    "bench_memory.py": ["--workloads", "tiny", "dynamic encoder, 16", "--rounds", "1"],
    "bench_opencl_dispatch.py": ["--kernels", "4", "--repetitions", "2"],
    "bench_ort_format.py": ["--megabytes", "0.1", "--rounds", "1"],
    "bench_opencl.py": ["--quick"],
    "bench_products.py": ["--rows", "1", "--only", "classifier", "--quick"],
    "bench_qdq.py": ["--layers", "1", "--rounds", "1", "--runs", "1"],
    "bench_vision.py": ["--models", "mobilenet_v2-b1", "resnet50-int8-b1", "--size", "32", "--runs", "1", "--repetitions", "1"],
    "bench_transformers.py": ["--models", "tiny", "--rounds", "1", "--seconds", "0.001"],
    "bench_start.py": ["--models", "voice", "--files", str(ROOT / "examples" / "digits" / "digits.onnx"), "--rounds", "1"],
    "bench_shapes.py": [
        *("--model", str(ROOT / "examples" / "digits" / "digits.onnx"), "--input", "image=1..8,1,8,8"),
        *("--count", "3", "--repetitions", "1"),
    ],
    "bench_small.py": ["--rows", "tiny", "encoder-turns", "--repetitions", "1", "--seconds", "0.001"],
    "bench_session.py": [
        *("--megabytes", "0.1", "--nodes", "9", "--tree-nodes", "900", "--rounds", "1", "--warm", "1"),
    ],
    "bench_weights.py": ["--quick", "--rounds", "1"],
}
ROWS = {
    "bench_bindings.py": ["4 inputs, 3 outputs", "session.run", "bound, outputs made", "bound, outputs given"],
    "bench_creation.py": ["voice activity", "language model, MatMulNBits"],
    "bench_decode.py": ["ort_sdk, float, shared", "onnxruntime, dequantized, shared"],
    "bench_decoders.py": ["group", "attention", "layers", "gpt", "whisper"],
    "bench_dispatch.py": ["replay, bound", "replay", "step by step"],
    "bench_files.py": ["digits.onnx", "1 models"],
    "bench_import.py": ["import numpy", "import ort_sdk"],
    "bench_load.py": ["ort_sdk, inline", "onnx.load, inline", "ort_sdk, external", "onnx.load, external"],
    "bench_matmul_nbits.py": ["1 onnxruntime 4", "1 rows 4", "1 columns 0"],
    "bench_memory.py": ["200 tiny nodes", "dynamic encoder, 16"],
    "bench_opencl_dispatch.py": ["device"],
    "bench_ort_format.py": ["ort_sdk", "onnxruntime", "ort_sdk, unpacked"],
    "bench_opencl.py": ["sgemm 512 x 512 x 512", "4 bits 1 x 3072 x 3072"],
    "bench_products.py": ["1 x 512 x 1000"],
    "bench_qdq.py": ["ort_sdk, DQ+MatMul", "onnxruntime, MatMulNBits", "ort_sdk, folder, later", "ort_sdk, saved, first"],
    "bench_vision.py": ["mobilenet_v2-b1", "resnet50-int8-b1"],
    "bench_session.py": ["ort_sdk", "onnxruntime", "times onnxruntime's"],
    "bench_start.py": ["voice activity", "digits.onnx"],
    "bench_shapes.py": ["digits"],
    "bench_small.py": ["tiny", "encoder-turns"],
    "bench_transformers.py": ["tiny encoder", "tiny LSTM"],
    "bench_weights.py": [
        "ort_sdk, unpacked",
        "ort_sdk, unpacked sessions",
        "ort_sdk, unpacked processes",
        "onnxruntime, sessions, add_initializer",
        "ort_sdk, unaligned, unpacked",
    ],
}
PAGE = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")


@pytest.mark.benchmarks
@pytest.mark.parametrize("script", sorted(SMALL))
def test_benchmark_prints_its_rows(script):
    command = [sys.executable, "-P", ROOT / "benchmarks" / script, *SMALL[script]]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    first_words = [line.strip().split("  ")[0] for line in done.stdout.splitlines()]
    assert [row for row in ROWS[script] if row not in first_words] == []


def test_every_benchmark_is_tested_and_described():
    scripts = {path.name for path in (ROOT / "benchmarks").glob("bench_*.py")}
    assert scripts == set(SMALL)
    assert [script for script in scripts if f"`{script}`" not in PAGE] == []


@pytest.mark.benchmarks
def test_versions_are_compared_by_row_and_column():
    here, small = sys.executable, SMALL["bench_small.py"]
    options = ["--rounds", "2", "--columns", "ort_sdk .s", "--check", "1000"]
    command = [here, "-P", ROOT / "benchmarks" / "compare_versions.py", *options, here, here, "bench_small.py", *small]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = [line.split("  ")[0].split(", ") for line in done.stdout.splitlines()]
    assert rows == [["encoder-turns", "ort_sdk µs"], ["tiny", "ort_sdk µs"]]
    command[command.index("1000")] = "0"
    assert subprocess.run(command, capture_output=True, check=False).returncode == 1
