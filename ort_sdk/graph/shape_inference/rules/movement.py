"""Operators that rearrange elements: reshaping, transposing, joining and splitting."""

from __future__ import annotations

from ort_sdk.api import Dimension, Shape
from ort_sdk.graph.shape_inference.dimensions import broadcast, normalized_axis, product, quotient, total, unknown_sizes
from ort_sdk.graph.shape_inference.node_call import NodeCall, shape_rule


@shape_rule("Reshape")
def reshape(call: NodeCall) -> list[Shape | None]:
    """The wanted shape; 0 copies a dimension, -1 takes what is left."""
    if call.has(1):
        wanted = call.contents(1)
        if wanted is None:
            length = call.shape(1)
            return [unknown_sizes(length[0]) if length else None]
    else:
        wanted = tuple(call.attribute("shape"))
    return [_reshaped(call.shape(0), wanted, bool(call.attribute("allowzero", 0)))]


def _reshaped(x: Shape | None, wanted: tuple[Dimension, ...], allow_zero: bool) -> Shape:
    sizes: list[Dimension] = list(wanted)
    copied = set() if allow_zero else {axis for axis, size in enumerate(wanted) if size == 0}
    for axis in copied:
        sizes[axis] = None if x is None else x[axis]
    looked_for = [axis for axis, size in enumerate(wanted) if size == -1 or size is None]
    for axis in looked_for:
        sizes[axis] = None
    if len(looked_for) == 1 and x is not None:
        others = [size for axis, size in enumerate(sizes) if axis not in copied and axis not in looked_for]
        sizes[looked_for[0]] = quotient([size for axis, size in enumerate(x) if axis not in copied], others)
    return tuple(sizes)


@shape_rule("Flatten")
def flatten(call: NodeCall) -> list[Shape | None]:
    """A matrix."""
    x = call.shape(0)
    if x is None:
        return [(None, None)]
    axis = call.attribute("axis", 1)
    axis = axis + len(x) if axis < 0 else axis
    return [(product(x[:axis]), product(x[axis:]))]


@shape_rule("Squeeze")
def squeeze(call: NodeCall) -> list[Shape | None]:
    """Without axes of length 1, the named ones or all."""
    x, axes = call.shape(0), call.integers_or_attribute(1, "axes")
    if x is None:
        return [None]
    if not axes:
        return [tuple(size for size in x if size != 1) if all(isinstance(size, int) for size in x) else None]
    gone = {normalized_axis(axis, len(x)) for axis in axes}
    return [tuple(size for axis, size in enumerate(x) if axis not in gone)]


@shape_rule("Unsqueeze")
def unsqueeze(call: NodeCall) -> list[Shape | None]:
    """With axes of length 1 at positions of the output."""
    x, axes = call.shape(0), call.integers_or_attribute(1, "axes")
    if x is None or axes is None:
        return [None]
    rank = len(x) + len(axes)
    new = {normalized_axis(axis, rank) for axis in axes}
    if len(new) != len(axes):
        return [None]  # an axis is named twice, which the kernel refuses
    rest = iter(x)
    return [tuple(1 if axis in new else next(rest) for axis in range(rank))]


@shape_rule("ExpandDims", domain="com.microsoft")
def expand_dims(call: NodeCall) -> list[Shape | None]:
    """With one axis of length 1."""
    x, axis = call.shape(0), call.integer(1)
    if x is None or axis is None:
        return [None]
    axis = normalized_axis(axis, len(x) + 1)
    return [(*x[:axis], 1, *x[axis:])]


@shape_rule("Transpose")
def transpose(call: NodeCall) -> list[Shape | None]:
    """Axes in another order."""
    x = call.shape(0)
    if x is None:
        return [None]
    return [tuple(x[axis] for axis in call.attribute("perm") or range(len(x) - 1, -1, -1))]


@shape_rule("Concat")
def concat(call: NodeCall) -> list[Shape | None]:
    """Lengths along the axis add up; other dimensions are equal."""
    known = [shape for shape in call.shapes if shape is not None]
    if not known:
        return [None]
    rank = len(known[0])
    axis = normalized_axis(call.attribute("axis", 1), rank)
    sizes: list[Dimension] = []
    for position in range(rank):
        column = [shape[position] for shape in known]
        if position == axis:
            sizes.append(total(column) if len(known) == len(call.shapes) else None)
        else:
            sizes.append(_agreed(column))
    return [tuple(sizes)]


def _agreed(sizes: list[Dimension]) -> Dimension:
    numbers = [size for size in sizes if isinstance(size, int)]
    return numbers[0] if numbers else next((size for size in sizes if size is not None), None)


@shape_rule("Split")
def split(call: NodeCall) -> list[Shape | None]:
    """Parts of the given lengths, or as equal as can be."""
    x, count = call.shape(0), len(call.node.outputs)
    if x is None:
        return [None]
    axis = normalized_axis(call.attribute("axis", 0), len(x))
    parts: tuple[Dimension, ...] | None = call.contents(1) if call.has(1) else call.attribute("split")
    if parts is None:
        size = x[axis]
        is_even = isinstance(size, int) and not call.has(1)
        chunk = -(-size // count) if isinstance(size, int) else 0
        parts = tuple(min(chunk, max(0, size - chunk * n)) for n in range(count)) if is_even else (None,) * count  # type: ignore[operator]
    elif len(parts) != count:  # An error, which is the kernel's to raise.
        parts = (None,) * count
    return [(*x[:axis], part, *x[axis + 1 :]) for part in parts]


@shape_rule("Expand")
def expand(call: NodeCall) -> list[Shape | None]:
    """What the input and the wanted shape broadcast to."""
    return [broadcast([call.shape(0), call.contents(1)])]


@shape_rule("Tile")
def tile(call: NodeCall) -> list[Shape | None]:
    """Each dimension times its count."""
    x, repeats = call.shape(0), call.contents(1)
    if x is None:
        return [None]
    if repeats is None or len(repeats) != len(x):
        return [(None,) * len(x)]
    return [tuple(product(pair) for pair in zip(x, repeats, strict=True))]


@shape_rule("DepthToSpace")
def depth_to_space(call: NodeCall) -> list[Shape | None]:
    """(N, C / block², H * block, W * block)."""
    x, block = call.shape(0), call.attribute("blocksize")
    if x is None:
        return [None]
    channels = x[1] // (block * block) if isinstance(x[1], int) else None
    return [(x[0], channels, *(product((size, block)) for size in x[2:]))]


@shape_rule("SpaceToDepth")
def space_to_depth(call: NodeCall) -> list[Shape | None]:
    """(N, C * block², H / block, W / block)."""
    x, block = call.shape(0), call.attribute("blocksize")
    if x is None:
        return [None]
    return [(x[0], product((x[1], block * block)), *(size // block if isinstance(size, int) else None for size in x[2:]))]


@shape_rule("Pad")
@shape_rule("Pad", domain="com.microsoft")
def pad(call: NodeCall) -> list[Shape | None]:
    """Each dimension with what is put before and after it."""
    x = call.shape(0)
    if x is None:
        return [None]
    pads = call.integers(1) if call.has(1) else tuple(call.attribute("pads", call.attribute("paddings")))
    if pads is None or (call.has(3) and call.integers(3) is None):
        return [(None,) * len(x)]
    axes = [normalized_axis(axis, len(x)) for axis in call.integers(3) or range(len(x))]
    sizes = list(x)
    for position, axis in enumerate(axes):
        sizes[axis] = total((sizes[axis], pads[position], pads[position + len(axes)]))
    return [tuple(sizes)]
