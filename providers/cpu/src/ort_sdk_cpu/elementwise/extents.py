"""Functions of elements, and conversions."""

from __future__ import annotations

from collections.abc import Callable

from ort_sdk_cpu.jit.extents.declaration import At, Extents, declares, reads, writes

__all__: list[str] = []

HALF, FLOAT = 2, 4
_PLAIN = ("exp", "tanh", "sigmoid", "erf", "gelu", "fast_gelu", "hard_swish", "clip", "silu")


@declares("elementwise", *_PLAIN)
def _each(x: At, out: At, count: int, *_: float) -> Extents:
    return reads(x, count * FLOAT), writes(out, count * FLOAT)


@declares("elementwise", "bias_gelu", "bias_fast_gelu")
def _each_biased(x: At, bias: At, out: At, rows: int, width: int) -> Extents:
    nbytes = rows * width * FLOAT
    return reads(x, nbytes), reads(bias, width * FLOAT if rows > 0 else 0), writes(out, nbytes)


@declares("elementwise", "quick_gelu_rows")
def _rows(x: At, out: At, rows: int, width: int, factor: float) -> Extents:
    return reads(x, rows * width * FLOAT), writes(out, rows * width * FLOAT)


@declares("elementwise", "add_rows", "multiply_rows")
def _both(x: At, y: At, out: At, rows: int, width: int) -> Extents:
    nbytes = rows * width * FLOAT
    return reads(x, nbytes), reads(y, nbytes), writes(out, nbytes)


@declares("choosing", "choose")
def _choose(condition: At, x: At, y: At, out: At, count: int, size: int, is_one_x: int, is_one_y: int) -> Extents:
    ones = size if count > 0 else 0
    yield reads(condition, count)
    yield reads(x, ones if is_one_x else count * size)
    yield reads(y, ones if is_one_y else count * size)
    yield writes(out, count * size)


def _converted(read: int, written: int) -> Callable[..., Extents]:
    def extents(x: At, out: At, count: int) -> Extents:
        return reads(x, count * read), writes(out, count * written)

    return extents


declares("conversion", "from_halves")(_converted(HALF, FLOAT))
declares("conversion", "to_halves")(_converted(FLOAT, HALF))
declares("conversion", "to_integers")(_converted(FLOAT, FLOAT))
