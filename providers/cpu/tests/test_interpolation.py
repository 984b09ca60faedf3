"""Images resized by a task: what ONNX's reference makes, in any layout."""

import numpy as np
import pytest
from onnx.reference.ops.op_resize import _cubic_coeffs, _interpolate_nd, _linear_coeffs
from ort_sdk_cpu.image import interpolation, resize


@pytest.fixture(autouse=True)
def any_size(monkeypatch):
    """Small images go to the task, too."""
    for module in (interpolation, resize):
        monkeypatch.setattr(module, "is_worth_a_task", lambda *_: True)


def expected(x, sizes, mode, coordinates):
    return _interpolate_nd(
        x.astype(np.float64),
        {"linear": _linear_coeffs, "cubic": _cubic_coeffs}[mode],
        output_size=np.array([*x.shape[:2], *sizes]),
        coordinate_transformation_mode=coordinates,
        exclude_outside=False,
    )


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("coordinates", ["half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"])
@pytest.mark.parametrize(
    ("shape", "sizes"),
    [
        ((1, 3, 5, 7), (10, 14)),
        ((2, 17, 6, 9), (9, 4)),
        ((1, 1, 8, 8), (2, 2)),
        ((1, 40, 1, 1), (3, 20)),
        ((1, 2, 4, 20), (4, 33)),
        ((1, 2, 4, 20), (7, 20)),
    ],
)
@pytest.mark.parametrize("is_last", [False, True])
def test_images(run_both, shape, sizes, mode, coordinates, is_last):
    x = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
    if is_last:
        x = np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1, 1)
    target = np.array([*shape[:2], *sizes])
    attributes = {"mode": mode, "coordinate_transformation_mode": coordinates}
    (found,), bound = run_both("Resize", x, None, None, target, constants=(3,), **attributes)
    for result in (found, bound[0]):
        np.testing.assert_allclose(result, expected(x, sizes, mode, coordinates), rtol=1e-5, atol=1e-5)


def test_images_with_gaps(run_both):
    x = np.random.default_rng(0).standard_normal((1, 4, 6, 20), dtype=np.float32)[..., ::2]
    (found,), bound = run_both("Resize", x, None, np.float32([1, 1, 2, 2]), constants=(2,), mode="linear")
    np.testing.assert_allclose(found, expected(x, (12, 20), "linear", "half_pixel"), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(bound[0], found)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("channels", [1, 3, 17])
@pytest.mark.parametrize("scales", [(0.4, 0.5), (2, 1.5), (1, 2)])
def test_images_whose_last_axis_are_the_channels(run_both, mode, channels, scales):
    x = np.random.default_rng(0).standard_normal((2, 20, 30, channels), dtype=np.float32)
    (found,), bound = run_both("Resize", x, None, np.float32([1, *scales, 1]), constants=(2,), mode=mode)
    permuted = np.ascontiguousarray(x.transpose(0, 3, 1, 2))
    (wanted,), _ = run_both("Resize", permuted, None, np.float32([1, 1, *scales]), constants=(2,), mode=mode)
    np.testing.assert_allclose(found, wanted.transpose(0, 2, 3, 1), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(bound[0], found)


def test_other_axes_are_the_shared_sets(run_both):
    x = np.random.default_rng(0).standard_normal((1, 4, 5, 6), dtype=np.float32)
    (found,), _ = run_both("Resize", x, None, np.float32([1, 2, 1, 1]), constants=(2,), mode="linear")
    assert found.shape == (1, 8, 5, 6)
    np.testing.assert_allclose(found[:, 1], 0.75 * x[:, 0] + 0.25 * x[:, 1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float64, np.uint8])
def test_other_types_are_the_shared_sets(run_both, dtype):
    x = np.arange(64).reshape(1, 1, 8, 8).astype(dtype)
    (found,), bound = run_both("Resize", x, None, np.float32([1, 1, 0.5, 0.5]), constants=(2,), mode="linear")
    assert found.dtype == dtype
    np.testing.assert_array_equal(found[0, 0, 0], np.array([4.5, 6.5, 8.5, 10.5]).astype(dtype))
    np.testing.assert_array_equal(bound[0], found)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize(("mode", "coordinates", "sizes"), [
    ("linear", "half_pixel", (12, 20)),
    ("linear", "asymmetric", (24, 20)),
    ("linear", "pytorch_half_pixel", (3, 40)),
    ("linear", "half_pixel", (10, 17)),
    ("cubic", "half_pixel", (12, 20)),
])  # fmt: skip
@pytest.mark.parametrize(("channels", "is_last"), [(4, True), (35, True), (5, False)])
def test_bytes_are_truncated(run_both, dtype, mode, coordinates, sizes, channels, is_last):
    limits = np.iinfo(dtype)
    lying = np.random.default_rng(0).integers(limits.min, limits.max, (2, 6, 10, channels), dtype=dtype, endpoint=True)
    x = np.moveaxis(lying, -1, 1)
    if not is_last:
        x = np.ascontiguousarray(x)
    target = np.array([*x.shape[:2], *sizes])
    attributes = {"mode": mode, "coordinate_transformation_mode": coordinates}
    (found,), bound = run_both("Resize", x, None, None, target, constants=(3,), **attributes)
    exact = np.clip(expected(x, sizes, mode, coordinates), limits.min, limits.max)
    for result in (found, bound[0]):
        assert result.dtype == dtype
        # Where weights are rounded, so are sums: one that is whole may be a step nearer to zero.
        is_near = np.abs(exact - np.rint(exact)) < 1e-4
        np.testing.assert_array_equal(result[~is_near], np.trunc(exact[~is_near]))
        assert np.abs(result - exact)[is_near].max(initial=0) < 1.001
    np.testing.assert_array_equal(bound[0], found)
