"""Products and convolutions of the OpenCL provider on a processor, beside NumPy's BLAS and the CPU provider.

    python -P benchmarks/bench_opencl.py [--only sgemm conv nbits] [--rounds 5] [--threads 2] [--device 0] [--cpu-time] [--quick]

Chains of one operator with constant weights run in sessions of both providers and take turns with NumPy's product of 1024 x 1024
matrices; each one's fastest turn counts. Columns: milliseconds for an operator of the chain, GFLOP/s, how many times NumPy's
GFLOP/s that is, how many times as fast as the CPU provider it is, and the largest difference from that, over its largest element.
``--cpu-time`` measures the time that the process computes, with one thread: other work on the machine counts less then.
``--threads`` are PoCL's, NumPy's and the CPU provider's.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

PARSER = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
PARSER.add_argument("--only", nargs="*", default=[])
PARSER.add_argument("--rounds", type=int, default=5)
PARSER.add_argument("--threads", type=int, default=2)
PARSER.add_argument("--device", type=int, default=0)
PARSER.add_argument("--cpu-time", action="store_true")
PARSER.add_argument("--quick", action="store_true")
OPTIONS = PARSER.parse_args()
THREADS = 1 if OPTIONS.cpu_time else OPTIONS.threads
# Libraries read these when they are loaded.
os.environ |= {"POCL_MAX_PTHREAD_COUNT": str(THREADS), "OPENBLAS_NUM_THREADS": str(THREADS)}
os.environ.setdefault("PYOPENCL_NO_CACHE", "1")
# What the CPU provider compiles in the background would be measured, too.
os.environ.setdefault("ORT_SDK_COMPILATION", "wait")

import numpy as np  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

import ort_sdk as ort  # noqa: E402

CHAIN = 4
"""Operators of a chain: what it takes to bring its input to the device and its result back counts little then."""
SGEMM = ((512, 512, 512), (1024, 1024, 1024), (128, 768, 768), (8, 1024, 1024), (1, 1024, 1024))
CONVOLUTIONS = ((64, 56, 3, 1), (128, 28, 3, 1), (256, 14, 3, 1), (512, 7, 3, 1), (64, 56, 1, 1), (96, 56, 3, 96))
"""Channels, height and width, kernel, groups."""
BITS = ((1, 4), (8, 4), (128, 4), (1, 8))
"""Rows, bits of a weight of 3072 x 3072."""
NBITS_SIZE, BLOCK = 3072, 32
SECONDS, LEAST_TURNS = 0.2, 3
"""Of one in a round."""

clock = time.process_time if OPTIONS.cpu_time else time.perf_counter


@dataclass(frozen=True)
class Case:
    """A chain of one operator."""

    name: str
    model: bytes
    x: Any
    operations: float
    """Floating-point operations of one operator."""


def chain(nodes: list[Any], constants: list[Any], x: Any) -> bytes:
    shape = list(x.shape)
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("v0", f"v{CHAIN}")]
    graph = helper.make_graph(nodes, "chain", values[:1], values[1:], constants)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


def layers(op_type: str, constants: Callable[[int], list[Any]], x: Any, domain: str = "", **attributes: Any) -> bytes:
    nodes, weights = [], []
    for index in range(CHAIN):
        own = constants(index)
        weights += own
        names = [f"v{index}", *(each.name for each in own)]
        nodes.append(helper.make_node(op_type, names, [f"v{index + 1}"], domain=domain, **attributes))
    return chain(nodes, weights, x)


def cases(wanted: list[str]) -> Iterator[Case]:
    rng = np.random.default_rng(0)

    def floats(*shape: int) -> Any:
        return rng.standard_normal(shape).astype(np.float32)

    if "sgemm" in wanted:
        for m, k, n in SGEMM[:: 3 if OPTIONS.quick else 1]:
            x, w = floats(m, k), floats(k, n) / k**0.5
            model = layers("MatMul", lambda i, w=w: [numpy_helper.from_array(w, f"w{i}")], x)
            yield Case(f"sgemm {m} x {k} x {n}", model, x, 2.0 * m * k * n)
    if "conv" in wanted:
        for channels, size, kernel, groups in CONVOLUTIONS[:: 3 if OPTIONS.quick else 1]:
            terms = channels // groups * kernel * kernel
            x, w = floats(1, channels, size, size), floats(channels, channels // groups, kernel, kernel) / terms**0.5
            attributes = {"pads": [kernel // 2] * 4, "group": groups}
            model = layers("Conv", lambda i, w=w: [numpy_helper.from_array(w, f"w{i}")], x, **attributes)
            name = f"conv {kernel}x{kernel} {channels} channels {size}x{size} {groups} groups"
            yield Case(name, model, x, 2.0 * channels * size * size * terms)
    if "nbits" in wanted:
        for rows, bits in BITS[:: 3 if OPTIONS.quick else 1]:
            size = NBITS_SIZE
            codes = rng.integers(0, 256, (size, size // BLOCK, BLOCK * bits // 8), dtype=np.uint8)
            scales = np.full((size, size // BLOCK), 2.0 / (1 << bits) / size**0.5, np.float32)
            x = floats(rows, size)

            def constants(i: int, codes: Any = codes, scales: Any = scales) -> list[Any]:
                return [numpy_helper.from_array(codes, f"w{i}"), numpy_helper.from_array(scales, f"s{i}")]

            attributes = {"K": size, "N": size, "bits": bits, "block_size": BLOCK}
            model = layers("MatMulNBits", constants, x, "com.microsoft", **attributes)
            yield Case(f"{bits} bits {rows} x {size} x {size}", model, x, 2.0 * rows * size * size)


def session(model: bytes, providers: list[Any]) -> Any:
    options = ort.SessionOptions()
    options.intra_op_num_threads = THREADS
    return ort.InferenceSession(model, options, providers=providers)


def fastest(run: Callable[[], Any], seconds: float) -> float:
    """Seconds of the fastest of the turns of some time, at least three."""
    found: list[float] = []
    start = time.perf_counter()
    while len(found) < LEAST_TURNS or time.perf_counter() - start < seconds:
        begin = clock()
        run()
        found.append(clock() - begin)
    return min(found)


def main() -> int:
    wanted = OPTIONS.only or ["sgemm", "conv", "nbits"]
    rounds, seconds = (1, 0.0) if OPTIONS.quick else (OPTIONS.rounds, SECONDS)
    a = np.random.default_rng(1).standard_normal((1024, 1024)).astype(np.float32)
    out = np.empty_like(a)
    print(f"{'':44}{'ms':>9}{'GFLOP/s':>9}{'/ NumPy':>9}{'/ CPU':>8}{'difference':>12}")
    for case in cases(wanted):
        sessions = [
            session(case.model, [("OpenCLExecutionProvider", {"device_id": str(OPTIONS.device)}), "CPUExecutionProvider"]),
            session(case.model, ["CPUExecutionProvider"]),
        ]
        runs: list[Callable[[], Any]] = [lambda s=s, x=case.x: s.run(None, {"v0": x})[0] for s in sessions]  # type: ignore[misc]
        results = [[run() for _ in range(3)][-1] for run in runs]
        difference = np.abs(results[0] - results[1]).max() / np.abs(results[1]).max()
        runs.append(lambda: np.matmul(a, a, out=out))
        times = [min(column) for column in zip(*([fastest(run, seconds) for run in runs] for _ in range(rounds)), strict=True)]
        ours, cpu, blas = times[0] / CHAIN, times[1] / CHAIN, times[2]
        speed, blas_speed = case.operations / ours / 1e9, 2.0 * 1024**3 / blas / 1e9
        row = f"{ours * 1e3:9.3f}{speed:9.1f}{speed / blas_speed:9.2f}{cpu / ours:8.2f}{difference:12.1e}"
        print(f"{case.name:44}{row}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
