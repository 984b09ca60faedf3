"""Comparing what a run gave with what it must give: count, type, shape, then values."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["assert_same", "assert_same_bytes"]

BFLOAT16_RTOL = 2.0**-6
"""Two units in the last place of bfloat16."""


def assert_same(actual: Any, expected: Any, *, rtol: float, atol: float, what: str = "output") -> None:
    """Assert that a value equals the expected one within tolerance.

    Args:
        actual: array, list (sequence), dict (map) or None.
        expected: the same kind of value.
        rtol: relative tolerance for floating point values.
        atol: absolute tolerance.
        what: names the value in messages.

    Raises:
        AssertionError: kind, count, element type, shape or values differ.
    """
    if expected is None:
        assert actual is None, f"{what}: expected None, got {type(actual).__name__}"
    elif isinstance(expected, (list, tuple)):
        assert isinstance(actual, list), f"{what}: expected a sequence, got {type(actual).__name__}"
        assert len(actual) == len(expected), f"{what}: {len(actual)} elements, expected {len(expected)}"
        for index, (one, other) in enumerate(zip(actual, expected, strict=True)):
            assert_same(one, other, rtol=rtol, atol=atol, what=f"{what}[{index}]")
    elif isinstance(expected, dict):
        assert isinstance(actual, dict), f"{what}: expected a map, got {type(actual).__name__}"
        assert actual.keys() == expected.keys(), f"{what}: keys {sorted(actual)} , expected {sorted(expected)}"
        for key in expected:
            assert_same(np.asarray(actual[key]), np.asarray(expected[key]), rtol=rtol, atol=atol, what=f"{what}[{key!r}]")
    else:
        _assert_same_array(actual, np.asarray(expected), rtol, atol, what)


def _assert_same_array(actual: Any, expected: Any, rtol: float, atol: float, what: str) -> None:
    assert isinstance(actual, np.ndarray), f"{what}: expected an array, got {type(actual).__name__}"
    assert actual.shape == expected.shape, f"{what}: shape {actual.shape}, expected {expected.shape}"
    if expected.dtype.kind in "OUST":
        assert _texts(actual) == _texts(expected), f"{what}: strings differ"
        return
    assert actual.dtype == expected.dtype, f"{what}: dtype {actual.dtype}, expected {expected.dtype}"
    if expected.dtype.name == "bfloat16":
        rtol = max(rtol, BFLOAT16_RTOL)
    if expected.dtype.kind == "V" or expected.dtype.name.startswith(
        ("bfloat", "float8", "float4", "float6", "int4", "uint4", "int2", "uint2")
    ):
        actual, expected = actual.astype(np.float64), expected.astype(np.float64)
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=atol, err_msg=what)


def _texts(array: Any) -> list[str]:
    return [item.decode() if isinstance(item, bytes) else str(item) for item in array.reshape(-1).tolist()]


def assert_same_bytes(actual: bytes | np.ndarray[Any, Any], expected: bytes | np.ndarray[Any, Any]) -> None:
    """Assert that two contents agree in every byte.

    Counts what differs itself: pytest explains unequal ``bytes`` by a diff that takes minutes for a megabyte where it does
    not cut it short, as in CI.

    Raises:
        AssertionError: lengths or bytes differ.
    """
    found, wanted = (
        np.frombuffer(value if isinstance(value, bytes) else value.tobytes(), np.uint8) for value in (actual, expected)
    )
    if found.size != wanted.size:
        raise AssertionError(f"{found.size} bytes, expected {wanted.size}")
    differing = np.flatnonzero(found != wanted)
    if differing.size:
        first = int(differing[0])
        raise AssertionError(
            f"{differing.size} of {found.size} bytes differ, the first at {first}: {found[first]:#04x} instead of "
            f"{wanted[first]:#04x}"
        )
