"""Split-K GEMM of few rows, in which each thread reads whole rows of B."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from ort_sdk_cpu.gemm.plan import GemmCall, plan_gemm
from ort_sdk_cpu.gemm.select import GemmAlgorithm, GemmProblem
from ort_sdk_cpu.kernel.activation import Activation, ActivationKind
from ort_sdk_cpu.memory.workspace import Workspace
from ort_sdk_cpu.platform import libraries

from ort_sdk import InferenceSession, SessionOptions

pytestmark = pytest.mark.skipif(
    not (libraries.compiled_kernels().is_usable and libraries.has_openmp()), reason="GEMMs are compiled, threads are OpenMP's"
)

COLUMNS, STEPS = 4096, 32
"""Most columns of split-K, and fewest rows of B for each thread."""


def algorithm_of(threads, rows, inner, columns, **others):
    return plan_gemm(GemmProblem(rows, inner, columns, **others), threads).partition.algorithm


def test_where_threads_share_rows():
    assert algorithm_of(2, 1, 512, 768) == GemmAlgorithm.SPLIT_K
    assert algorithm_of(2, 3, 512, 768) == GemmAlgorithm.SPLIT_K
    assert algorithm_of(1, 1, 512, 768) != GemmAlgorithm.SPLIT_K
    assert algorithm_of(2, 4, 512, 768) != GemmAlgorithm.SPLIT_K
    assert algorithm_of(2, 4, 512, 1024) == GemmAlgorithm.SPLIT_K
    assert algorithm_of(2, 9, 512, 1024) != GemmAlgorithm.SPLIT_K
    assert algorithm_of(2, 1, 512, COLUMNS + 1) != GemmAlgorithm.SPLIT_K
    assert algorithm_of(2, 1, 2 * STEPS - 1, COLUMNS) != GemmAlgorithm.SPLIT_K
    assert algorithm_of(2, 1, 512, 768, trans_b=True) != GemmAlgorithm.SPLIT_K
    assert algorithm_of(2, 1, 512, 768, is_float16=True) != GemmAlgorithm.SPLIT_K


@pytest.mark.parametrize("shift", [0, 1, 20])
@pytest.mark.parametrize(("inner", "columns"), [(4097, 33), (300, 1000), (1001, 257), (64, COLUMNS)])
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 6])
def test_results_are_those_of_float64(rows, inner, columns, shift):
    rng = np.random.default_rng(rows)
    a, bias = (rng.standard_normal(shape, dtype=np.float32) for shape in ((rows, inner), (columns,)))
    b = rng.standard_normal((inner, columns), dtype=np.float32)
    anywhere = np.zeros(b.nbytes + shift, np.uint8)[shift:]
    anywhere[:] = b.view(np.uint8).reshape(-1)
    assert (algorithm_of(2, rows, inner, columns) == GemmAlgorithm.SPLIT_K) == (rows < 4 or columns >= 1024)
    product = GemmCall(
        GemmProblem(rows, inner, columns),
        Workspace(),
        alpha=0.5,
        activation=Activation(ActivationKind.LEAKY_RELU),
        most_threads=2,
    )
    out = np.full((rows, columns), np.nan, np.float32)
    product(a, anywhere, bias, out)
    expected = np.maximum(0.5 * (a.astype(np.float64) @ b) + bias, 0)
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


def test_one_thread_alone_has_the_same_results(monkeypatch):
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape, dtype=np.float32) for shape in ((2, 512), (512, 768)))
    product = GemmCall(GemmProblem(2, 512, 768), Workspace(), most_threads=2)
    together, alone = (np.empty((2, 768), np.float32) for _ in range(2))
    product(a, b, None, together)
    monkeypatch.setattr(libraries, "has_openmp", lambda: False)
    GemmCall(GemmProblem(2, 512, 768), Workspace(), most_threads=2)(a, b, None, alone)
    np.testing.assert_allclose(alone, together, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("lengths", [(1, 1, 1, 1), (1, 2, 3, 1, 2, 3, 4, 5)])
def test_products_that_follow_each_other(lengths):
    """In a session, of any number of rows: with a program for them, and by the sequence of tasks that takes new ones."""
    rng, size, count = np.random.default_rng(1), 512, 6
    weights = [rng.standard_normal((size, size), dtype=np.float32) / 20 for _ in range(count)]
    nodes = [helper.make_node("MatMul", [f"v{index}", f"w{index}"], [f"p{index}"]) for index in range(count)]
    nodes += [helper.make_node("Tanh", [f"p{index}"], [f"v{index + 1}"]) for index in range(count)]
    nodes = [node for pair in zip(nodes[:count], nodes[count:], strict=True) for node in pair]
    nodes += [helper.make_node("MatMul", ["v0", "w1"], ["z1"]), helper.make_node("MatMul", ["v0", "w2"], ["z2"])]
    constants = [numpy_helper.from_array(weight, f"w{index}") for index, weight in enumerate(weights)]
    outputs = [f"v{count}", "z1", "z2"]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", size]) for name in ("v0", *outputs)]
    graph = helper.make_graph(nodes, "graph", values[:1], values[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    options = SessionOptions()
    options.intra_op_num_threads = 2
    session = InferenceSession(model.SerializeToString(), options)
    for length in lengths:
        x = rng.standard_normal((length, size), dtype=np.float32)
        last = x.astype(np.float64)
        for weight in weights:
            last = np.tanh(last @ weight)
        found = session.run(None, {"v0": x})
        for result, expected in zip(found, (last, x @ weights[1], x @ weights[2]), strict=True):
            np.testing.assert_allclose(result, expected, rtol=1e-4, atol=2e-4)


@pytest.mark.parametrize(("count", "rows"), [(2, 1), (3, 3), (2, 4)])
def test_batches_of_fewer_matrices_than_threads(count, rows):
    """Threads share each matrix's columns: rows of B are for one matrix only."""
    rng, size = np.random.default_rng(count), 1024
    a, b = (rng.standard_normal((count, *shape), dtype=np.float32) for shape in ((rows, size), (size, size)))
    shapes = {"a": a.shape, "b": b.shape, "y": a.shape}
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    graph = helper.make_graph([helper.make_node("MatMul", ["a", "b"], ["y"])], "graph", values[:2], values[2:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    options = SessionOptions()
    options.intra_op_num_threads = 4
    session = InferenceSession(model.SerializeToString(), options)
    expected = a.astype(np.float64) @ b
    for _ in range(3):
        (found,) = session.run(None, {"a": a, "b": b})
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=2e-4)
