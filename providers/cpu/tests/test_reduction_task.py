"""Reductions by compiled tasks, beside float64: any axes of arrays in any layout."""

import itertools

import numpy as np
import pytest
from ort_sdk_cpu.platform import libraries
from ort_sdk_cpu.reduction import launch, operators

pytestmark = pytest.mark.skipif(not libraries.compiled_kernels().is_usable, reason=str(libraries.compiled_kernels()))

REFERENCES = {
    "ReduceL2": lambda x, **options: np.sqrt(np.sum(x * x, **options)),
    "ReduceMax": np.max,
    "ReduceMean": np.mean,
    "ReduceMin": np.min,
    "ReduceProd": np.prod,
    "ReduceSum": np.sum,
    "ReduceSumSquare": lambda x, **options: np.sum(x * x, **options),
}
SHAPES = {
    "rows": ((3, 5, 70), (0, 1, 2)),
    "channels last": ((2, 7, 9, 70), (0, 3, 1, 2)),
    "channels first": ((2, 17, 5, 9), (0, 1, 2, 3)),
    "narrow": ((4, 130, 3), (0, 1, 2)),
    "few numbers": ((3, 2, 4), (0, 1, 2)),
    "signal, channels last": ((1, 40, 1, 140), (0, 3, 2, 1)),
    "long row": ((2, 4099), (0, 1)),
    "long columns": ((4101, 33), (0, 1)),
    "more axes": ((2, 3, 4, 5, 20), (1, 0, 4, 2, 3)),
}


def arrays(name):
    shape, order = SHAPES[name]
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32).transpose(order)


@pytest.fixture(params=[1, 2])
def threads(request, monkeypatch):
    monkeypatch.setattr(launch, "threads_for", lambda _elements: request.param)
    return request.param


@pytest.fixture
def tasks(monkeypatch):
    """The writers that are tasks."""
    made = []
    writer = launch.reduction_writer

    def recorded(*arguments):
        found = writer(*arguments)
        made.extend([found] if found is not arguments[-1] else [])
        return found

    monkeypatch.setattr(operators, "reduction_writer", recorded)
    return made


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("op_type", REFERENCES)
@pytest.mark.parametrize("name", SHAPES)
def test_axes(run_both, tasks, op_type, name):
    x = arrays(name)
    for count in range(1, x.ndim + 1):
        for axes in itertools.combinations(range(x.ndim), count):
            for keepdims in (0, 1):
                _, bound = run_both(op_type, x, version=11, axes=list(axes), keepdims=keepdims)
                expected = REFERENCES[op_type](x.astype(np.float64), axis=axes, keepdims=bool(keepdims))
                assert bound[0].shape == expected.shape
                np.testing.assert_allclose(bound[0], expected, rtol=2e-5, atol=2e-4 if op_type == "ReduceSum" else 2e-6)
    assert tasks


@pytest.mark.parametrize("op_type", ["ReduceMax", "ReduceMin", "ReduceMean", "ReduceL2", "ReduceProd"])
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_what_is_not_finite(run_both, tasks, op_type, order):
    x = np.random.default_rng(0).standard_normal((64, 70)).astype(np.float32)
    x[3, 69], x[4, 5], x[5, 20], x[6, :] = np.nan, np.inf, -np.inf, -np.inf
    x = x.transpose(order)
    with np.errstate(invalid="ignore"):
        expected = REFERENCES[op_type](x, axis=order[1])
    _, bound = run_both(op_type, x, version=11, axes=[order[1]], keepdims=0)
    np.testing.assert_allclose(bound[0], expected, rtol=1e-6, atol=1e-7)
    assert tasks


@pytest.mark.parametrize("op_type", ["ReduceSum", "ReduceMean", "ReduceSumSquare"])
@pytest.mark.parametrize("rows", [169, 4101])
def test_equal_columns_have_equal_sums(run_both, tasks, op_type, rows):
    column = np.random.default_rng(rows).standard_normal((rows, 1)).astype(np.float32) * np.float32(1e9)
    _, bound = run_both(op_type, np.repeat(column, 1000, axis=1), version=11, axes=[0], keepdims=0)
    assert len(np.unique(bound[0])) == 1
    assert tasks


def test_other_types_and_narrow_rows_are_not_its(run_both, tasks):
    for x in (np.ones((300, 4), np.float32), np.ones((30, 40), np.float64), np.ones((30, 40), np.int32)):
        _, bound = run_both("ReduceSum", x, version=11, axes=[1])
        np.testing.assert_array_equal(bound[0], x.sum(axis=1, keepdims=True))
    assert not tasks
