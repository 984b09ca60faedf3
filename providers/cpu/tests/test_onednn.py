"""The binding to oneDNN: primitives, attributes, layouts, threads."""

import concurrent.futures
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from ort_sdk_cpu.onednn import library as onednn_library
from ort_sdk_cpu.onednn.attributes import PrimitiveAttributes
from ort_sdk_cpu.onednn.constants import Algorithm, Argument, binary_post_op, scales_of, zero_points_of
from ort_sdk_cpu.onednn.execution import Execution, reordered
from ort_sdk_cpu.onednn.memory_descriptor import any_layout, of_array
from ort_sdk_cpu.onednn.post_ops import Binary, Eltwise, Sum
from ort_sdk_cpu.onednn.primitive import convolution, matmul, reorder

from ort_sdk.api import ExtentError, RuntimeException

pytestmark = pytest.mark.skipif(not onednn_library.is_available(), reason="oneDNN is not installed")


def run(primitive, **arrays):
    given = {Argument[name]: array for name, array in arrays.items()}
    return run_with(primitive, given)


def run_with(primitive, arrays, layouts=()):
    assert not primitive.implementation.startswith("ref")
    described = {argument: of_array(array) for argument, array in arrays.items()} | dict(layouts)
    execution = Execution(primitive, described)
    for argument, array in arrays.items():
        execution.set(argument, array)
    execution()
    return arrays[Argument.DST]


def random(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("sizes", [(1, 64, 32), (7, 33, 129), (64, 256, 48)], ids=str)
def test_matmul_with_packed_weight_bias_and_post_ops(sizes):
    rows, inner, columns = sizes
    a, b, bias, residual = random(rows, inner), random(inner, columns), random(1, columns), random(rows, columns)
    out = residual.copy()
    attributes = PrimitiveAttributes((Sum(0.5), Binary(Algorithm.BINARY_MUL, of_array(bias)), Eltwise(Algorithm.RELU)))
    primitive = matmul(of_array(a), any_layout(b.shape, b.dtype), of_array(bias), of_array(out), attributes)
    packed = reordered(b, of_array(b), primitive.layout(Argument.WEIGHTS))
    arrays = {Argument.SRC: a, Argument.WEIGHTS: packed, Argument.BIAS: bias, Argument.DST: out, binary_post_op(1): bias}
    run_with(primitive, arrays, {Argument.WEIGHTS: primitive.layout(Argument.WEIGHTS)})
    expected = np.maximum((a.astype(np.float64) @ b + bias + 0.5 * residual) * bias, 0)
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-4)


def test_integer_product_with_scales_and_zero_points():
    rng = np.random.default_rng(0)
    # without VNNI oneDNN adds pairs of products in 16 bits: numbers of 7 bits keep them exact on any processor
    a, b = rng.integers(0, 128, (5, 64), np.uint8), rng.integers(-127, 127, (64, 32), np.int8)
    scale_a, scale_b = np.array([0.02], np.float32), rng.random(32).astype(np.float32) / 50
    zero, out = np.array([100], np.int32), np.empty((5, 32), np.float32)
    attributes = PrimitiveAttributes(scales=((Argument.SRC, 0), (Argument.WEIGHTS, 2)), zero_points=((Argument.SRC, 0),))
    primitive = matmul(of_array(a), any_layout(b.shape, b.dtype), None, of_array(out), attributes)
    layout = primitive.layout(Argument.WEIGHTS)
    arrays = {Argument.SRC: a, Argument.WEIGHTS: reordered(b, of_array(b), layout), Argument.DST: out}
    arrays |= {scales_of(Argument.SRC): scale_a, scales_of(Argument.WEIGHTS): scale_b, zero_points_of(Argument.SRC): zero}
    run_with(primitive, arrays, {Argument.WEIGHTS: layout})
    expected = ((a.astype(np.int64) - 100) @ b) * scale_a.astype(np.float64) * scale_b
    np.testing.assert_allclose(out, expected, rtol=1e-5)


FUNCTIONS = {
    Algorithm.RELU: (0.25, 0, lambda x: np.where(x > 0, x, x / 4)),
    Algorithm.TANH: (0, 0, np.tanh),
    Algorithm.ELU: (0.5, 0, lambda x: np.where(x > 0, x, np.expm1(x) / 2)),
    Algorithm.LINEAR: (2, 3, lambda x: 2 * x + 3),
    Algorithm.SOFT_RELU: (1, 0, lambda x: np.log1p(np.exp(x))),
    Algorithm.HARD_SIGMOID: (0.2, 0.4, lambda x: np.clip(0.2 * x + 0.4, 0, 1)),
    Algorithm.LOGISTIC: (0, 0, lambda x: 1 / (1 + np.exp(-x))),
    Algorithm.EXP: (0, 0, np.exp),
    Algorithm.SWISH: (1, 0, lambda x: x / (1 + np.exp(-x))),
    Algorithm.CLIP_V2: (-1, 0.5, lambda x: np.clip(x, -1, 0.5)),
    Algorithm.CLIP: (-1, 0.5, lambda x: np.clip(x, -1, 0.5)),
    Algorithm.HARD_SWISH: (1 / 6, 0.5, lambda x: x * np.clip(x / 6 + 0.5, 0, 1)),
    Algorithm.MISH: (0, 0, lambda x: x * np.tanh(np.log1p(np.exp(x)))),
    Algorithm.ABS: (0, 0, np.abs),
}


@pytest.mark.parametrize("algorithm", FUNCTIONS, ids=lambda algorithm: algorithm.name)
def test_eltwise(algorithm):
    alpha, beta, function = FUNCTIONS[algorithm]
    x, one = random(37, 41), np.eye(41, dtype=np.float32)
    attributes = PrimitiveAttributes((Eltwise(algorithm, alpha, beta),))
    out = run(matmul(*map(of_array, (x, one)), None, of_array(x), attributes), SRC=x, WEIGHTS=one, DST=np.empty_like(x))
    np.testing.assert_allclose(out, function(x.astype(np.float64)), rtol=1e-4, atol=1e-6)


def test_reorder_between_strides():
    x = random(2, 5, 7, 3)
    out = np.empty((2, 7, 3, 5), np.float32).transpose(0, 3, 1, 2)
    run(reorder(of_array(x), of_array(out)), SRC=x, DST=out)
    np.testing.assert_array_equal(out, x)


def test_arguments_stay_within_their_arrays():
    source, target = random(4, 6), np.empty((6, 4), np.float32).T
    layouts = {Argument.SRC: of_array(source), Argument.DST: of_array(target)}
    execution = Execution(reorder(*layouts.values()), layouts)
    for wrong in (source[:3], source[:, :5], np.broadcast_to(np.float32(0), (4, 6))):
        with pytest.raises(ExtentError, match="takes 96 bytes for argument 1, but there are"):
            execution.set(Argument.SRC, wrong)
    read_only = np.empty((6, 4), np.float32).T
    read_only.flags.writeable = False
    with pytest.raises(ExtentError, match="96 bytes that are read-only"):
        execution.set(Argument.DST, read_only)
    execution.set(Argument.SRC, source)
    execution.set(Argument.DST, target)
    execution()
    np.testing.assert_array_equal(target, source)


def test_reference_implementations_are_refused():
    x, weight = random(1, 3, 9, 9), random(4, 3, 3, 3)
    out = np.empty((1, 7, 7, 4), np.float32).transpose(0, 3, 1, 2)
    ones, zeros = (1, 1), (0, 0)
    assert convolution(of_array(x), of_array(weight), None, of_array(out), ones, ones, zeros, zeros) is None


def test_primitives_are_made_once():
    x = random(4, 4)
    made, again = (matmul(of_array(a), of_array(x), None, of_array(x)) for a in (x, x.copy()))
    assert made is again


def test_one_primitive_on_many_threads():
    a, b = random(64, 256), random(256, 128)
    out = np.empty((64, 128), np.float32)
    primitive = matmul(of_array(a), of_array(b), None, of_array(out))

    def task(seed):
        left = a + np.float32(seed)
        arrays = {Argument.SRC: left, Argument.WEIGHTS: b, Argument.DST: np.empty_like(out)}
        return left, [run_with(primitive, arrays).copy() for _ in range(20)]

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for left, results in pool.map(task, range(16)):
            for result in results:
                np.testing.assert_allclose(result, left @ b, rtol=1e-3, atol=1e-3)


def test_interface_is_up_to_date():
    script = Path(__file__).parents[3] / "tools" / "generate_onednn_interface.py"
    done = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_errors_say_what_failed():
    with pytest.raises(RuntimeException, match=r"describing memory of shape \(-1, 2\).*status 2 \(invalid arguments\)"):
        any_layout((-1, 2), np.dtype(np.float32))


def test_the_matrix_unit_is_left_to_compiled_kernels():
    code = (
        "import os\nfrom ort_sdk_cpu.platform import libraries\nlibraries.set_environment()\n"
        "print(os.environ['ONEDNN_MAX_CPU_ISA'])"
    )
    given = {name: value for name, value in os.environ.items() if name not in {"ONEDNN_MAX_CPU_ISA", "ORT_SDK_CPU_ISA"}}
    for environment, expected in (
        (given, {"SSE41", "AVX2", "AVX512_CORE_FP16"}),
        (given | {"ONEDNN_MAX_CPU_ISA": "DEFAULT"}, {"DEFAULT"}),
    ):
        done = subprocess.run([sys.executable, "-P", "-c", code], env=environment, capture_output=True, text=True, check=True)
        assert done.stdout.strip() in expected
