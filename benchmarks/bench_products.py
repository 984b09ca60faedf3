"""Products with a constant float32 matrix: read in place, packed for oneDNN, and in onnxruntime.

    python -P benchmarks/bench_products.py [--rows 1 128] [--only bert minilm llm classifier] [--transposed] [--quick]

One matrix is multiplied with several weights, together larger than the processor's caches, so that weights come from
memory as in a model; onnxruntime runs a session with a MatMul (Gemm with transB for `--transposed`) for each. The three
take turns, on the same inputs, in one process; each one's fastest turn counts. Columns: microseconds for a product in
place, GFLOP/s, its weight's GB/s; how many times longer the others take (above 1: in place is faster); the error beside
float64 (root mean square), as a multiple of onnxruntime's. Needs onnxruntime.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper
from ort_sdk_cpu.memory.workspace import Workspace
from ort_sdk_cpu.platform.libraries import set_environment

set_environment()

SHAPES = {
    "bert": ((768, 768), (768, 3072), (3072, 768)),
    "minilm": ((384, 384), (384, 1536), (1536, 384)),
    "llm": ((3072, 8192), (4096, 4096)),
    "classifier": ((512, 1000),),
}
ROWS = (1, 2, 4, 7, 16, 32, 64, 128, 256, 512)
WEIGHT_BYTES = 80e6
SECONDS = 0.03
"""Of each library's turn."""
PAUSE = 0.03
"""Seconds between turns."""
THREADS = 2

Run = Callable[[], Any]


def model(weights: list[Any], rows: int, *, transposed: bool) -> bytes:
    """One product of x with each weight."""
    operator, attributes = ("Gemm", {"transB": 1}) if transposed else ("MatMul", {})
    inner, columns = weights[0].shape[::-1] if transposed else weights[0].shape
    names = [str(index) for index in range(len(weights))]
    nodes = [helper.make_node(operator, ["x", f"w{name}"], [f"y{name}"], **attributes) for name in names]
    outputs = [helper.make_tensor_value_info(f"y{name}", TensorProto.FLOAT, (rows, columns)) for name in names]
    constants = [onnx.numpy_helper.from_array(weight, f"w{name}") for name, weight in zip(names, weights, strict=True)]
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, (rows, inner))
    graph = helper.make_graph(nodes, "products", [given], outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()


def onnxruntime_runs(weights: list[Any], x: Any, out: Any, *, transposed: bool) -> list[Run]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    data = model(weights, len(x), transposed=transposed)
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    binding.bind_cpu_input("x", x)
    spare = np.empty_like(out)
    *others, last = session.get_outputs()
    for value, array in [*((value, spare) for value in others), (last, out)]:
        binding.bind_output(value.name, "cpu", 0, np.float32, array.shape, array.ctypes.data)
    return [lambda: (session.run_with_iobinding(binding), out, spare)]


def in_place_runs(weights: list[Any], x: Any, out: Any, *, transposed: bool) -> list[Run]:
    from ort_sdk_cpu.gemm.plan import GemmCall
    from ort_sdk_cpu.gemm.select import GemmProblem

    sizes, workspace = GemmProblem(*x.shape, out.shape[1], trans_b=transposed), Workspace()
    return [GemmCall(sizes, workspace).bind_arrays(x, weight, None, out) for weight in weights]


def packed_runs(weights: list[Any], x: Any, out: Any, *, transposed: bool) -> list[Run]:
    from ort_sdk_cpu.gemm.onednn import packed_layout
    from ort_sdk_cpu.kernel.layouts.memory import contiguous
    from ort_sdk_cpu.kernel.onednn import PrimitiveCall
    from ort_sdk_cpu.onednn.constants import Argument
    from ort_sdk_cpu.onednn.execution import reordered
    from ort_sdk_cpu.onednn.memory_descriptor import strided
    from ort_sdk_cpu.onednn.primitive import matmul

    inner, columns = x.shape[1], out.shape[1]
    layout, given = packed_layout(inner, columns), strided((inner, columns), x.dtype, (1, inner) if transposed else (columns, 1))
    source, target, workspace = contiguous(x.shape, x.dtype), contiguous(out.shape, x.dtype), Workspace()
    ends = [(Argument.SRC, source, source), (Argument.DST, target, target)]
    primitive = matmul(source, layout, None, target)
    packed = [reordered(weight, given, layout) for weight in weights]
    return [
        PrimitiveCall(primitive, ends, [(int(Argument.WEIGHTS), layout, weight)], workspace).bind_arrays(x, out)
        for weight in packed
    ]


def seconds(runs: list[Run], repeats: int) -> float:
    """Of all runs; threads of the library before have gone to sleep."""
    time.sleep(PAUSE)
    for run in runs[-3:]:
        run()
    start = time.perf_counter()
    for _ in range(repeats):
        for run in runs:
            run()
    return (time.perf_counter() - start) / repeats


def measure(rows: int, inner: int, columns: int, *, transposed: bool, rounds: int) -> str:
    rng = np.random.default_rng(0)
    shape, count = (columns, inner) if transposed else (inner, columns), max(2, int(WEIGHT_BYTES / (4 * inner * columns)))
    weights = [rng.standard_normal(shape, np.float32) for _ in range(count)]
    x = rng.standard_normal((rows, inner), np.float32)
    expected = x.astype(np.float64) @ (weights[-1].T if transposed else weights[-1])
    runs, errors = {}, {}
    for make in (in_place_runs, packed_runs, onnxruntime_runs):
        out = np.empty((rows, columns), np.float32)
        runs[make] = make(weights, x, out, transposed=transposed)
        runs[make][-1]()
        errors[make] = np.sqrt(np.mean(np.square(out - expected)))
    repeats = max(1, int(SECONDS / count / (2 * rows * inner * columns / 4e11 + 4 * inner * columns / 5e10)))
    times: dict[Any, list[float]] = {make: [] for make in runs}
    for _ in range(rounds):
        for make, calls in runs.items():
            times[make].append(seconds(calls, repeats) / count)
    own = min(times[in_place_runs])
    ratios = [min(times[make]) / own for make in (packed_runs, onnxruntime_runs)]
    work, read = 2 * rows * inner * columns / own / 1e9, 4 * inner * columns / own / 1e9
    error = errors[in_place_runs] / errors[onnxruntime_runs]
    sizes = f"{rows} x {inner} x {columns}".ljust(19)
    return f"{sizes}  {own * 1e6:10.0f} {work:8.0f} {read:6.1f} {ratios[0]:10.2f} {ratios[1]:12.2f} {error:8.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=ROWS)
    parser.add_argument("--only", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--transposed", action="store_true", help="weights are (columns, inner)")
    parser.add_argument("--quick", action="store_true", help="two rounds")
    arguments = parser.parse_args()
    print(f"{'product':19s}  {'us':>10s} {'GFLOP/s':>8s} {'GB/s':>6s} {'oneDNN':>10s} {'onnxruntime':>12s} {'error':>8s}")
    for name in arguments.only:
        for inner, columns in SHAPES[name]:
            for rows in arguments.rows:
                rounds = 2 if arguments.quick else 7
                print(measure(rows, inner, columns, transposed=arguments.transposed, rounds=rounds), flush=True)


if __name__ == "__main__":
    main()
