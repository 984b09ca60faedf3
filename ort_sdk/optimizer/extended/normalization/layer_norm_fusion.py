"""Layer normalization and its simplified (RMS) form from their parts."""

from __future__ import annotations

from ort_sdk.api import TensorElementType
from ort_sdk.api.data_classes import dataclass, field
from ort_sdk.graph import Node
from ort_sdk.optimizer.pattern import FusionPass, GraphMatcher, Match

__all__ = ["LayerNormFusion", "SimplifiedLayerNormFusion"]

STASH_TYPES = frozenset({TensorElementType.FLOAT, TensorElementType.DOUBLE})


@dataclass(slots=True)
class _Deviation:
    """What a value is divided by: the root of the mean of squares plus epsilon."""

    squared: str
    """The value whose squares are averaged."""
    axes: tuple[int, ...]
    epsilon: float
    nodes: list[Node] = field(default_factory=list)


def _read_deviation(matcher: GraphMatcher, root: Node) -> _Deviation | None:
    """Read sqrt(mean(x^2) + epsilon) backwards from the square root."""
    add = matcher.sole_maker(root.inputs[0], "Add")
    operand = matcher.scalar_operand(add) if add is not None else None
    mean = matcher.sole_maker(operand[0], "ReduceMean") if operand is not None else None
    square = matcher.sole_maker(mean.inputs[0], "Pow", "Mul") if mean is not None else None
    if add is None or operand is None or mean is None or square is None:
        return None
    x, other = square.inputs
    is_square = x == other if square.op_type == "Mul" else matcher.is_scalar(other, 2.0, x)
    axes = _last_axes(matcher, mean)
    if not is_square or axes is None or operand[1] < 0:
        return None
    return _Deviation(x, axes, operand[1], [root, add, mean, square])


def _last_axes(matcher: GraphMatcher, mean: Node) -> tuple[int, ...] | None:
    """Axes of a mean, counted from the end, if they are the last ones and stay as 1."""
    axes = matcher.axes(mean)
    rank = matcher.argument(mean.inputs[0]).rank
    if not axes or not mean.attributes.get("keepdims", 1):
        return None
    if any(axis >= 0 for axis in axes):
        if rank is None:
            return None
        axes = tuple(axis - rank if axis >= 0 else axis for axis in axes)
    axes = tuple(sorted(axes))
    return axes if axes == tuple(range(-len(axes), 0)) else None


def _without_cast(matcher: GraphMatcher, name: str, nodes: list[Node]) -> str:
    """What a value is cast from, with the Cast among ``nodes``, or the value itself."""
    cast = matcher.maker(name, "Cast")
    if cast is None or matcher.argument(name).element_type not in STASH_TYPES:
        return name
    nodes.append(cast)
    return cast.inputs[0]


@dataclass(slots=True)
class _Tail:
    """The product with a scale and the sum with a bias after a normalized value."""

    last: Node
    scale: str
    bias: str
    nodes: list[Node]


def _read_tail(matcher: GraphMatcher, normalized: Node, x: str, axes: tuple[int, ...], has_bias: bool) -> _Tail | None:
    value, nodes = normalized.outputs[0], [normalized]
    cast = matcher.reader(value, "Cast")
    if cast is not None:
        value, nodes = cast.outputs[0], [*nodes, cast]
    product = matcher.reader(value, "Mul")
    scale = _parameter(matcher, product, value, x, axes)
    if product is None or scale is None:
        return None
    total = matcher.reader(product.outputs[0], "Add") if has_bias else None
    bias = _parameter(matcher, total, product.outputs[0], x, axes)
    if total is None or bias is None:
        return _Tail(product, scale, "", nodes)
    return _Tail(total, scale, bias, [*nodes, product])


def _parameter(matcher: GraphMatcher, node: Node | None, value: str, x: str, axes: tuple[int, ...]) -> str | None:
    """The operand of a node beside ``value``, if its shape is known to be that of x's normalized axes."""
    if node is None or node.inputs[0] == node.inputs[1]:
        return None
    other = node.inputs[1] if node.inputs[0] == value else node.inputs[0]
    shape, parameter = matcher.argument(x).shape, matcher.argument(other).shape
    if not shape or parameter is None or not all(isinstance(size, int) for size in parameter):
        return None
    return other if len(shape) >= len(axes) == len(parameter) and shape[-len(axes) :] == parameter else None


def _types_agree(matcher: GraphMatcher, *names: str) -> bool:
    types = {matcher.argument(name).type for name in names if name}
    return len(types) == 1 and None not in types


class LayerNormFusion(FusionPass):
    """(x - mean) / sqrt(mean((x - mean)^2) + epsilon) * scale + bias becomes LayerNormalization.

    The difference may be computed once or twice, and in float between two casts.
    """

    name = "LayerNormFusionL2"
    anchors = ("Sqrt",)

    def fuse(self, matcher: GraphMatcher, node: Node) -> object:
        """See the class."""
        quotient = matcher.reader(node.outputs[0], "Div")
        deviation = _read_deviation(matcher, node)
        if quotient is None or deviation is None or quotient.inputs[1] != node.outputs[0]:
            return None
        centred = _read_difference(matcher, quotient.inputs[0], deviation)
        tail = _read_tail(matcher, quotient, centred, deviation.axes, has_bias=True) if centred is not None else None
        if centred is None or tail is None:
            return None
        x = _without_cast(matcher, centred, deviation.nodes)
        if not _types_agree(matcher, x, tail.scale, tail.bias, tail.last.outputs[0]):
            return None
        attributes = {"axis": -len(deviation.axes), "epsilon": deviation.epsilon, "stash_type": 1}
        match = Match(tail.last, *tail.nodes, *deviation.nodes)
        return matcher.fuse(match, "LayerNormalization", [x, tail.scale, tail.bias], attributes, domain="")


def _read_difference(matcher: GraphMatcher, numerator: str, deviation: _Deviation) -> str | None:
    """x, if both the numerator and what is squared are x - mean(x); their nodes join the deviation's."""
    operands = (_without_cast(matcher, name, deviation.nodes) for name in (numerator, deviation.squared))
    first, second = (_centred(matcher, name, deviation) for name in operands)
    return first if first == second else None


def _centred(matcher: GraphMatcher, name: str, deviation: _Deviation) -> str | None:
    difference = matcher.maker(name, "Sub")
    mean = matcher.maker(difference.inputs[1], "ReduceMean") if difference is not None else None
    if difference is None or mean is None or mean.inputs[0] != difference.inputs[0]:
        return None
    if _last_axes(matcher, mean) != deviation.axes:
        return None
    deviation.nodes += [difference, mean]
    return difference.inputs[0]


class SimplifiedLayerNormFusion(FusionPass):
    """x / sqrt(mean(x^2) + epsilon) * scale becomes SimplifiedLayerNormalization.

    The quotient may be written with a reciprocal, and computed in float between two casts.
    """

    name = "SimplifiedLayerNormFusion"
    anchors = ("Sqrt",)

    def fuse(self, matcher: GraphMatcher, node: Node) -> object:
        """See the class."""
        deviation = _read_deviation(matcher, node)
        quotient = _read_quotient(matcher, node, deviation) if deviation is not None else None
        if deviation is None or quotient is None:
            return None
        tail = _read_tail(matcher, quotient, deviation.squared, deviation.axes, has_bias=False)
        if tail is None:
            return None
        x = _without_cast(matcher, deviation.squared, deviation.nodes)
        if not _types_agree(matcher, x, tail.scale, tail.last.outputs[0]):
            x = deviation.squared
            deviation.nodes = [member for member in deviation.nodes if member.op_type != "Cast"]
        if not _types_agree(matcher, tail.scale, tail.last.outputs[0]):
            return None
        attributes = {"axis": -len(deviation.axes), "epsilon": deviation.epsilon, "stash_type": 1}
        match = Match(tail.last, *tail.nodes, *deviation.nodes)
        return matcher.fuse(match, "SimplifiedLayerNormalization", [x, tail.scale], attributes, domain="")


def _read_quotient(matcher: GraphMatcher, root: Node, deviation: _Deviation) -> Node | None:
    """The node that divides x by the root, directly or by its reciprocal."""
    x, divisor = deviation.squared, root.outputs[0]
    division = matcher.reader(divisor, "Div", "Reciprocal")
    if division is None:
        return None
    if division.op_type == "Div" and division.inputs == [x, divisor]:
        return division
    is_reciprocal = division.op_type == "Reciprocal" or matcher.is_scalar(division.inputs[0], 1.0, divisor)
    product = matcher.reader(division.outputs[0], "Mul") if is_reciprocal else None
    if product is None or set(product.inputs) != {x, division.outputs[0]}:
        return None
    deviation.nodes.append(division)
    return product
