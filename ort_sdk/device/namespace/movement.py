"""The standard's functions that move elements: mostly views."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from typing import Any

from ort_sdk.api import InvalidArgument, TensorElementType
from ort_sdk.device import arithmetic, indexing
from ort_sdk.device.array import DeviceArray
from ort_sdk.device.expressions import views
from ort_sdk.device.expressions.functions import DEAR
from ort_sdk.device.expressions.nodes import Apply, Constant, Node, Strided, resolved

__all__ = ["MOVEMENT", "sliding_windows"]

_INT64, _BOOL = TensorElementType.INT64, TensorElementType.BOOL
MOST_TOGETHER = 4
"""Parts that one kernel writes: it takes some arguments for each."""


def _axis(axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        raise InvalidArgument(f"axis {axis} of an array of {rank} axes")
    return axis % rank


def _axes(axis: int | Sequence[int] | None, rank: int) -> list[int]:
    if axis is None:
        return list(range(rank))
    return [_axis(each, rank) for each in ([axis] if isinstance(axis, int) else axis)]


def reshape(x: DeviceArray, /, shape: Sequence[int] | int, **_ignored: Any) -> DeviceArray:
    """The same elements under another shape."""
    sizes = (shape,) if isinstance(shape, int) else shape
    return x.made(indexing.reshaped(x.context, x.node, sizes))


def permute_dims(x: DeviceArray, /, axes: Sequence[int]) -> DeviceArray:
    """The axes in another order."""
    order = [_axis(operator.index(axis), x.ndim) for axis in axes]
    if sorted(order) != list(range(x.ndim)):
        raise InvalidArgument(f"permuting the axes of an array of shape {list(x.shape)} by {list(axes)}: not each axis once")
    return x.made(indexing.permuted(x.context, x.node, order))


def matrix_transpose(x: DeviceArray, /) -> DeviceArray:
    """The last two axes exchanged."""
    return x.mT


def moveaxis(x: DeviceArray, source: int | Sequence[int], destination: int | Sequence[int], /) -> DeviceArray:
    """Some axes at other places."""
    sources, targets = _axes(source, x.ndim), _axes(destination, x.ndim)
    order = [axis for axis in range(x.ndim) if axis not in sources]
    for target, axis in sorted(zip(targets, sources, strict=True)):
        order.insert(target, axis)
    return permute_dims(x, order)


def expand_dims(x: DeviceArray, /, *, axis: int | Sequence[int] = 0) -> DeviceArray:
    """New axes of one element."""
    places = [axis] if isinstance(axis, int) else list(axis)
    rank = x.ndim + len(places)
    shape = list(x.shape)
    for place in sorted(_axis(each, rank) for each in places):
        shape.insert(place, 1)
    return reshape(x, shape)


def squeeze(x: DeviceArray, /, axis: int | Sequence[int]) -> DeviceArray:
    """Axes of one element left out."""
    axes = _axes(axis, x.ndim)
    if any(x.shape[each] != 1 for each in axes):
        raise InvalidArgument(f"squeezing axes {axes} of shape {list(x.shape)}: not all of them have one element")
    return reshape(x, [size for own, size in enumerate(x.shape) if own not in axes])


def broadcast_to(x: DeviceArray, /, shape: Sequence[int]) -> DeviceArray:
    """Axes of one element repeated, and new ones in front."""
    return x.made(indexing.broadcast(x.context, x.node, tuple(shape)))


def broadcast_arrays(*arrays: DeviceArray) -> list[DeviceArray]:
    """All arrays in the shape they have together."""
    shape = arithmetic.broadcast_shape(tuple(each.shape for each in arrays))
    return [broadcast_to(each, shape) for each in arrays]


def flip(x: DeviceArray, /, *, axis: int | Sequence[int] | None = None) -> DeviceArray:
    """The order along axes reversed."""
    axes = _axes(axis, x.ndim)
    return x.made(indexing.viewed(x.context, x.node, lambda array: views.flipped(array, axes)))


def concat(arrays: Sequence[DeviceArray], /, *, axis: int | None = 0) -> DeviceArray:
    """Arrays one after the other along an axis."""
    if axis is None:
        arrays, axis = [reshape(each, (-1,)) for each in arrays], 0
    first = arrays[0]
    place = _axis(axis, first.ndim)
    for each in arrays:
        if each.ndim != first.ndim or any(
            own != size for at, (own, size) in enumerate(zip(each.shape, first.shape, strict=True)) if at != place
        ):
            raise InvalidArgument(f"concatenating shapes {[list(one.shape) for one in arrays]} along axis {axis}")
    shape = (*first.shape[:place], sum(each.shape[place] for each in arrays), *first.shape[place + 1 :])
    whole, start, parts = first.context.new(shape, first.element_type), 0, []
    for each in arrays:
        count = each.shape[place]
        node = arithmetic.cast_node(first.context, each.node, first.element_type)
        parts.append((node, views.sliced(whole, place, start, count, 1)))
        start += count
    for batch in _batches(parts):
        first.context.write_together(batch)
    return first.made(whole)


def _batches(parts: Sequence[tuple[Node, Strided]]) -> Iterator[list[tuple[Node, Strided]]]:
    """Neighbours of one shape that are cheap to compute: one kernel writes several of them."""
    batch: list[tuple[Node, Strided]] = []
    for part in parts:
        node = resolved(part[0])
        is_cheap = isinstance(node, (Strided, Constant)) or (isinstance(node, Apply) and node.cost < DEAR and node.leaves <= 4)
        if batch and (not is_cheap or part[1].shape != batch[0][1].shape or len(batch) == MOST_TOGETHER):
            yield batch
            batch = []
        if is_cheap:
            batch.append(part)
        else:
            yield [part]
    if batch:
        yield batch


def stack(arrays: Sequence[DeviceArray], /, *, axis: int = 0) -> DeviceArray:
    """Arrays of one shape along a new axis."""
    place = _axis(axis, arrays[0].ndim + 1)
    return concat([expand_dims(each, axis=place) for each in arrays], axis=place)


def unstack(x: DeviceArray, /, *, axis: int = 0) -> tuple[DeviceArray, ...]:
    """The parts along an axis, without it."""
    place = _axis(axis, x.ndim)
    return tuple(x[(*[slice(None)] * place, index)] for index in range(x.shape[place]))


def tile(x: DeviceArray, repetitions: Sequence[int], /) -> DeviceArray:
    """The array repeated along its axes."""
    missing = len(repetitions) - x.ndim
    counts = [1] * -missing + list(repetitions) if missing < 0 else list(repetitions)
    shape = [1] * max(missing, 0) + list(x.shape)
    split = [size for pair in zip([1] * len(shape), shape, strict=True) for size in pair]
    whole = [size for pair in zip(counts, shape, strict=True) for size in pair]
    repeated = broadcast_to(reshape(x, split), whole)
    return reshape(repeated, [count * size for count, size in zip(counts, shape, strict=True)])


def repeat(x: DeviceArray, repeats: int, /, *, axis: int | None = None) -> DeviceArray:
    """Each element several times along an axis."""
    if axis is None:
        return repeat(reshape(x, (-1,)), repeats, axis=0)
    place = _axis(axis, x.ndim)
    shape = (*x.shape[: place + 1], repeats, *x.shape[place + 1 :])
    repeated = broadcast_to(expand_dims(x, axis=place + 1), shape)
    return reshape(repeated, (*x.shape[:place], x.shape[place] * repeats, *x.shape[place + 1 :]))


def roll(x: DeviceArray, /, shift: int, *, axis: int) -> DeviceArray:
    """Elements moved along an axis, around its end."""
    place = _axis(axis, x.ndim)
    size = x.shape[place]
    if not size or not shift % size:
        return x
    lead = [slice(None)] * place
    return concat([x[(*lead, slice(size - shift % size, None))], x[(*lead, slice(None, size - shift % size))]], axis=place)


def sliding_windows(x: DeviceArray, kernel: Sequence[int], steps: Sequence[int], dilations: Sequence[int]) -> DeviceArray:
    """All windows over the trailing axes of (N, C, *spatial), as (N, C, *kernel, *output)."""

    def view(array: Strided) -> Strided:
        return views.windowed(array, kernel, steps, dilations)

    return x.made(indexing.viewed(x.context, x.context.materialise(x.node), view))


def tri(x: DeviceArray, k: int, *, lower: bool) -> DeviceArray:
    """Elements below, or above, the k-th diagonal and on it; zeros elsewhere."""
    rows, columns = x.shape[-2:]
    row = x.made(Strided(None, (rows, 1), _INT64, (1, 0), k))
    column = x.made(Strided(None, (1, columns), _INT64, (0, 1)))
    kept = column <= row if lower else column >= row
    zero = x.made(arithmetic.node_of(False if x.element_type is _BOOL else 0, x))
    return arithmetic.select(kept, x, arithmetic.cast(zero, x.element_type))


MOVEMENT: dict[str, Any] = {
    "reshape": reshape,
    "permute_dims": permute_dims,
    "matrix_transpose": matrix_transpose,
    "moveaxis": moveaxis,
    "expand_dims": expand_dims,
    "squeeze": squeeze,
    "broadcast_to": broadcast_to,
    "broadcast_arrays": broadcast_arrays,
    "flip": flip,
    "concat": concat,
    "stack": stack,
    "unstack": unstack,
    "tile": tile,
    "repeat": repeat,
    "roll": roll,
    "tril": lambda x, /, *, k=0: tri(x, k, lower=True),
    "triu": lambda x, /, *, k=0: tri(x, k, lower=False),
}
"""Name in the standard → function."""
