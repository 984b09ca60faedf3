"""Products with 4-bit weights beside onnxruntime: one row of activations (decoding) to many (prefill).

    python -P benchmarks/bench_matmul_nbits.py [--rows 1 8 128] [--layers 12] [--rounds 7] [--threads 2] [--zero-points] [--busy]

A chain of products 3072 -> 8192 -> 3072 ..., block 32, with ``accuracy_level`` 4 (8-bit activations) and 0 (float32). Ours runs
it as MatMulNBits (`rows`) and as DequantizeLinear + MatMul of the same numbers (`columns`); onnxruntime as MatMulNBits. They
take turns in one process; times are medians over the rounds. `ratio` is onnxruntime's time over ours at the same accuracy level,
`error` the largest difference from a float64 chain over its largest element. Needs onnxruntime.
"""

from __future__ import annotations

import argparse
import functools
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

sys.path.append(str(Path(__file__).parent))
import processes

BLOCK = 32
SIZES = (3072, 8192)
INNER = 4
"""Runs of a library in a row."""
REST_SECONDS = 0.05
"""Before each turn, for the other library's threads to stop waiting for more."""


class Layer:
    """One weight, with its scales and zero points (8 where there are none)."""

    def __init__(self, rng: np.random.Generator, size_k: int, size_n: int, *, zero_points: bool) -> None:
        self.size_k, self.size_n = size_k, size_n
        self.codes = rng.integers(0, 16, (size_n, size_k), dtype=np.uint8)
        self.scales = (rng.uniform(0.5, 1.5, (size_n, size_k // BLOCK)) * 0.2 / size_k**0.5).astype(np.float32)
        shape = self.scales.shape
        self.zeros = rng.integers(5, 11, shape, dtype=np.uint8) if zero_points else np.full(shape, 8, np.uint8)
        self.has_zeros = zero_points

    def apply(self, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        weight = self.codes.reshape(self.size_n, -1, BLOCK) - self.zeros[..., None].astype(np.float64)
        return np.asarray(x @ (weight * self.scales[..., None]).reshape(self.size_n, self.size_k).T)

    def constants(self, name: str, *, by_columns: bool) -> list[onnx.TensorProto]:
        if not by_columns:
            packed = numpy_helper.from_array(pack(self.codes).reshape(self.size_n, -1, BLOCK // 2), f"{name}w")
            zeros = [numpy_helper.from_array(pack(self.zeros), f"{name}z")] if self.has_zeros else []
            return [packed, numpy_helper.from_array(self.scales, f"{name}s"), *zeros]
        scales = numpy_helper.from_array(np.ascontiguousarray(self.scales.T), f"{name}s")
        zeros = int4(f"{name}z", self.zeros.T) if self.has_zeros else None
        return [int4(f"{name}w", self.codes.T), scales, *([zeros] if zeros is not None else [])]


def pack(codes: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.asarray(codes[..., 0::2] | codes[..., 1::2] << 4)


def int4(name: str, codes: np.ndarray[Any, Any]) -> onnx.TensorProto:
    """Codes less 8 as a tensor of INT4."""
    data = pack(np.ascontiguousarray(codes)) ^ 0x88
    return helper.make_tensor(name, TensorProto.INT4, codes.shape, data.tobytes(), raw=True)


def model(layers: list[Layer], accuracy_level: int, *, by_columns: bool) -> bytes:
    nodes, constants, x = [], [], "x"
    for index, layer in enumerate(layers):
        name, y = f"l{index}", "y" if index == len(layers) - 1 else f"y{index}"
        tensors = layer.constants(name, by_columns=by_columns)
        constants += tensors
        names = [tensor.name for tensor in tensors]
        if by_columns:
            nodes.append(helper.make_node("DequantizeLinear", names, [f"{name}d"], axis=0, block_size=BLOCK))
            nodes.append(helper.make_node("MatMul", [x, f"{name}d"], [y]))
        else:
            sizes = {"K": layer.size_k, "N": layer.size_n, "bits": 4, "block_size": BLOCK, "accuracy_level": accuracy_level}
            nodes.append(helper.make_node("MatMulNBits", [x, *names], [y], domain="com.microsoft", **sizes))
        x = y
    shapes = [("x", layers[0].size_k), ("y", layers[-1].size_n)]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, "rows", size]) for name, size in shapes]
    graph = helper.make_graph(nodes, "products", values[:1], values[1:], constants)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def session(runtime: Any, layers: list[Layer], level: int, threads: int, *, by_columns: bool = False) -> Any:
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", str(level))
    data = model(layers, level, by_columns=by_columns)
    return runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def run(made: Any, x: np.ndarray[Any, Any]) -> Any:
    return made.run(None, {"x": x})[0]


def medians(runs: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, call in runs.items():
            time.sleep(REST_SECONDS)
            call()
            for _ in range(INNER):
                start = time.perf_counter()
                call()
                times[name].append((time.perf_counter() - start) * 1e3)
    return {name: statistics.median(values) for name, values in times.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description="Products with 4-bit weights")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8, 128])
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--zero-points", action="store_true")
    parser.add_argument("--busy", action="store_true", help="with one core busy elsewhere")
    arguments = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", str(arguments.threads))
    import onnxruntime

    import ort_sdk

    rng = np.random.default_rng(0)
    sizes = [(SIZES[index % 2], SIZES[(index + 1) % 2]) for index in range(arguments.layers)]
    layers = [Layer(rng, *size, zero_points=arguments.zero_points) for size in sizes]
    sessions = {}
    for level in (4, 0):
        sessions[f"onnxruntime {level}"] = session(onnxruntime, layers, level, arguments.threads)
        sessions[f"rows {level}"] = session(ort_sdk, layers, level, arguments.threads)
        sessions[f"columns {level}"] = session(ort_sdk, layers, level, arguments.threads, by_columns=True)
    print(f"{'rows':>5} {'':16} {'ms':>8} {'ratio':>6} {'error':>8}")
    for rows in arguments.rows:
        x = rng.standard_normal((1, rows, SIZES[0])).astype(np.float32)
        expected = x[0].astype(np.float64)
        for layer in layers:
            expected = layer.apply(expected)
        runs = {name: functools.partial(run, made, x) for name, made in sessions.items()}
        errors = {name: np.abs(call()[0] - expected).max() / np.abs(expected).max() for name, call in runs.items()}
        with processes.busy_core(wanted=arguments.busy):
            found = medians(runs, arguments.rounds)
        for name, value in found.items():
            ratio = found[f"onnxruntime {name[-1]}"] / value
            print(f"{rows:5} {name:16} {value:8.3f} {ratio:6.2f} {errors[name]:8.1e}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
