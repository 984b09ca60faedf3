"""Views of strided arrays against NumPy's, by the addresses of their elements."""

import math

import numpy as np
import pytest

from ort_sdk.api import ExtentError, InvalidArgument, TensorElementType
from ort_sdk.device.expressions import views
from ort_sdk.device.expressions.index_space import broadcast_strides, merged_axes
from ort_sdk.device.expressions.nodes import Strided
from ort_sdk.device.launches import Memory

FLOAT = TensorElementType.FLOAT


def of_numpy(array, base):
    """The same elements of the same memory."""
    offset = (array.__array_interface__["data"][0] - base.__array_interface__["data"][0]) // 4
    return Strided(Memory(base.nbytes), array.shape, FLOAT, tuple(step // 4 for step in array.strides), offset)


def positions(array):
    """Position in memory of each element."""
    grid = np.full(array.shape, array.offset)
    for axis, (size, stride) in enumerate(zip(array.shape, array.strides, strict=True)):
        grid += (np.arange(size) * stride).reshape([-1 if own == axis else 1 for own in range(len(array.shape))])
    return grid


def random_view(rng, array):
    """One of NumPy's views, and what makes ours."""
    rank = array.ndim
    kind = rng.choice(["permute", "slice", "flip", "expand", "broadcast"])
    if kind == "permute":
        axes = rng.permutation(rank).tolist()
        return array.transpose(axes), lambda own: views.permuted(own, axes)
    axis = int(rng.integers(rank))
    if kind == "slice" and array.shape[axis]:
        start = int(rng.integers(array.shape[axis]))
        step = int(rng.choice([-2, -1, 1, 2, 3]))
        taken = range(array.shape[axis])[start::step]
        index = (slice(None),) * axis + (slice(start, None, step),)
        return array[index], lambda own: views.sliced(own, axis, start, len(taken), step)
    if kind == "flip":
        return np.flip(array, axis), lambda own: views.flipped(own, [axis])
    if kind == "broadcast":
        shape = (2, *array.shape)
        return np.broadcast_to(array, shape), lambda own: views.broadcast(own, shape)
    return array, lambda own: own


@pytest.mark.parametrize("seed", range(60))
def test_chains_of_views(seed):
    rng = np.random.default_rng(seed)
    base = np.arange(math.prod(shape := tuple(rng.integers(1, 5, rng.integers(1, 4)))), dtype=np.float32).reshape(shape)
    theirs, ours = base, of_numpy(base, base)
    for _ in range(4):
        theirs, view = random_view(rng, theirs)
        ours = view(ours)
        assert ours.shape == theirs.shape
        np.testing.assert_array_equal(positions(ours), theirs)
    flat = views.reshaped(ours, (theirs.size,))
    if flat is not None:
        np.testing.assert_array_equal(positions(flat), theirs.reshape(-1))


@pytest.mark.parametrize(
    ("shape", "axes", "target"),
    [
        ((2, 3, 4), (0, 1, 2), (6, 4)),
        ((2, 3, 4), (0, 1, 2), (2, 1, 12)),
        ((4, 6), (0, 1), (2, 2, 3, 2)),
        ((2, 3, 4), (2, 0, 1), (4, 6)),
        ((2, 1, 3), (1, 0, 2), (6,)),
        ((1, 1), (0, 1), (1,)),
        ((3,), (0,), (3, 1, 1)),
        ((2, 0), (0, 1), (0, 5)),
    ],
)
def test_reshaping_where_strides_describe_it(shape, axes, target):
    base = np.arange(max(1, math.prod(shape)), dtype=np.float32)[: math.prod(shape)].reshape(shape)
    theirs = base.transpose(axes)
    ours = views.reshaped(of_numpy(theirs, base) if base.size else Strided(Memory(1), theirs.shape, FLOAT), target)
    assert ours is not None
    np.testing.assert_array_equal(positions(ours), theirs.reshape(target))


def test_reshaping_where_no_strides_do():
    base = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert views.reshaped(of_numpy(base.T, base), (6,)) is None


@pytest.mark.parametrize(
    ("shape", "strides", "offset"),
    [((2, 3), (3, 1), 1), ((4,), (2,), 0), ((3,), (-1,), 1), ((2, 2), (5, 1), 0), ((1,), (1,), -1)],
)
def test_no_array_leaves_its_memory(shape, strides, offset):
    with pytest.raises(ExtentError, match="in memory of 24 bytes"):
        Strided(Memory(24), shape, FLOAT, strides, offset)


def test_bad_views_are_refused():
    array = Strided(Memory(24), (2, 3), FLOAT)
    with pytest.raises(InvalidArgument, match="out of bounds"):
        views.sliced(array, 1, 1, 3, 1)
    with pytest.raises(InvalidArgument, match="broadcasting"):
        views.broadcast(array, (2, 4))


@pytest.mark.parametrize("seed", range(30))
def test_merged_axes_describe_the_same_elements(seed):
    rng = np.random.default_rng(seed)
    shape = tuple(int(size) for size in rng.integers(1, 4, 4))
    kept = [tuple(size if rng.random() < 0.7 else 1 for size in shape) for _ in range(3)]
    arrays = [Strided(Memory(4 * math.prod(own)), own, FLOAT) for own in kept]
    strides = [broadcast_strides(array, shape) for array in arrays]
    sizes, merged = merged_axes(shape, strides)
    assert math.prod(sizes) == math.prod(shape)
    for array, own in zip(arrays, merged, strict=True):
        expected = np.broadcast_to(np.arange(math.prod(array.shape)).reshape(array.shape), shape).reshape(-1)
        flat = Strided(array.memory, tuple(sizes), FLOAT, tuple(own))
        np.testing.assert_array_equal(positions(flat).reshape(-1), expected)
