"""Arithmetic on dimensions that may be symbols or unknown."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from ort_sdk.api import Dimension, Shape

__all__ = ["broadcast", "merge_shapes", "normalized_axis", "product", "quotient", "same_or_unknown", "total", "unknown_sizes"]


def broadcast(shapes: Sequence[Shape | None]) -> Shape | None:
    """Shape that shapes broadcast to, as NumPy's; None if a rank is not known."""
    first = shapes[0]
    if first is not None and all(shape == first for shape in shapes) and None not in first:
        return first
    known = [shape for shape in shapes if shape is not None]
    if len(known) < len(shapes):
        return None
    if len(known) == 2:
        long, short = known if len(known[0]) >= len(known[1]) else known[::-1]
        if long[len(long) - len(short) :] == short:
            return long
    rank = max(map(len, known))
    padded = [(1,) * (rank - len(shape)) + shape for shape in known]
    return tuple(_broadcast_axis(sizes) for sizes in zip(*padded, strict=True))


def _broadcast_axis(sizes: Sequence[Dimension]) -> Dimension:
    decisive = {size for size in sizes if size != 1}
    if not decisive:
        return 1
    numbers = [size for size in decisive if isinstance(size, int)]
    if numbers:
        return numbers[0]
    return decisive.pop() if len(decisive) == 1 else None


def merge_shapes(known: Shape | None, found: Shape | None) -> Shape | None:
    """What two sources say of one value; where they disagree, the second counts."""
    if found is None or known is None:
        return known if found is None else found
    if len(known) != len(found):
        return found
    return tuple(map(_merge_dimensions, known, found))


def _merge_dimensions(known: Dimension, found: Dimension) -> Dimension:
    if isinstance(found, int) or known is None:
        return found
    return known if isinstance(known, int) or found is None else found


def same_or_unknown(shapes: Iterable[Shape | None]) -> Shape | None:
    """What holds whichever of several shapes a value takes."""
    several = list(shapes)
    if not several or any(shape is None for shape in several):
        return None
    known = [shape for shape in several if shape is not None]
    if len({len(shape) for shape in known}) > 1:
        return None
    return tuple(sizes[0] if len(set(sizes)) == 1 else None for sizes in zip(*known, strict=True))


def product(sizes: Iterable[Dimension]) -> Dimension:
    """Product; a symbol if it is the only factor but ones, None if it has no name."""
    factors = [size for size in sizes if size != 1]
    if len(factors) == 1:
        return factors[0]
    if 0 in factors:
        return 0
    numbers = [size for size in factors if isinstance(size, int)]
    return math.prod(numbers) if len(numbers) == len(factors) else None


def total(sizes: Iterable[Dimension]) -> Dimension:
    """Sum; a symbol if it is the only term but zeros, None if it has no name."""
    terms = [size for size in sizes if size != 0]
    if len(terms) == 1:
        return terms[0]
    numbers = [size for size in terms if isinstance(size, int)]
    return sum(numbers) if len(numbers) == len(terms) else None


def quotient(dividend: Iterable[Dimension], divisor: Iterable[Dimension]) -> Dimension:
    """Product of some dimensions divided by that of others, equal symbols cancelled; None if it has no name."""
    above, below = Counter(dividend), Counter(divisor)
    if None in above or None in below:
        return None
    above, below = above - below, below - above
    symbols = [size for size in above.elements() if not isinstance(size, int)]
    if any(not isinstance(size, int) for size in below):
        return None
    numerator = math.prod(size for size in above.elements() if isinstance(size, int))
    denominator = math.prod(size for size in below.elements() if isinstance(size, int))
    if denominator == 0 or numerator % denominator:
        return None
    ratio = numerator // denominator
    if not symbols:
        return ratio
    return symbols[0] if len(symbols) == 1 and ratio == 1 else None


def normalized_axis(axis: int, rank: int) -> int:
    """An axis counted from the front.

    Raises:
        ValueError: there is no such axis.
    """
    if not -rank <= axis < rank:
        raise ValueError(f"axis {axis} of {rank}")
    return axis % rank


MAX_RANK = 64
"""NumPy's: no tensor has more axes."""


def unknown_sizes(rank: Dimension) -> Shape | None:
    """Shape of that many axes and nothing else known; None if their number is not known, or is of no tensor."""
    return (None,) * rank if isinstance(rank, int) and rank <= MAX_RANK else None
