"""Bound kernels that move elements to places which constants say, or which never change: from any layout, and without Python."""

from types import SimpleNamespace

import numpy as np
import pytest
from ort_sdk_cpu.platform import libraries

from ort_sdk.api import NodeArg

TYPES = [np.float32, np.int64, np.float16, np.bool_]


@pytest.mark.parametrize("dtype", TYPES)
def test_gathers(check, layouts, dtype):
    for x in layouts((3, 4, 5), dtype):
        for axis in range(-3, 3):
            for indices in ([[2, 0], [-1, -3]], [1, 2], [2, 2, 2], []):
                check("Gather", x, np.array(indices, np.int64), axis=axis, constants=(1,))
            check("GatherElements", x, np.array([[[2, 0], [-1, -3]]]), axis=axis, constants=(1,))


@pytest.mark.parametrize("dtype", TYPES)
def test_scatters(check, layouts, dtype):
    for x in layouts((3, 4, 5), dtype):
        for updates in layouts((1, 2, 2), dtype, seed=1):
            for axis in range(-3, 3):
                check("ScatterElements", x, np.array([[[2, 0], [-1, -3]]]), updates, axis=axis, constants=(1,))
        for places, shape in (([[1], [-3], [1]], (3, 4, 5)), ([[2, 3], [0, -1]], (2, 5)), ([[[0, 1, 2]], [[0, 1, 3]]], (2, 1))):
            for updates in layouts(shape, dtype, seed=1):
                check("ScatterND", x, np.array(places), updates, constants=(1,))


@pytest.mark.parametrize("dtype", TYPES)
def test_repetitions(check, layouts, dtype):
    for x in layouts((3, 1, 5), dtype):
        check("Expand", x, np.array([2, 3, 4, 5]))
        check("Tile", x, np.array([2, 1, 3]))
        check("Tile", x, np.array([40, 30, 1]))


@pytest.mark.parametrize("shape", [(3, 700), (80, 90)], ids=str)
def test_many_pieces(check, shape):
    """More than there are calls of the C library for them, and more than a list of their places is made for."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal(shape).astype(np.float32)
    check("Gather", x, rng.integers(0, shape[1], shape[1]), axis=1, constants=(1,))
    check("Concat", x.T, x.T, axis=1)
    places = np.stack([rng.integers(0, size, 300) for size in shape], axis=1)
    check("ScatterND", x, places, rng.standard_normal(300).astype(np.float32), constants=(1,))


@pytest.mark.skipif(not libraries.compiled_kernels().is_usable, reason="no compiler")
def test_slices_written_at_constant_places_need_no_python(make_kernel):
    """As exporters write assignments to slices: ten rows of each plane."""
    rng = np.random.default_rng(0)
    data, updates = (rng.standard_normal((16, rows, 33)).astype(np.float32) for rows in (16, 10))
    planes, rows = np.meshgrid(np.arange(16), np.arange(2, 12), indexing="ij")
    inputs = (data, np.stack([planes, rows], axis=-1), updates[:, ::-1])
    kernel = make_kernel("ScatterND", inputs, {}, "", None, (1,), (NodeArg("y", "tensor(float)", data.shape),))
    out = np.empty_like(data)
    call = kernel.bind(
        [SimpleNamespace(array=array, is_fixed=True) for array in inputs], [SimpleNamespace(array=out, is_fixed=True)]
    )
    assert len(call.native.rows) == 1
    call()
    expected = data.copy()
    expected[:, 2:12] = updates[:, ::-1]
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("index", [3, -4])
def test_constant_index_out_of_range_is_refused(make_kernel, index):
    inputs = (np.ones(3, np.float32), np.array([index]))
    kernel = make_kernel("Gather", inputs, {}, "", None, (1,), (NodeArg("y", "tensor(float)"),))
    slots = [SimpleNamespace(array=array, is_fixed=True) for array in inputs]
    call = kernel.bind(slots, [SimpleNamespace(array=np.empty(1, np.float32), is_fixed=True)])
    with pytest.raises(Exception, match="outside axis 0"):
        call()
