"""Convolutions of long signals, a piece at a time: primitives are made for the pieces, and serve signals of every length.

OneDNN looks for the best block among all lengths of a block, which for a signal of some ten thousand elements takes longer than
convolving it many times. Where windows reach out of X, a piece has zeros around it instead of padding: then the primitive of the
other pieces computes it, and none is made that has code and descriptions for each number of elements it may skip.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from ort_sdk.api import HostArray
from ort_sdk_cpu.jit.native_call import in_turn

__all__ = ["Piece", "PiecedCall", "pieces_of"]

PIECE = 2048
"""Elements of a signal that are convolved at a time, about."""
LEAST_PIECES = 2
"""Pieces from which on a signal is long."""


class Piece(NamedTuple):
    """What a part of the result is made of."""

    start: int
    """First element of X."""
    size: int
    """Elements of X."""
    before: int
    """Zeros before them."""
    behind: int
    """And behind them."""
    begin: int
    """What is cut off the beginning of the result, for ConvTranspose."""
    end: int
    """And off its end."""
    out_start: int
    """First element of the result."""
    out_count: int
    """Elements of the result."""

    @property
    def kind(self) -> tuple[int, ...]:
        """Equal for pieces that the same call computes."""
        return self[1:-2] + self[-1:]

    @property
    def padded_size(self) -> int:
        """Elements that the primitive gets."""
        return self.before + self.size + self.behind


def pieces_of(length: int, out_length: int, reach: int, stride: int, begin: int, *, transposed: bool) -> Sequence[Piece]:
    """Pieces of a long signal, the last of which overlaps with the one before it; none of a short one.

    Args:
        length: of X.
        out_length: of the result.
        reach: elements from the first to the last of a window.
        stride: of the windows.
        begin: padding.
        transposed: the operation is ConvTranspose.
    """
    size = -(-PIECE // stride) * stride
    if out_length < LEAST_PIECES * size or begin < 0 or size <= begin + reach:
        return ()
    starts = [*range(0, out_length - size, size), out_length - size]
    piece = _spread if transposed else _gathered
    found = [piece(start, size, length, reach, stride, begin) for start in starts]
    return found if all(min(each) >= 0 and each.size > 0 for each in found) else ()


def _gathered(out: int, size: int, length: int, reach: int, stride: int, begin: int) -> Piece:
    """The elements under windows."""
    first, behind = out * stride - begin, (out + size - 1) * stride + reach - begin
    start, stop = max(first, 0), min(behind, length)
    return Piece(start, stop - start, start - first, behind - stop, 0, 0, out, size)


def _spread(out: int, size: int, length: int, reach: int, stride: int, begin: int) -> Piece:
    """The elements whose windows lie in the result."""
    place = out + begin
    first, last = -((reach - 1 - place) // stride), (place + size - 1) // stride
    start, stop = max(first, 0), min(last + 1, length)
    cut = place - first * stride
    cut_behind = (last - first) * stride + reach - cut - size
    return Piece(start, stop - start, start - first, last + 1 - stop, cut, cut_behind, out, size)


class _Call(Protocol):
    def run(self, *arrays: HostArray) -> None:
        """Compute."""

    def fixed(self, *arrays: HostArray) -> Callable[[], Any]:
        """The call on arrays that stay."""


_Maker = Callable[[Piece, Sequence[HostArray]], Any]


class PiecedCall:
    """Calls on pieces of a signal. For one thread at a time.

    Args:
        pieces: in order.
        make: makes a call for arrays like a piece's.
        roles: what each of a call's arrays is: "x", "out" for the result and what is as long, "" for what is the same for all.
    """

    def __init__(self, pieces: Sequence[Piece], make: _Maker, roles: Sequence[str]) -> None:
        self._pieces, self._make, self._roles = pieces, make, roles
        self._calls: dict[Any, _Call] = {}

    def run(self, *arrays: HostArray) -> None:
        """Compute; the arrays are not kept."""
        for piece in self._pieces:
            parts = self._parts(piece, arrays)
            call = self._calls.get(piece.kind)
            if call is None:
                call = self._calls[piece.kind] = self._make(piece, parts)
            call.run(*parts)

    def fixed(self, *arrays: HostArray) -> Callable[[], Any]:
        """The call on arrays that stay the same; it keeps them."""
        parts = [self._parts(piece, arrays) for piece in self._pieces]
        calls = [self._make(piece, part).fixed(*part) for piece, part in zip(self._pieces, parts, strict=True)]
        run: Callable[[], Any] = in_turn(calls)
        run.copy_count = min(getattr(call, "copy_count", 0) for call in calls)  # type: ignore[attr-defined]
        return run

    def _parts(self, piece: Piece, arrays: Sequence[HostArray]) -> list[HostArray]:
        cuts = {
            "x": slice(piece.start, piece.start + piece.size),
            "out": slice(piece.out_start, piece.out_start + piece.out_count),
        }
        return [array[:, :, cuts[role]] if role else array for array, role in zip(arrays, self._roles, strict=True)]
