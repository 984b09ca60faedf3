"""The reduction kernel: combines the elements of an expression along axes, computing the expression as it loads."""

from __future__ import annotations

from collections.abc import Sequence

from ort_sdk.api.data_classes import dataclass
from ort_sdk.device.device_class import DeviceClass
from ort_sdk.device.dialects import Dialect
from ort_sdk.device.element_types import COMPUTE
from ort_sdk.device.launches import KernelSource, Launch

from .elementwise import is_wide
from .index_space import broadcast_strides, merged_axes
from .nodes import Node, Strided, element_count, resolved
from .parameters import Parameters
from .writer import ExpressionWriter, leaves_of, stored

__all__ = ["REDUCTIONS", "Reduction", "reduction_launch"]


@dataclass(frozen=True, slots=True)
class Reduction:
    """How elements are combined: texts with the value so far, ``a``, and the next, ``b``."""

    start: str
    step: str
    has_position: bool = False
    """Whether it gives the position of an element, and not its value."""


REDUCTIONS = {
    "sum": Reduction("0", "{a} + {b}"),
    "prod": Reduction("1", "{a} * {b}"),
    "max": Reduction("", "{a} > {b} || {a} != {a} ? {a} : {b}"),
    "min": Reduction("", "{a} < {b} || {a} != {a} ? {a} : {b}"),
    "any": Reduction("0", "{a} | {b}"),
    "all": Reduction("1", "{a} & {b}"),
    # the first of equal elements, or the last where the names say so
    "argmax": Reduction("", "{b} > {a}", has_position=True),
    "argmin": Reduction("", "{b} < {a}", has_position=True),
    "argmax_last": Reduction("", "{b} >= {a}", has_position=True),
    "argmin_last": Reduction("", "{b} <= {a}", has_position=True),
}


def reduction_launch(
    name: str,
    root: Node,
    axes: Sequence[int],
    output: Strided,
    device: DeviceClass,
    dialect: Dialect,
    *,
    accumulator: str | None = None,
) -> Launch:
    """The launch that reduces an expression.

    Args:
        name: one of ``REDUCTIONS``.
        root: expression; it has elements.
        axes: that are reduced, ascending.
        output: dense, of the shape of the other axes, in order.
        device: plans the form.
        dialect: of the kernel.
        accumulator: type that is computed in; that of the expression by default.
    """
    root = resolved(root)
    shape = root.shape
    kept = [axis for axis in range(len(shape)) if axis not in axes]
    leaves = leaves_of([root])
    strides = {id(leaf): broadcast_strides(leaf, shape) for leaf in leaves}
    outer, outer_strides = merged_axes([shape[a] for a in kept], [[strides[id(leaf)][a] for a in kept] for leaf in leaves])
    inner, inner_strides = merged_axes([shape[a] for a in axes], [[strides[id(leaf)][a] for a in axes] for leaf in leaves])
    steps = {id(leaf): [*outer_strides[i], *inner_strides[i]] for i, leaf in enumerate(leaves)}
    parameters = Parameters(wide=is_wide([*leaves, output]))
    writer = ExpressionWriter([root], steps, parameters)
    text, lanes = _text(name, root, writer, parameters, outer, inner, output, device, accumulator)
    defines = (("INDEX64", 1),) if parameters.is_wide else ()
    groups = -(-element_count(outer) // lanes)
    source = KernelSource("reduce", text, defines)
    return Launch(source, (groups,), (lanes,), tuple(parameters.arguments), tuple(parameters.writes))


def _text(
    name: str,
    root: Node,
    writer: ExpressionWriter,
    parameters: Parameters,
    outer: Sequence[int],
    inner: Sequence[int],
    output: Strided,
    device: DeviceClass,
    accumulator: str | None,
) -> tuple[str, int]:
    reduction = REDUCTIONS[name]
    kind = accumulator or COMPUTE[root.element_type]
    lanes = device.lanes
    while lanes > 1 and lanes >= 2 * element_count(outer):
        lanes //= 2
    assert output.memory is not None
    target = parameters.memory(output.memory, output.element_type, written=True)
    rows, count = parameters.index(element_count(outer)), parameters.index(element_count(inner))
    lines = [f"  index_t row = (index_t)GROUP(0) * {lanes} + LANE(0);", f"  if (row < {rows}) {{"]
    lines += _decoded("row", outer, "i", parameters)
    lines += [f"    {kind} a = 0; index_t at = 0;", f"    for (index_t r = 0; r < {count}; r++) {{"]
    lines += _decoded("r", inner, "j", parameters)
    body, names = writer.lines([*(f"i{d}" for d in range(len(outer))), *(f"j{d}" for d in range(len(inner)))])
    lines += [f"      {line}" for line in body]
    lines.append(f"      {kind} b = ({kind}){names[id(root)]};")
    combined = reduction.step.format(a="a", b="b")
    if reduction.has_position:
        # a NaN is larger, and smaller, than all
        lines.append(f"      if (r == 0 || ({combined}) || (b != b && a == a)) {{ a = b; at = r; }}")
    elif reduction.start:
        lines.append(f"      a = r == 0 ? b : {combined};")
    else:
        lines.append(f"      a = r == 0 ? b : ({combined});")
    lines.append("    }")
    value = "(i64)at" if reduction.has_position else f"({COMPUTE[output.element_type]})a"
    lines += [f"    {stored(target, 'row', value, output.element_type)}", "  }"]
    head = f"KERNEL WORKGROUP({lanes}, 1, 1) void reduce({parameters.text}) {{"
    return "\n".join([head, *lines, "}"]) + "\n", lanes


def _decoded(flat: str, sizes: Sequence[int], name: str, parameters: Parameters) -> list[str]:
    """Statements that make the index along each axis of a flat index."""
    lines, rest = [], flat
    for axis in range(len(sizes) - 1, 0, -1):
        count = parameters.index(sizes[axis])
        lines.append(f"    index_t {name}{axis} = ({rest}) % {count};")
        rest = f"({rest}) / {count}"
    lines.append(f"    index_t {name}0 = {rest};")
    return lines
