"""Launches of row kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ort_sdk.api import TensorElementType
from ort_sdk.api.data_classes import dataclass, field
from ort_sdk.device.device_class import DeviceClass
from ort_sdk.device.dialects import Dialect
from ort_sdk.device.element_types import COMPUTE, HALF_TYPES
from ort_sdk.device.expressions.elementwise import is_wide
from ort_sdk.device.expressions.nodes import Apply, Node, Strided, resolved
from ort_sdk.device.expressions.parameters import Parameters
from ort_sdk.device.expressions.writer import ExpressionWriter, leaves_of, reads_vectors
from ort_sdk.device.launches import KernelSource, Launch

from .form import RowForm, row_form
from .group import GroupText
from .processor import ProcessorText
from .program import RowProgram
from .space import RowSpace, row_space
from .text import ElementTarget, ElementValue, RowTarget, combined

__all__ = ["RowWork", "row_launch"]

_VECTOR_TARGETS = frozenset({TensorElementType.FLOAT, *HALF_TYPES})


@dataclass(frozen=True, slots=True)
class RowWork:
    """A program, the elements it goes through, and what it writes."""

    program: RowProgram
    root: Node
    """Expression of the elements; it is ready, and has some."""
    axes: Sequence[int]
    """That make a row, ascending."""
    numbers: Mapping[str, float] = field(default_factory=dict)
    """The program's."""
    rows: Sequence[tuple[str, Strided]] = ()
    """(result, dense array with an element per row, or per row and part)."""
    result: Strided | None = None
    """Gets the program's result, element by element."""
    epilogue: tuple[Node, Node] | None = None
    """(stand-in for the result, expression of it that is written instead)."""
    kept: tuple[Node, Strided] | None = None
    """(expression of the elements, or they themselves; array that gets it)."""

    def form(self, device: DeviceClass, dialect: Dialect) -> RowForm:
        """The form that its launch has; it may be split in parts where the program only reduces."""
        return row_form(
            self.space(),
            device,
            takes_vectors=dialect.has_vector_math and self._takes_vectors(),
            may_split=not self.program.result,
        )

    def space(self) -> RowSpace:
        """Its axes."""
        return row_space(resolved(self.root).shape, self.axes, self.arrays())

    def arrays(self) -> list[Strided]:
        """All that is read, or written element by element."""
        return [*leaves_of(self._roots()), *self._targets()]

    def _roots(self) -> list[Node]:
        roots = [self.root]
        if self.epilogue is not None:
            roots.append(self.epilogue[1])
        return roots if self.kept is None else [*roots, self.kept[0]]

    def _targets(self) -> list[Strided]:
        targets = [] if self.result is None else [self.result]
        return targets if self.kept is None else [*targets, self.kept[1]]

    def _takes_vectors(self) -> bool:
        targets = [each.element_type for each in self._targets()]
        is_float = COMPUTE[resolved(self.root).element_type] == "f32"
        kinds = {step.type for step in self.program.steps} <= {"", "i32"}
        return is_float and kinds and reads_vectors(self._roots()) and _VECTOR_TARGETS.issuperset(targets)


def row_launch(work: RowWork, form: RowForm, device: DeviceClass) -> Launch:
    """The launch for some work in a form."""
    root, program, space = resolved(work.root), work.program, form.space
    parameters = Parameters(wide=is_wide([*work.arrays(), *(target for _, target in work.rows)]))
    strides = {key: space.ordered(own, across=form.is_across) for key, own in space.strides.items()}
    writer = ExpressionWriter([root], strides, parameters)
    epilogue = keep = None
    if work.epilogue is not None:
        given, node = work.epilogue
        epilogue = ElementValue(ExpressionWriter([node], strides, parameters, {id(given): "result"}), resolved(node), "w")
    if work.kept is not None:
        node = resolved(work.kept[0])
        keep = ElementValue(ExpressionWriter([node], strides, parameters, {id(root): "x"}), node, "k")
    wide_type = root.element_type if COMPUTE[root.element_type] != "f32" else TensorElementType.FLOAT
    numbers = {name: parameters.number(value, wide_type) for name, value in work.numbers.items()}
    rows = [
        RowTarget(parameters.memory(target.held, target.element_type, written=True), name, target.element_type)
        for name, target in work.rows
    ]
    kept = None if keep is None or work.kept is None else (keep, _element_target(work.kept[1], strides, parameters))
    result = None if work.result is None else _element_target(work.result, strides, parameters)
    cells = _buffer_cells(work, form, device)
    kind = GroupText if form.is_group else ProcessorText
    text = kind(program, form, root, writer, parameters, numbers, rows, kept, result, epilogue, cells)
    body = text.lines()
    name = f"rows_{program.name}"
    head = f"KERNEL WORKGROUP({form.lanes}, 1, 1) void {name}({parameters.text}) {{"
    source = "\n".join([*_joins(program, form, text.kind), head, *(f"  {line}" for line in body), "}"]) + "\n"
    defines: list[tuple[str, str | int]] = [("VW", form.width)] if form.width > 1 else []
    if parameters.is_wide:
        defines.append(("INDEX64", 1))
    kernel = KernelSource(name, source, tuple(defines))
    groups = (_groups(form), form.chunks) if form.chunks > 1 else (_groups(form),)
    lanes = (form.lanes, 1)[: len(groups)]
    return Launch(kernel, groups, lanes, tuple(parameters.arguments), tuple(parameters.writes))


def _element_target(array: Strided, strides: Mapping[int, Sequence[int]], parameters: Parameters) -> ElementTarget:
    memory = parameters.memory(array.held, array.element_type, written=True)
    steps = tuple(parameters.index(step) for step in strides[id(array)])
    return ElementTarget(memory, parameters.index(array.offset), steps, array.element_type)


def _groups(form: RowForm) -> int:
    space = form.space
    if form.is_group:
        return -(-space.rows * form.row_lanes // form.lanes)
    blocks = space.rows
    if form.is_across:
        blocks = blocks // space.outer[-1] * -(-space.outer[-1] // (form.width * form.vectors))
    return -(-blocks // form.rows_per_lane)


def _buffer_cells(work: RowWork, form: RowForm, device: DeviceClass) -> int:
    """Elements of local memory that keep rows between passes; 0 where reading them again is as good, or they do not fit."""
    is_plain = not isinstance(resolved(work.root), Apply) and not work.program.is_dear and device.is_cpu
    if work.program.passes == 1 or is_plain or form.vectors > 1:
        return 0
    cells = form.space.count * (form.lanes // form.row_lanes) * (form.width if form.is_across else 1)
    cells = max(64, 1 << (cells - 1).bit_length())
    itemsize = 8 if COMPUTE[resolved(work.root).element_type] in {"f64", "i64", "u64"} else 4
    return cells if cells * itemsize <= device.local_bytes // 2 else 0


def _joins(program: RowProgram, form: RowForm, kind: str) -> list[str]:
    """Functions that combine a vector's elements, as a tree."""
    if form.width == 1 or form.is_across:
        return []
    texts = []
    for combination, own in dict.fromkeys((step.combination, step.type or kind) for step in program.steps):
        both = combined(combination, "e[i]", "e[i + width]", own)
        texts.append(f"""FN {own} join_{combination}_{own}({own}v v) {{
  {own} e[VW]; VSTORE(v, e);
  UNROLL for (int width = VW / 2; width > 0; width >>= 1) {{ UNROLL for (int i = 0; i < width; i++) e[i] = {both}; }}
  return e[0]; }}""")
    return texts
