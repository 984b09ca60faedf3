"""Writes the body of a row kernel: what all forms have in common."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ort_sdk.api import TensorElementType
from ort_sdk.api.data_classes import dataclass
from ort_sdk.device.element_types import COMPUTE
from ort_sdk.device.expressions.nodes import Node
from ort_sdk.device.expressions.parameters import Parameters
from ort_sdk.device.expressions.writer import ExpressionWriter, stored

from .form import RowForm
from .program import COMBINATIONS, RowProgram, Step

__all__ = ["ElementTarget", "ElementValue", "RowTarget", "RowText", "combined", "start_of"]

_BOUNDS = {
    "f32": ("-INFINITY", "INFINITY"),
    "f64": ("(f64)-INFINITY", "(f64)INFINITY"),
    "i8": ("(i8)-128", "(i8)127"),
    "i16": ("(i16)-32768", "(i16)32767"),
    "i32": ("(-2147483647 - 1)", "2147483647"),
    "i64": ("(-9223372036854775807 - 1)", "9223372036854775807"),
    **{f"u{bits}": (f"(u{bits})0", f"(u{bits})-1") for bits in (8, 16, 32, 64)},
}


def start_of(combination: str, kind: str) -> str:
    """The value that changes nothing, of a type."""
    start = COMBINATIONS[combination].start
    if start in {"least", "greatest"}:
        return _BOUNDS[kind][start == "greatest"]
    return f"({kind}){start}"


def combined(combination: str, a: str, b: str, kind: str, *, vector: bool = False) -> str:
    """Text of two values combined."""
    text = COMBINATIONS[combination].text.format(a=a, b=b)
    return text.replace("SELECT(", "SELECT_V(") if vector else f"({kind})({text})"


@dataclass(frozen=True, slots=True)
class ElementTarget:
    """An array that gets a value per element."""

    memory: str
    """Name of the parameter."""
    offset: str
    steps: tuple[str, ...]
    """Strides along the axes of the space, that of vectors last."""
    element_type: TensorElementType

    def store(self, indices: Sequence[str], value: str, *, vector: bool) -> str:
        """The statement that writes it."""
        terms = [
            name if step == "1" else f"{name} * {step}" for name, step in zip(indices, self.steps, strict=True) if step != "0"
        ]
        position = " + ".join(([] if self.offset == "0" else [self.offset]) + terms) or "0"
        return stored(self.memory, position, value, self.element_type, vector=vector)


@dataclass(frozen=True, slots=True)
class ElementValue:
    """An expression of the elements, or of the results in their places."""

    writer: ExpressionWriter
    node: Node
    prefix: str
    """Of its variables' names."""

    def lines(self, indices: Sequence[str], *, vector: bool) -> tuple[list[str], str]:
        """Statements that compute it, and the variable that has it."""
        lines, names = self.writer.lines(indices, self.prefix, vector=vector)
        return lines, names[id(self.node)]


@dataclass(frozen=True, slots=True)
class RowTarget:
    """A dense array that gets a result per row, or per part of one."""

    memory: str
    name: str
    """Of the result."""
    element_type: TensorElementType


class RowText:
    """A row kernel's statements.

    Args:
        program: what is done.
        form: chosen for its rows.
        root: expression of the elements.
        writer: of it.
        parameters: of the kernel.
        numbers: the program's, as text.
        rows: targets per row.
        kept: expression of the elements, given as ``x``, and what gets it.
        result: gets the program's result.
        epilogue: what is stored in place of the result, which it is given as ``result``.
        buffer_cells: elements of local memory that keep the elements of rows; 0 for computing them in each pass.
    """

    def __init__(
        self,
        program: RowProgram,
        form: RowForm,
        root: Node,
        writer: ExpressionWriter,
        parameters: Parameters,
        numbers: Mapping[str, str],
        rows: Sequence[RowTarget],
        kept: tuple[ElementValue, ElementTarget] | None,
        result: ElementTarget | None,
        epilogue: ElementValue | None,
        buffer_cells: int,
    ) -> None:
        space = form.space
        self.program, self.space, self.form, self.root, self.writer = program, space, form, root, writer
        self.parameters, self.numbers, self.rows = parameters, numbers, rows
        self.kept, self.result, self.epilogue, self.buffer_cells = kept, result, epilogue, buffer_cells
        self.kind = COMPUTE[root.element_type]
        self.outer_names = [f"i{axis}" for axis in range(len(space.outer))]
        self.inner_names = [f"j{axis}" for axis in range(len(space.inner))]
        self.index_names = space.ordered([*self.outer_names, *self.inner_names], across=form.is_across)
        self.outer_sizes = [parameters.index(size) if axis else "" for axis, size in enumerate(space.outer)]
        self.inner_sizes = [parameters.index(size) for size in space.inner]
        self.chunks = parameters.index(form.chunks)
        self.row_count, self.count = parameters.index(space.rows), parameters.index(space.count)

    def row_position(self, row: str) -> str:
        """Where the results of a row, or of this part of it, go."""
        return row if self.form.chunks == 1 else f"{row} * {self.chunks} + GROUP(1)"

    def type_of(self, step: Step) -> str:
        """Type that a step computes in."""
        return step.type or self.kind

    def is_read_later(self, name: str, number: int) -> bool:
        """Whether a step after one with a number, or the result, reads a name."""
        step = self.program.steps[number]
        texts = [text for _, text in step.derived] + [self.program.result]
        for later in self.program.steps[number + 1 :]:
            texts += [later.change, later.value, *(text for _, text in later.derived)]
        return any(f"{{{name}}}" in text for text in texts)

    def filled(self, text: str, x: str, position: str, *, vector: bool) -> str:
        """A program's text with names for its places; in vectors, results of rows are vectors, too, named with a ``v``."""
        names = {"x": x, "r": position, **self.numbers}
        names["none"] = self._no_position(vector=vector)
        for match in re.findall(r"\{(\w+)\}", text):
            names.setdefault(match, f"{match}v" if vector else match)
        found = text.format(**names)
        return found.replace("SELECT(", "SELECT_V(") if vector else found

    def _no_position(self, *, vector: bool) -> str:
        last = self.program.steps[-1]
        none = "-1" if last.combination == "max" else self.count
        return f"splat_i32((i32){none})" if vector else f"({last.type or self.kind})({none})"

    def element(self, number: int, cell: str, *, vector: bool) -> list[str]:
        """Statements that make ``x``, the element as the pass with a number sees it.

        Args:
            number: of the step; that of steps for the result.
            cell: where the element is kept in local memory.
            vector: of several elements.
        """
        steps, kind = self.program.steps, f"{self.kind}v" if vector else self.kind
        changes = [step.change for step in steps[: number + 1]]
        lines: list[str] = []
        if self.buffer_cells and number:
            lines.append(f"{kind} x = {f'VLOAD(buffer + {cell})' if vector else f'buffer[{cell}]'};")
            changes = changes[number:]
        else:
            lines += self.raw(vector=vector)
        changed = [change for change in changes if change]
        lines += [f"x = {self.filled(change, 'x', '', vector=vector)};" for change in changed]
        is_kept = self.buffer_cells and number < len(steps) and (number == 0 or changed)
        if is_kept and number + 1 < self.program.passes:
            lines.append(f"VSTORE(x, buffer + {cell});" if vector else f"buffer[{cell}] = x;")
        return lines

    def raw(self, *, vector: bool) -> list[str]:
        """Statements that compute the expression as ``x``."""
        lines, names = self.writer.lines(self.index_names, vector=vector)
        value = names[id(self.root)]
        return [*lines, f"{self.kind}v x = {value};" if vector else f"{self.kind} x = ({self.kind}){value};"]

    def pass_of(self, number: int, cell: str, position: str, accumulator: str, *, vector: bool) -> list[str]:
        """Statements that combine an element with an accumulator."""
        step = self.program.steps[number]
        lines = self.element(number, cell, vector=vector)
        if number == 0 and self.kept is not None:
            lines = self._keeping(*self.kept, lines, vector=vector)
        kind = self.type_of(step)
        value = self.filled(step.value, "x", position, vector=vector)
        lines.append(f"{kind}{'v' if vector else ''} b = {value};")
        lines.append(f"{accumulator} = {combined(step.combination, accumulator, 'b', kind, vector=vector)};")
        return lines

    def _keeping(self, value: ElementValue, target: ElementTarget, lines: list[str], *, vector: bool) -> list[str]:
        """The statements with those that write the element itself, before it is changed."""
        first = len(self.raw(vector=vector))
        own, name = value.lines(self.index_names, vector=vector)
        return [*lines[:first], *own, target.store(self.index_names, name, vector=vector), *lines[first:]]

    def stored_result(self, target: ElementTarget, cell: str, *, vector: bool) -> list[str]:
        """Statements of the last pass: the result, through the epilogue, to its place."""
        lines = self.element(len(self.program.steps), cell, vector=vector)
        kind = f"{self.kind}v" if vector else self.kind
        lines.append(f"{kind} result = {self.filled(self.program.result, 'x', '', vector=vector)};")
        own, value = ([], "result") if self.epilogue is None else self.epilogue.lines(self.index_names, vector=vector)
        return [*lines, *own, target.store(self.index_names, value, vector=vector)]
