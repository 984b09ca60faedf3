"""Plans attention: the form by the device's class, the tile by the sizes, and parts of the keys where there are few rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from string import Template

from ort_sdk.api import TensorElementType
from ort_sdk.api.data_classes import dataclass
from ort_sdk.device import arithmetic
from ort_sdk.device.array import DeviceArray
from ort_sdk.device.context import DeviceContext
from ort_sdk.device.element_types import HALF_TYPES, STORAGE
from ort_sdk.device.expressions import views
from ort_sdk.device.expressions.elementwise import is_wide
from ort_sdk.device.expressions.index_space import broadcast_strides
from ort_sdk.device.expressions.nodes import Apply, Constant, Node, Strided, element_count, resolved
from ort_sdk.device.expressions.parameters import Parameters
from ort_sdk.device.expressions.writer import ExpressionWriter, leaves_of
from ort_sdk.device.launches import Launch, filled_source, index64

from .extras import Extras
from .limits import limits_of, range_text
from .texts import COMBINE, RANGE, ROWS, TILES

__all__ = ["attend", "attend_cache", "stored"]

_FLOAT = TensorElementType.FLOAT
_STORED = HALF_TYPES | {_FLOAT}
MOST_ROWS_OF_LANE, MOST_ROWS_OF_GROUP = 4, 16
LEAST_KEYS_OF_PART = 256
"""Keys of a part from which on it is worth another kernel that combines the parts."""
GROUPS_PER_UNIT = {"cpu": 1, "gpu": 4}
"""Groups that keep a processor busy."""


@dataclass(frozen=True, slots=True)
class _Operands:
    """Arrays with axes (batch, heads, entries, size), the last one with stride 1."""

    q: Strided
    k: Strided
    v: Strided
    bias: Node

    @property
    def sharing(self) -> int:
        """Query heads of a key head."""
        return self.q.shape[1] // self.k.shape[1]

    @property
    def output_type(self) -> TensorElementType:
        """What the result is stored as: half where the query is, since it is rounded to that in any case."""
        return self.q.element_type


def attend(q: DeviceArray, k: DeviceArray, v: DeviceArray, biases: Sequence[DeviceArray], scale: float) -> DeviceArray | None:
    """See ``ArrayNamespace.attention``; float16 and bfloat16 operands are read as they are stored.

    Rows in which every key has a bias of minus infinity are zeros.
    """
    return attend_cache(q, k, v, biases, scale, Extras())


def attend_cache(
    q: DeviceArray, k: DeviceArray, v: DeviceArray, biases: Sequence[DeviceArray], scale: float, extras: Extras
) -> DeviceArray | None:
    """The same over a cache.

    Args:
        q: (batch, heads, tokens, size).
        k: (batch, key heads, rows, size).
        v: (batch, key heads, rows, value size).
        biases: arrays that broadcast against the scores.
        scale: factor of the scores.
        extras: lengths, rotation and the like.
    """
    operands = _operands(q, k, v, biases)
    plan = None if operands is None else _Plan.of(q.context, operands)
    if operands is None or plan is None:
        return None
    context, (batch, heads, length, _), size = q.context, operands.q.shape, operands.v.shape[3]
    # the heads next to each other in memory: merging them is a view
    output = context.new((batch, length, heads, size), operands.output_type)
    target = output
    if plan.parts > 1:
        target = context.new((batch, length, heads, plan.parts, size + 2), _FLOAT)
    context.submit(_launch(operands, plan, target, scale, extras))
    if plan.parts > 1:
        context.submit(_combination(context, target, output, plan.parts))
    made = q.made(views.permuted(output, (0, 2, 1, 3)))
    return arithmetic.cast(made, q.element_type)


def _operands(q: DeviceArray, k: DeviceArray, v: DeviceArray, biases: Sequence[DeviceArray]) -> _Operands | None:
    """The operands as the kernels read them; None where the kernels do not take them."""
    types = {q.element_type, k.element_type, v.element_type, *(each.element_type for each in biases)}
    are_fit = all(each.ndim == 4 and 0 not in each.shape for each in (q, k, v)) and types <= _STORED
    if not are_fit or k.shape[:3] != v.shape[:3] or (q.shape[0], q.shape[3]) != (k.shape[0], k.shape[3]):
        return None
    if q.shape[1] % k.shape[1]:
        return None
    scores = (*q.shape[:3], k.shape[2])
    bias: Node = Constant(0.0, (), _FLOAT)
    for position, each in enumerate(biases):
        node = arithmetic.cast_node(q.context, each.node, _FLOAT)
        bias = arithmetic.applied(q.context, "add", (bias, node), _FLOAT) if position else node
    if arithmetic.broadcast_shape((bias.shape, scores)) != scores:
        return None
    bias = q.context.ready(bias)
    return _Operands(stored(q.context, q.node), stored(q.context, k.node), stored(q.context, v.node), bias)


def stored(context: DeviceContext, node: Node) -> Strided:
    """The elements in memory with a last axis of stride 1, without the cast that widens them."""
    node = resolved(node)
    if isinstance(node, Apply) and node.function.name == "cast" and node.operands[0].element_type in HALF_TYPES:
        node = resolved(node.operands[0])
    array = context.materialise(node)
    return array if array.strides[-1] == 1 or array.shape[-1] == 1 else context.dense(array)


@dataclass(frozen=True, slots=True)
class _Plan:
    """The form of the kernel."""

    is_cpu: bool
    rows: int
    """Rows of a lane, or of a group of lanes."""
    tile: int
    """Keys of a tile."""
    lanes: int
    width: int
    """Elements of a vector."""
    panels: int
    """Groups for the rows of a key head."""
    parts: int
    """Ranges that the keys are split into."""

    @classmethod
    def of(cls, context: DeviceContext, operands: _Operands) -> _Plan | None:
        """The plan for a device; None if it has not enough local memory."""
        device, rows = context.device, operands.sharing * operands.q.shape[2]
        size, value_size = operands.q.shape[3], operands.v.shape[3]
        if device.is_cpu:
            width = math.gcd(device.vector_width, size, value_size) if context.launcher.dialect.has_vector_math else 1
            own = min(MOST_ROWS_OF_LANE, 1 << (rows.bit_length() - 1))
            return cls._split(context, operands, True, own, max(16, width), 1, width)
        lanes = min(128, device.most_lanes)
        for own in (16, 8, 4, 2, 1):
            for tile in (32, 16, 8):
                floats = own * size + tile * max(size + 1, value_size) + own * tile + 4 * own
                if own < 2 * rows and own <= lanes and 4 * floats <= min(device.local_bytes, 48 << 10):
                    return cls._split(context, operands, False, own, tile, lanes, 1)
        return None

    @classmethod
    def _split(
        cls, context: DeviceContext, operands: _Operands, is_cpu: bool, rows: int, tile: int, lanes: int, width: int
    ) -> _Plan:
        keys, device = operands.k.shape[2], context.device
        panels = -(-operands.sharing * operands.q.shape[2] // rows)
        groups = operands.k.shape[0] * operands.k.shape[1] * panels
        wanted = -(-device.units * GROUPS_PER_UNIT[device.kind] // groups)
        parts = max(1, min(wanted, keys // LEAST_KEYS_OF_PART))
        return cls(is_cpu, rows, tile, lanes, width, panels, parts)


def _launch(operands: _Operands, plan: _Plan, target: Strided, scale: float, extras: Extras) -> Launch:
    q, k, v, bias = operands.q, operands.k, operands.v, operands.bias
    batch, heads, length, size = q.shape
    key_heads, keys, value_size = k.shape[1], k.shape[2], v.shape[3]
    scores = (batch, heads, length, keys)
    leaves = leaves_of([bias])
    parameters = Parameters(wide=is_wide([q, k, v, target, *leaves]) or plan.panels * keys >= 1 << 31)
    names = {
        "q": parameters.memory(q.held, q.element_type),
        "k": parameters.memory(k.held, k.element_type),
        "v": parameters.memory(v.held, v.element_type),
        "y": parameters.memory(target.held, target.element_type, written=True),
        "scale": parameters.number(scale, _FLOAT),
        "QT": STORAGE[q.element_type],
        "KT": STORAGE[k.element_type],
        "VT": STORAGE[v.element_type],
        "YT": STORAGE[target.element_type],
    }
    numbers = {"heads": heads, "key_heads": key_heads, "sharing": operands.sharing, "length": length, "keys": keys}
    numbers |= {"panels": plan.panels, "splits": plan.parts, "span": -(-keys // plan.parts)}
    for name, array in (("q", q), ("k", k), ("v", v)):
        own = zip("obhs", (array.offset, *array.strides[:3]), strict=True)
        numbers |= {f"{name}{letter}": number for letter, number in own}
    # the number of keys is one like another: those of 0 and 1 would make kernels of their own
    names |= {name: parameters.index(number, folds=name not in {"keys", "span"}) for name, number in numbers.items()}
    writer = ExpressionWriter([bias], {id(leaf): broadcast_strides(leaf, scores) for leaf in leaves}, parameters)
    lines, values = writer.lines(("b", "h", "i", "j"), "w")
    names["bias"] = "\n".join([*lines, f"f32 bias = {values[id(resolved(bias))]};"])
    names["range"] = Template(range_text(limits_of(bias, keys), scores, parameters, RANGE)).substitute(names)
    defines, more = extras.defines(parameters)
    names |= more
    names["parameters"] = parameters.text
    defines |= {"ROWS": plan.rows, "TILE": plan.tile, "D": size, "DV": value_size}
    if plan.width > 1:
        defines["VW"] = plan.width
    if parameters.is_wide:
        defines["INDEX64"] = 1
    if plan.parts > 1:
        defines["PARTIAL"] = 1
    if not plan.is_cpu:
        defines |= {"LANES": plan.lanes, "WIDTH": max(size + 1, value_size), "OWN": -(-plan.rows * value_size // plan.lanes)}
    name, text = ("attend_rows", ROWS) if plan.is_cpu else ("attend_tiles", TILES)
    source = filled_source(name, text, names, defines)
    groups = batch * key_heads * plan.panels * plan.parts
    return Launch(source, (groups,), (plan.lanes,), tuple(parameters.arguments), tuple(parameters.writes))


def _combination(context: DeviceContext, parts: Strided, output: Strided, count: int) -> Launch:
    total, lanes = element_count(output.shape), context.device.lanes
    defines = {"LANES": lanes, "DV": output.shape[-1]}
    source = filled_source("attend_combine", COMBINE, {"YT": STORAGE[output.element_type]}, defines)
    arguments = (parts.held, output.held, index64(total), index64(count))
    return Launch(source, (-(-total // lanes),), (lanes,), arguments, (1,))
