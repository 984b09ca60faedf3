"""Which algorithm a reduction, a softmax, a Gather, a Where, a tree ensemble gets; and that kernels tell it."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
from ort_sdk_cpu.kernel.copy import CopyAlgorithm
from ort_sdk_cpu.ml.select import Algorithm as Scoring
from ort_sdk_cpu.ml.select import ScoringProblem, select_algorithm
from ort_sdk_cpu.movement.select import (
    MAX_TAKEN,
    GatherAlgorithm,
    GatherElementsAlgorithm,
    GatherProblem,
    WhereAlgorithm,
    select_gather,
    select_gather_elements,
    select_where,
)
from ort_sdk_cpu.normalization.select import (
    ChannelAlgorithm,
    SoftmaxAlgorithm,
    SoftmaxProblem,
    select_channels,
    select_softmax,
)
from ort_sdk_cpu.platform import libraries
from ort_sdk_cpu.reduction.select import (
    ArgMaxAlgorithm,
    ReduceAlgorithm,
    ReduceOp,
    ReduceProblem,
    TopKAlgorithm,
    select_arg_max,
    select_reduce,
    select_top_k,
)

from ort_sdk.api import NodeArg

needs_numba = pytest.mark.skipif(not libraries.compiled_kernels().is_usable, reason=str(libraries.compiled_kernels()))


def reduction(shape, axes, op=ReduceOp.SUM, *, order=None, **others):
    """Of an array whose axes are in this order in memory."""
    order = tuple(range(len(shape))) if order is None else order
    x = np.empty([shape[axis] for axis in order], np.float32).transpose(np.argsort(order))
    out = np.empty([1 if axis in axes else size for axis, size in enumerate(shape)], np.float32)
    return ReduceProblem(op, x.shape, x.strides, axes, out.strides, **({"is_float32": True} | others))


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        (reduction((100, 64), (1,)), ReduceAlgorithm.ROWS),
        (reduction((100, 64), (0,)), ReduceAlgorithm.COLUMNS),
        (reduction((100, 8), (1,)), ReduceAlgorithm.ROWS),
        (reduction((64, 8), (1,)), ReduceAlgorithm.ROWS),
        (reduction((128, 7), (1,)), ReduceAlgorithm.NUMPY),
        (reduction((256, 7), (1,)), ReduceAlgorithm.SLICES),
        (reduction((73, 7), (1,)), ReduceAlgorithm.ROWS),
        (reduction((2, 64, 9, 9), (2, 3)), ReduceAlgorithm.ROWS),
        (reduction((2, 64, 9, 9), (2, 3), order=(0, 2, 3, 1)), ReduceAlgorithm.COLUMNS),
        (reduction((2, 3, 4, 5, 6, 7), (0, 2, 4)), ReduceAlgorithm.NUMPY),
        (reduction((100, 256), (1,), ReduceOp.PROD), ReduceAlgorithm.ROWS),
        (reduction((100, 257), (1,), ReduceOp.PROD), ReduceAlgorithm.NUMPY),
        (reduction((100, 64), (1,), None), ReduceAlgorithm.NUMPY),
        (reduction((300, 16), (1,), None), ReduceAlgorithm.SLICES),
        (reduction((300, 17), (1,), None), ReduceAlgorithm.NUMPY),
        (reduction((255, 16), (1,), None), ReduceAlgorithm.NUMPY),
        (reduction((100, 64), (1,), is_float32=False), ReduceAlgorithm.NUMPY),
        (reduction((100, 1), (1,), is_identity=True), ReduceAlgorithm.COPY),
        (reduction((100, 1), (1,), ReduceOp.SUM_SQUARE), ReduceAlgorithm.NUMPY),
    ],
)
def test_reductions(problem, expected):
    algorithm, layout = select_reduce(problem)
    assert algorithm is expected
    assert (layout is None) == (expected not in {ReduceAlgorithm.ROWS, ReduceAlgorithm.COLUMNS})


@pytest.mark.parametrize(
    ("sizes", "is_float32", "expected"),
    [
        ((1, 64, 1), True, ArgMaxAlgorithm.TASK),
        ((1, 8192, 1), True, ArgMaxAlgorithm.TASK),
        ((1, 8193, 1), True, ArgMaxAlgorithm.NUMPY),
        ((1000, 64, 15), True, ArgMaxAlgorithm.TASK),
        ((1000, 65, 15), True, ArgMaxAlgorithm.NUMPY),
        ((1000, 65, 16), True, ArgMaxAlgorithm.TASK),
        ((1, 64, 1), False, ArgMaxAlgorithm.NUMPY),
    ],
)
def test_arg_max(sizes, is_float32, expected):
    assert select_arg_max(*sizes, is_float32=is_float32) is expected


@pytest.mark.parametrize(
    ("size", "k", "expected"),
    [
        (256, 256, TopKAlgorithm.HEAP),
        (257, 129, TopKAlgorithm.SORT),
        (257, 128, TopKAlgorithm.HEAP),
        (5000, 1024, TopKAlgorithm.HEAP),
        (5000, 1025, TopKAlgorithm.SORT),
        (100, 0, TopKAlgorithm.SORT),
        (100, 101, TopKAlgorithm.SORT),
    ],
)
def test_top_k(size, k, expected):
    assert select_top_k(size, k, is_float32=True) is expected
    assert select_top_k(size, k, is_float32=False) is TopKAlgorithm.SORT


def softmax(shape, axis, *, order=None, is_flattened=False, is_float32=True):
    order = tuple(range(len(shape))) if order is None else order
    x = np.empty([shape[place] for place in order], np.float32).transpose(np.argsort(order))
    return SoftmaxProblem(shape, axis, is_flattened, x.strides, np.empty(shape, np.float32).strides, is_float32)


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        (softmax((10, 100), 1), SoftmaxAlgorithm.ROWS),
        (softmax((10, 100), 0), SoftmaxAlgorithm.AXIS),
        (softmax((10, 100, 1), 1), SoftmaxAlgorithm.ROWS),
        (softmax((10, 100, 4), 1, is_flattened=True), SoftmaxAlgorithm.ROWS),
        (softmax((10, 100), 0, order=(1, 0)), SoftmaxAlgorithm.COPY_AND_AXIS),
        (softmax((2, 16, 5, 5), 1, order=(0, 2, 3, 1)), SoftmaxAlgorithm.COPY_AND_AXIS),
        (softmax((2, 16, 5, 5), 1), SoftmaxAlgorithm.AXIS),
        (softmax((2, 3, 2, 3, 2, 3, 2), 1), SoftmaxAlgorithm.NUMPY),
        (softmax((10, 100), 0, is_float32=False), SoftmaxAlgorithm.NUMPY),
        (softmax((10, 100), 1, is_float32=False), SoftmaxAlgorithm.NUMPY),
    ],
)
def test_softmax(problem, expected):
    assert select_softmax(problem) is expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((True, True, True), ChannelAlgorithm.NCHW),
        ((True, False, True), ChannelAlgorithm.NHWC),
        ((True, False, False), ChannelAlgorithm.NUMPY),
        ((False, True, False), ChannelAlgorithm.NUMPY),
    ],
)
def test_normalizations_of_channels(given, expected):
    is_float32, is_nchw, is_nhwc = given
    assert select_channels(is_float32=is_float32, is_nchw=is_nchw, is_nhwc=is_nhwc) is expected


GATHER = GatherProblem(slice_bytes=64, out_elements=1 << 20, threads=2)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, GatherAlgorithm.TEAM),
        ({"threads": 1}, GatherAlgorithm.NUMPY),
        ({"out_elements": MAX_TAKEN}, GatherAlgorithm.NUMPY),
        ({"slice_bytes": 6}, GatherAlgorithm.NUMPY),
        ({"index_is_known": True}, GatherAlgorithm.SLICE),
        ({"stays": True}, GatherAlgorithm.NUMPY),
        ({"stays": True, "out_elements": MAX_TAKEN}, GatherAlgorithm.TASK),
        ({"stays": True, "out_elements": MAX_TAKEN, "threads": 1}, GatherAlgorithm.TASK),
        ({"stays": True, "out_elements": MAX_TAKEN, "slice_bytes": 6}, GatherAlgorithm.NUMPY),
        ({"stays": True, "out_elements": MAX_TAKEN, "is_contiguous": False}, GatherAlgorithm.NUMPY),
        ({"stays": True, "out_elements": MAX_TAKEN, "has_even_indices": False}, GatherAlgorithm.NUMPY),
    ],
)
def test_gather(changes, expected):
    assert select_gather(dataclasses.replace(GATHER, **changes)) is expected


@pytest.mark.parametrize(
    ("data", "indices", "axis", "itemsize", "is_whole"),
    [
        ((3, 40), (3, 7), 1, 4, True),
        ((3, 40), (2, 7), 1, 4, False),
        ((3, 40), (7, 40), 0, 8, True),
        ((3, 40), (3, 7), 1, 2, False),
        ((3, 40), (3, 7), 1, 16, False),
    ],
)
def test_gather_elements(data, indices, axis, itemsize, is_whole):
    expected = GatherElementsAlgorithm.ALONG_AXIS if is_whole else GatherElementsAlgorithm.OFFSETS
    assert select_gather_elements(data, indices, axis, itemsize, has_plain_indices=True) is expected
    other = select_gather_elements(data, indices, axis, itemsize, has_plain_indices=False)
    assert other is GatherElementsAlgorithm.OFFSETS


@pytest.mark.parametrize(
    ("shapes", "itemsize", "expected"),
    [
        (((4, 5), (4, 5), (4, 5), (4, 5)), 4, WhereAlgorithm.TASK),
        (((4, 5), (), (4, 5), (4, 5)), 1, WhereAlgorithm.TASK),
        (((5,), (4, 5), (), (4, 5)), 8, WhereAlgorithm.BROADCAST),
        (((1, 1), (1024, 1025), (), (1024, 1025)), 4, WhereAlgorithm.NUMPY),
        (((4, 5), (5,), (4, 5), (4, 5)), 4, WhereAlgorithm.NUMPY),
        (((4, 5), (4, 5), (4, 5), (4, 5)), 16, WhereAlgorithm.NUMPY),
    ],
)
def test_where(shapes, itemsize, expected):
    assert select_where(*shapes, itemsize) is expected


TREES = ScoringProblem(is_of_trees=True, x_is_float32=True, scores_are_float32=True, has_transform=True)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, Scoring.WALK),
        ({"splits_are_float32": False}, Scoring.WALK_RANKS),
        ({"x_is_float32": False}, Scoring.WALK_RANKS),
        ({"x_is_float32": False, "ranks_are_exact": False}, Scoring.NUMPY),
        ({"scores_are_float32": False}, Scoring.NUMPY),
        ({"has_transform": False}, Scoring.NUMPY),
        ({"is_of_trees": False}, Scoring.LINEAR),
        ({"is_of_trees": False, "x_is_float32": False}, Scoring.NUMPY),
    ],
)
def test_models_of_scores(changes, expected):
    assert select_algorithm(dataclasses.replace(TREES, **changes)) is expected


def random(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


BOUND = {
    "Softmax of rows": ("Softmax", [random(40, 60)], {}, (40, 60), SoftmaxAlgorithm.ROWS),
    "Softmax of columns": ("Softmax", [random(40, 60)], {"axis": 0}, (40, 60), SoftmaxAlgorithm.AXIS),
    "ReduceMax": ("ReduceMax", [random(40, 60), np.array([1])], {}, (40, 1), ReduceAlgorithm.ROWS),
    "ReduceLogSum": ("ReduceLogSum", [np.abs(random(40, 60)), np.array([1])], {}, (40, 1), ReduceAlgorithm.NUMPY),
    "Transpose of few rows": ("Transpose", [random(1, 60)], {}, (60, 1), CopyAlgorithm.MEMMOVE),
    "Transpose": ("Transpose", [random(40, 60)], {}, (60, 40), CopyAlgorithm.STRIDED),
    "Gather": ("Gather", [random(50, 20), np.array([3, 1])], {}, (2, 20), GatherAlgorithm.NUMPY),
    "Where": ("Where", [random(30, 20) > 0, random(30, 20), random(30, 20)], {}, (30, 20), WhereAlgorithm.TASK),
    "GatherElements": (
        *("GatherElements", [random(30, 20), np.zeros((30, 20), np.int64)]),
        *({"axis": 1}, (30, 20), GatherElementsAlgorithm.ALONG_AXIS),
    ),
}


@needs_numba
@pytest.mark.parametrize("name", BOUND)
def test_kernels_tell_the_algorithm_of_a_program(make_kernel, name):
    op_type, inputs, attributes, shape, expected = BOUND[name]
    wanted = make_kernel(op_type, inputs, attributes, "", None, (), (None,)).compute(*inputs)
    kernel = make_kernel(op_type, inputs, attributes, "", None, (), (None,))
    assert kernel.algorithm is None
    out = np.zeros(shape, wanted.dtype)
    slots = [SimpleNamespace(array=array, is_fixed=True, is_constant=False, shape=array.shape) for array in (*inputs, out)]
    kernel.bind(slots[:-1], slots[-1:])()
    np.testing.assert_allclose(out, wanted, rtol=1e-5)
    assert kernel.algorithm == expected.value


@needs_numba
@pytest.mark.parametrize(
    ("op_type", "inputs", "expected"),
    [
        ("Softmax", [random(40, 60)], SoftmaxAlgorithm.ROWS),
        ("Softmax", [np.zeros((0, 60), np.float32)], SoftmaxAlgorithm.NUMPY),
        ("TopK", [random(4, 600), np.array([5])], TopKAlgorithm.HEAP),
        ("TopK", [random(4, 600), np.array([500])], TopKAlgorithm.SORT),
    ],
)
def test_kernels_tell_the_algorithm_of_a_run(make_kernel, op_type, inputs, expected):
    outputs = (NodeArg("y", "tensor(float)"), *([NodeArg("z", "tensor(int64)")] if op_type == "TopK" else []))
    kernel = make_kernel(op_type, inputs, {}, "", None, (), outputs)
    assert kernel.algorithm is None
    kernel.compute(*inputs)
    assert kernel.algorithm == expected.value
