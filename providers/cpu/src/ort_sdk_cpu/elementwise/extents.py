"""Functions of elements, conversions and copies."""

from __future__ import annotations

from collections.abc import Callable

from ort_sdk_cpu.jit.extents.declaration import At, Extents, declares, reaches, reads, writes

__all__: list[str] = []

HALF, FLOAT, INT64 = 2, 4, 8
_PLAIN = ("exp", "tanh", "sigmoid", "erf", "gelu", "fast_gelu", "hard_swish", "clip", "silu")
_AXES = 5


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


@declares("movement", "move_runs")
def _move_runs(table: At, count: int) -> Extents:
    return (reads(table, count * 3 * INT64),)


def _copying(name: str, itemsize: int, to_last: int | None, from_last: tuple[int | None, int | None], channels: int = 0) -> None:
    """Declare a copy over five axes.

    Args:
        name: the task's.
        itemsize: bytes of an element.
        to_last: elements from one of the last axis to the next in the target, whatever the arguments say; None for what they say.
        from_last: the same of the last two axes in the source.
        channels: size of the last axis but one, whatever they say; 0 for what they say.
    """

    @declares("copying", name)
    def extents(target: At, source: At, *numbers: int) -> Extents:
        sizes, to, from_ = list(numbers[:_AXES]), list(numbers[_AXES : 2 * _AXES]), list(numbers[2 * _AXES :])
        to[-1] = to[-1] if to_last is None else to_last * itemsize
        from_[-2:] = (own if step is None else step * itemsize for own, step in zip(from_[-2:], from_last, strict=True))
        sizes[-2] = channels or sizes[-2]
        return reaches(target, sizes, to, itemsize, is_written=True), reaches(source, sizes, from_, itemsize)


_copying("copy_elements", FLOAT, None, (None, None))
_copying("copy_byte_rows", 1, 1, (None, 1))
_copying("copy_rows", FLOAT, 1, (None, 1))
for _name, _itemsize in (("transpose_bytes", 1), ("transpose_pairs", HALF), ("copy_transposed", FLOAT)):
    _copying(_name, _itemsize, 1, (1, None))
for _name, _itemsize, _channels in (
    ("three_bytes", 1, 3),
    ("four_bytes", 1, 4),
    ("three_words", FLOAT, 3),
    ("four_words", FLOAT, 4),
):
    _copying(_name, _itemsize, 1, (1, _channels), _channels)
