"""Whether a driver computes rightly: a few kernels of each family, against NumPy.

Drivers miscompile: wrong numbers of one function on vectors, a compiler that crashes in sub-group reductions, atomics that lose
updates. A model would give wrong results in silence. So each family is tried before a device is used for the first time.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ort_sdk.api import DeviceReset, HostArray, InvalidArgument, OutOfMemory, TensorElementType
from ort_sdk.device.context import DeviceContext
from ort_sdk.device.launches import KernelSource, Launch, index32
from ort_sdk.device.namespace.device_namespace import DeviceNamespace

__all__ = ["FAMILIES", "wrong_families"]

_GROUP_REDUCTIONS = """
/* each group reduces its lanes' elements; all lanes must get the result */
KERNEL WORKGROUP(LANES, 1, 1) void self_test_groups(GLOBAL(const f32) x, GLOBAL(f32) y) {
  LOCAL(f32, scratch, LANES);
  i32 lane = LANE(0), at = GROUP(0) * LANES + lane;
  f32 v = x[at];
  f32 s = f32_group_sum(v, scratch, lane, LANES);
  f32 m = f32_group_max(v, scratch, lane, LANES);
  f32 l = f32_group_min(v, scratch, lane, LANES);
  y[at] = s + 1000.0f * m - 100.0f * l;
}
"""

_ATOMICS = """
KERNEL WORKGROUP(LANES, 1, 1) void self_test_atomics(GLOBAL_PTR(f32) y, i32 cells, GLOBAL_PTR(u32) status) {
  atomic_add_f32(y + (GROUP(0) * LANES + LANE(0)) % cells, 1.0f);
  if (LANE(0) == 0 && cells == 0) report(status, 1u);
}
"""

_numbers = np.random.default_rng(0).standard_normal((37, 101)).astype(np.float32)


def _compared(name: str, got: HostArray, wanted: HostArray, tolerance: float = 1e-5) -> str:
    """What is wrong; empty if nothing is."""
    if got.shape != wanted.shape or got.dtype != wanted.dtype:
        return f"{name}: {got.dtype}{list(got.shape)} instead of {wanted.dtype}{list(wanted.shape)}"
    if np.allclose(got, wanted, rtol=tolerance, atol=tolerance, equal_nan=True):
        return ""
    place = np.unravel_index(int(np.argmin(np.isclose(got, wanted, rtol=tolerance, atol=tolerance, equal_nan=True))), got.shape)
    return f"{name}: {got[place]} instead of {wanted[place]} at {[int(index) for index in place]}"


def _elementwise_vectors(context: DeviceContext) -> str:
    """Functions and types that are computed on vectors where the class has them."""
    xp = DeviceNamespace(context)
    x, half = xp.from_host(_numbers), xp.from_host(_numbers.astype(np.float16))
    widened = xp.astype(half, TensorElementType.FLOAT)
    got = xp.module.where(x > 0.5, xp.module.exp(x) * 0.25, xp.module.tanh(x)) + widened
    picked = np.where(_numbers > 0.5, np.exp(_numbers) * np.float32(0.25), np.tanh(_numbers))
    found = _compared("float32", xp.to_host(got), picked + _numbers.astype(np.float16).astype(np.float32))
    return found or _compared("float16", xp.to_host(xp.astype(x, TensorElementType.FLOAT16)), _numbers.astype(np.float16), 0.0)


def _elementwise_scalars(context: DeviceContext) -> str:
    """Integers and strided arrays."""
    xp = DeviceNamespace(context)
    whole = np.arange(-60, 61).reshape(11, 11)
    x = xp.from_host(whole)
    found = _compared("int64", xp.to_host((x // 7) * 3 - x % 5), whole // 7 * 3 - whole % 5)
    return found or _compared("strided", xp.to_host(xp.module.permute_dims(x, (1, 0))[::2] + 1), whole.T[::2] + 1)


def _reductions(context: DeviceContext) -> str:
    xp = DeviceNamespace(context)
    x = xp.from_host(_numbers)
    found = _compared("sum of rows", xp.to_host(xp.module.sum(x, axis=1)), _numbers.sum(axis=1), 1e-4)
    found = found or _compared("largest of columns", xp.to_host(xp.module.max(x, axis=0)), _numbers.max(axis=0))
    lanes = context.device.row_lanes(4 * context.device.lanes)
    values = np.random.default_rng(1).integers(-9, 10, (3, lanes)).astype(np.float32)
    kernel = KernelSource("self_test_groups", _GROUP_REDUCTIONS, (("LANES", lanes),))
    source, target = context.upload(values, TensorElementType.FLOAT), context.new(values.shape, TensorElementType.FLOAT)
    assert source.memory is not None and target.memory is not None  # noqa: S101, PT018 - both were just made
    context.submit(Launch(kernel, (3,), (lanes,), (source.memory, target.memory), (1,)))
    rows = values.sum(axis=1) + 1000 * values.max(axis=1) - 100 * values.min(axis=1)
    wanted = np.repeat(rows, lanes).reshape(values.shape)  # noqa: TID251 - of a few elements
    return found or _compared(f"groups of {lanes} lanes", context.download(target), wanted)


def _products(context: DeviceContext) -> str:
    xp = DeviceNamespace(context)
    right = np.random.default_rng(2).standard_normal((101, 45)).astype(np.float32)
    got = xp.to_host(xp.module.matmul(xp.from_host(_numbers), xp.from_host(right)))
    return _compared("[37, 101] by [101, 45]", got, _numbers @ right, 1e-4)


def _gathers(context: DeviceContext) -> str:
    xp = DeviceNamespace(context)
    places = np.array([0, -1, 36, 5, 5])
    rows = xp.gather(xp.from_host(_numbers), xp.from_host(places), 0)
    return _compared("rows", xp.to_host(rows), _numbers[places], 0.0)


def _atomics(context: DeviceContext) -> str:
    """Sums by many lanes, and the status word."""
    lanes, cells = context.device.lanes, 3
    target = context.upload(np.zeros(cells, np.float32), TensorElementType.FLOAT)
    assert target.memory is not None  # noqa: S101 - just made
    kernel = KernelSource("self_test_atomics", _ATOMICS, (("LANES", lanes),))
    context.submit(Launch(kernel, (6,), (lanes,), (target.memory, index32(cells)), (0,), reports=True))
    counts = np.bincount(np.arange(6 * lanes) % cells).astype(np.float32)
    found = _compared("sums", context.download(target), counts)
    context.launcher.finish()
    xp = DeviceNamespace(context)
    gathered = xp.gather(xp.from_host(_numbers), xp.from_host(np.array([1, 99])), 0)
    try:
        context.download(gathered.node)
        context.launcher.finish()
    except InvalidArgument:
        return found
    return found or "an index out of bounds was not reported"


FAMILIES: dict[str, Callable[[DeviceContext], str]] = {
    "element-wise kernels on vectors": _elementwise_vectors,
    "element-wise kernels on scalars": _elementwise_scalars,
    "reductions": _reductions,
    "matrix products": _products,
    "gathers": _gathers,
    "atomics": _atomics,
}
"""Name → test, which gives what is wrong, or an empty text."""


def wrong_families(context: DeviceContext) -> dict[str, str]:
    """The families whose kernels do not compile, fail, or give wrong values: name → what is wrong.

    Raises:
        OutOfMemory: other work has taken the device's memory, which says nothing of the driver.
        DeviceReset: the device was lost.
    """
    found = {}
    for name, test in FAMILIES.items():
        try:
            reason = test(context)
        except (DeviceReset, OutOfMemory):
            raise
        except Exception as error:  # noqa: BLE001 - drivers raise anything, and the next form may work
            reason = f"{type(error).__name__}: {str(error)[:400]}"
        if reason:
            found[name] = reason
    return found
