"""Convolutions of long 1-D inputs, a tile at a time: primitives are made for the tiles, and serve inputs of every length.

OneDNN looks for the best block among all lengths of a block, which for some ten thousand elements takes longer than
convolving it many times. Where windows reach out of X, a tile has zeros around it instead of padding: then the primitive of the
other tiles computes it, and none is made that has code and descriptions for each number of elements it may skip.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from ort_sdk.api import HostArray
from ort_sdk_cpu.conv.problem import ConvAlgorithm
from ort_sdk_cpu.jit.native_call import in_sequence

__all__ = ["Tile", "TiledCall", "tiles_of"]

TILE = 2048
"""Elements that are convolved at a time, about."""
LEAST_TILES = 2
"""Tiles from which on an input is long."""


class Tile(NamedTuple):
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
        """Equal for tiles that the same call computes."""
        return self[1:-2] + self[-1:]

    @property
    def padded_size(self) -> int:
        """Elements that the primitive gets."""
        return self.before + self.size + self.behind


def tiles_of(length: int, out_length: int, reach: int, stride: int, begin: int, *, transposed: bool) -> Sequence[Tile]:
    """Tiles of a long 1-D input, the last of which overlaps with the one before it; none of a short one.

    Args:
        length: of X.
        out_length: of the result.
        reach: elements from the first to the last of a window.
        stride: of the windows.
        begin: padding.
        transposed: the operation is ConvTranspose.
    """
    size = -(-TILE // stride) * stride
    if out_length < LEAST_TILES * size or begin < 0 or size <= begin + reach:
        return ()
    starts = [*range(0, out_length - size, size), out_length - size]
    tile = _scattered if transposed else _gathered
    found = [tile(start, size, length, reach, stride, begin) for start in starts]
    return found if all(min(each) >= 0 and each.size > 0 for each in found) else ()


def _gathered(out: int, size: int, length: int, reach: int, stride: int, begin: int) -> Tile:
    """The elements under windows."""
    first, behind = out * stride - begin, (out + size - 1) * stride + reach - begin
    start, stop = max(first, 0), min(behind, length)
    return Tile(start, stop - start, start - first, behind - stop, 0, 0, out, size)


def _scattered(out: int, size: int, length: int, reach: int, stride: int, begin: int) -> Tile:
    """The elements whose windows are in the result."""
    position = out + begin
    first, last = -((reach - 1 - position) // stride), (position + size - 1) // stride
    start, stop = max(first, 0), min(last + 1, length)
    cut = position - first * stride
    cut_behind = (last - first) * stride + reach - cut - size
    return Tile(start, stop - start, start - first, last + 1 - stop, cut, cut_behind, out, size)


class _Call(Protocol):
    def run(self, *arrays: HostArray) -> None:
        """Compute."""

    def bind_arrays(self, *arrays: HostArray) -> Callable[[], Any]:
        """The call on arrays that stay."""


_Maker = Callable[[Tile, Sequence[HostArray]], Any]


class TiledCall:
    """Calls on tiles of a 1-D input. For one thread at a time.

    Args:
        tiles: in order.
        make: makes a call for arrays like a tile's.
        roles: what each of a call's arrays is: "x", "out" for the result and what is as long, "" for what is the same for all.
    """

    algorithm = ConvAlgorithm.ONEDNN_TILED_1D

    def __init__(self, tiles: Sequence[Tile], make: _Maker, roles: Sequence[str]) -> None:
        self._tiles, self._make, self._roles = tiles, make, roles
        self._calls: dict[Any, _Call] = {}

    def run(self, *arrays: HostArray) -> None:
        """Compute; the arrays are not kept."""
        for tile in self._tiles:
            parts = self._parts(tile, arrays)
            call = self._calls.get(tile.kind)
            if call is None:
                call = self._calls[tile.kind] = self._make(tile, parts)
            call.run(*parts)

    def bind_arrays(self, *arrays: HostArray) -> Callable[[], Any]:
        """The call on arrays that stay the same; it keeps them."""
        parts = [self._parts(tile, arrays) for tile in self._tiles]
        calls = [self._make(tile, part).bind_arrays(*part) for tile, part in zip(self._tiles, parts, strict=True)]
        run: Callable[[], Any] = in_sequence(calls)
        run.copy_count = min(getattr(call, "copy_count", 0) for call in calls)  # type: ignore[attr-defined]
        return run

    def _parts(self, tile: Tile, arrays: Sequence[HostArray]) -> list[HostArray]:
        cuts = {
            "x": slice(tile.start, tile.start + tile.size),
            "out": slice(tile.out_start, tile.out_start + tile.out_count),
        }
        return [array[:, :, cuts[role]] if role else array for array, role in zip(arrays, self._roles, strict=True)]
