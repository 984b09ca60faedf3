"""How far rounding may take a sum of products from its exact value, in whatever order it is added.

Two correct kernels for one operator add in different orders, with or without fused multiply-add, and so do two processors.
Results are therefore compared with float64 within a bound that follows from the type and the number of terms, never with
each other.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["assert_sums_close", "sum_error_bound"]


def sum_error_bound(magnitudes: Any, terms: int, dtype: Any = np.float32) -> Any:
    """Largest distance between a sum of products computed in a type, in any order, and its exact value.

    N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., section 3.1: ``n u / (1 - n u)`` times the sum of the
    products' magnitudes, with ``u`` half of the distance from 1 to the next number of the type.

    Args:
        magnitudes: for each result, the sum of its terms' magnitudes: the operator on the magnitudes of its inputs, in float64.
        terms: roundings that one result may see one after another: its products and whatever is added or scaled afterwards.
        dtype: the type that sums are held in.

    Returns:
        A bound for each result, in float64.
    """
    unit = float(np.finfo(dtype).eps) / 2
    return terms * unit / (1 - terms * unit) * np.asarray(magnitudes, np.float64)


def assert_sums_close(found: Any, exact: Any, magnitudes: Any, terms: int, dtype: Any = np.float32) -> None:
    """Fail unless each result is as near to its exact value as ``sum_error_bound`` says.

    Args:
        found: results of a kernel, of any float type.
        exact: the same in float64.
        magnitudes: see ``sum_error_bound``.
        terms: see there.
        dtype: see there; results of a smaller type may be off by half a unit of their own last place, too.

    Raises:
        AssertionError: a shape differs, or a result is farther away; the message names the worst one.
    """
    found, exact = np.asarray(found), np.asarray(exact, np.float64)
    assert found.shape == exact.shape, f"shape {found.shape}, expected {exact.shape}"
    bound = np.broadcast_to(sum_error_bound(magnitudes, terms, dtype), exact.shape)
    if found.dtype != np.dtype(dtype):
        bound = bound + np.abs(exact) * float(np.finfo(found.dtype).eps) / 2
    distance = np.abs(found.astype(np.float64) - exact)
    is_far = ~(distance <= bound)
    if is_far.any():
        excess = np.where(is_far, distance / np.maximum(bound, np.finfo(np.float64).tiny), 0)
        worst = tuple(int(index) for index in np.unravel_index(int(np.argmax(excess)), exact.shape))
        raise AssertionError(
            f"{int(is_far.sum())} of {exact.size} results are farther from float64 than {terms} roundings allow; at {worst}: "
            f"{found[worst]}, exactly {exact[worst]}, off by {distance[worst]:.3g}, allowed {bound[worst]:.3g}"
        )
