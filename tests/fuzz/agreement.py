"""Whether two runs of a model gave the same, as far as the way to compute it leaves open."""

import ml_dtypes
import numpy as np


def is_same_memory(first, second):
    """Whether two arrays are equal bit by bit; objects, if they are equal."""
    if first.dtype.kind == "O":
        return first.shape == second.shape and bool((first == second).all())
    return first.shape == second.shape and first.dtype == second.dtype and first.tobytes() == second.tobytes()


def is_same(first, second, largest=None):
    """Whether two results agree.

    Steps and programs add in different orders, and may hold sums in other types. What is looked for are values from memory that
    is none of the operator's, other shapes and other meanings of inputs: these are off by far more, and new arrays are NaN. So
    floats may differ by the square root of their type's precision, of the largest magnitude there is: a sum of n terms is off by
    n roundings of the largest term at most, and the models' sums are of some thousand terms. Integers of a byte may be
    off by one, as what is rounded to them.

    Args:
        first: arrays, lists of such, or what else operators give.
        second: of another run.
        largest: magnitude of the feeds if these hold infinities, NaN or such that sums overflow: whether a result is finite may
            then depend on the order, and only those that are so twice are compared. None for ordinary feeds.
    """
    if isinstance(first, list | tuple):
        return len(first) == len(second) and all(is_same(a, b, largest) for a, b in zip(first, second, strict=True))
    if not isinstance(first, np.ndarray):
        return repr(first) == repr(second)
    if first.shape != second.shape or first.dtype != second.dtype:
        return False
    if first.dtype.kind in "OUSbM":
        return is_same_memory(first, second)
    if "int" in first.dtype.name:
        return _are_integers_same(first, second, largest)
    if first.dtype.kind == "c":
        return _are_floats_same(_real_numbers(first), _real_numbers(second), largest)
    return _are_floats_same(first, second, largest)


MOST_TIMES_AS_FAR = 4


def is_as_right(first, second, exact):
    """Whether the second result is about as near to the exact one as the first, or as inputs that are off by roundings are.

    Where a model takes the difference of numbers that are nearly equal, as variances of few values, or rounds, the order of sums
    may change the result by any amount. Then all of them are off by about as much.

    Args:
        first: arrays of a run that computes step by step.
        second: of another run.
        exact: what is computed in float64, of the inputs and of such that are off by roundings; none if that is not possible.
    """
    if not exact or any(len(each) != len(first) for each in (second, *exact)):
        return False
    return all(_is_as_right(*arrays) for arrays in zip(first, second, *exact, strict=True))


def _is_as_right(first, second, exact, *perturbed):
    if not isinstance(first, np.ndarray) or first.dtype.kind != "f":
        return is_same(first, second)
    others = (first, *perturbed)
    if first.dtype != second.dtype or any(each.shape != exact.shape for each in (second, *others)):
        return False
    known = np.isfinite(exact)
    if not all(np.array_equal(np.isfinite(each), known) for each in (second, *others)):
        return False
    error, *allowed = (np.abs(each.astype(np.float64) - exact)[known].max(initial=0) for each in (second, *others))
    return bool(error <= MOST_TIMES_AS_FAR * max(allowed))


def largest_of(feeds):
    """The largest finite magnitude in feeds."""
    magnitudes = [np.abs(value.astype(np.float64)) for value in feeds if getattr(value, "dtype", np.dtype("O")).kind in "iuf"]
    return max((float(each[np.isfinite(each)].max(initial=0)) for each in magnitudes), default=0.0)


def _real_numbers(array):
    return np.stack([array.real, array.imag])


def _are_integers_same(first, second, largest):
    if largest is not None:
        return True  # of what is no number, or no integer, a cast makes anything
    steps = 1 if first.dtype.itemsize == 1 else 0
    return bool((np.abs(first.astype(np.float64) - second.astype(np.float64)) <= steps).all())


def _are_floats_same(first, second, largest):
    precision = float(ml_dtypes.finfo(first.dtype).eps) ** 0.5
    first, second = first.astype(np.float64), second.astype(np.float64)
    is_known = np.isfinite(first) & np.isfinite(second)
    if largest is None and not np.array_equal(np.where(is_known, 0, first), np.where(is_known, 0, second), equal_nan=True):
        return False
    a, b = first[is_known], second[is_known]
    return bool((np.abs(a - b) <= precision * max(np.abs(a).max(initial=0), largest or 0)).all())
