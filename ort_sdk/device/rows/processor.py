"""Row kernels for processors: a lane goes through rows on its own, on vectors along them or across them."""

from __future__ import annotations

from collections.abc import Callable

from ort_sdk.device.element_types import COMPUTE
from ort_sdk.device.expressions.index_space import decoded
from ort_sdk.device.expressions.writer import stored

from .text import ElementTarget, RowText, combined, start_of

__all__ = ["ProcessorText"]

_Body = Callable[[str, str], list[str]]
"""Gives statements for an element: (accumulator, cell) →."""

BLOCK = 4096
"""Elements whose sum is made on its own, on vectors, so that errors do not grow with the length of a row."""
SEQUENCE = 256
"""The same where they are added one by one."""
UNROLLED = 4
"""Vectors that are combined on their own, so that additions need not wait for each other."""


class ProcessorText(RowText):
    """The statements for a lane that computes alone."""

    def lines(self) -> list[str]:
        """The kernel's body."""
        form, space = self.form, self.space
        lines = [f"LOCAL({self.kind}, buffer, {self.buffer_cells});"] if self.buffer_cells else []
        lines += self._bounds()
        blocks = self.row_count
        if form.is_across:
            count = space.rows // space.outer[-1] * -(-space.outer[-1] // (form.width * form.vectors))
            blocks = self.parameters.index(count)
        per_lane = self.parameters.index(form.rows_per_lane)
        lines.append(f"index_t first = (index_t)GROUP(0) * {per_lane}, stop = first + {per_lane};")
        lines.append(f"if (stop > {blocks}) stop = {blocks};")
        lines.append("for (index_t unit = first; unit < stop; unit++) {")
        lines += self._across() if form.is_across else self._along()
        return [*lines, "}"]

    def _bounds(self) -> list[str]:
        """The part of the first axis of a row that this lane reduces."""
        size = self.inner_sizes[0]
        if self.form.chunks == 1:
            return [f"index_t lo = 0, hi = {size};"]
        chunk = self.parameters.index(self.form.chunk)
        return [f"index_t lo = (index_t)GROUP(1) * {chunk}, hi = lo + {chunk};", f"if (hi > {size}) hi = {size};"]

    def _along(self) -> list[str]:
        is_vector = self.form.width > 1
        lines = [*decoded("unit", self.outer_names, self.outer_sizes), "index_t row = unit;"]
        for number, step in enumerate(self.program.steps):
            kind = self.type_of(step)
            lines.append(f"{kind} {step.name} = {start_of(step.combination, kind)};")
            lines += ["{", *self._along_loops(number), "}"]
            lines += self._derived(number, vector=False)
            if is_vector:
                lines += self._splats(number)
        lines += self._row_stores(vector=False)
        if self.result is not None:
            lines += self._nest(self._result_loops(self.result))
        return lines

    def _splats(self, number: int) -> list[str]:
        step = self.program.steps[number]
        names = [step.name, *(name for name, _ in step.derived)]
        return [f"{self.kind}v {name}v = splat_{self.kind}({name});" for name in names if self.is_read_later(name, number)]

    def _derived(self, number: int, *, vector: bool) -> list[str]:
        kind = f"{self.kind}v" if vector else self.kind
        derived = self.program.steps[number].derived
        return [f"{kind} {name}{'v' if vector else ''} = {self.filled(text, '', '', vector=vector)};" for name, text in derived]

    def _along_loops(self, number: int) -> list[str]:
        """Loops that combine a row's elements, in several accumulators, which end in the step's variable."""
        step, width = self.program.steps[number], self.form.width
        kind, name = self.type_of(step), step.name
        start, size = start_of(step.combination, kind), self.space.inner[-1]
        if width == 1:
            return self._one_by_one(number, [name], kind, start, vector=False)
        unrolled = UNROLLED if self._is_light() and size >= UNROLLED * width else 1
        accumulators = [f"a{each}" for each in range(unrolled)]
        opened = [f"{kind}v {each} = splat_{kind}({start});" for each in accumulators]
        loops = self._vector_loops(number, accumulators)
        joined = accumulators[0]
        closed = [f"{joined} = {combined(step.combination, joined, each, kind, vector=True)};" for each in accumulators[1:]]
        closed.append(f"{name} = {combined(step.combination, name, f'join_{step.combination}_{kind}({joined})', kind)};")
        if step.combination == "sum" and size > BLOCK:
            inside = [*opened, *loops, *closed]
            blocks = [f"for (index_t block = low; block < high; block += {BLOCK}) {{"]
            blocks += [f"index_t begin = block, end = block + {BLOCK} < high ? block + {BLOCK} : high;", *inside, "}"]
            return self._nest(blocks)
        begin = ["index_t begin = low, end = high;"]
        return [*opened, *self._nest([*begin, *loops]), *closed]

    def _is_light(self) -> bool:
        return len(self.raw(vector=True)) <= UNROLLED and not self.program.is_dear

    def _vector_loops(self, number: int, accumulators: list[str]) -> list[str]:
        """Loops over ``begin`` to ``end`` along the last axis: several vectors, one, and what is left."""
        width, index = self.form.width, self.inner_names[-1]
        lines = [f"index_t {index} = begin;"]
        if len(accumulators) > 1:
            lines.append(f"for (; {index} + {len(accumulators) * width} <= end;) {{")
            for each in accumulators:
                lines += [
                    "{",
                    *self.pass_of(number, self._cell(), self._position(), each, vector=True),
                    "}",
                    f"{index} += {width};",
                ]
            lines.append("}")
        lines.append(f"for (; {index} + {width} <= end; {index} += {width}) {{")
        lines += [*self.pass_of(number, self._cell(), self._position(), accumulators[0], vector=True), "}"]
        if self.space.inner[-1] % width:
            name = self.program.steps[number].name
            lines.append(f"for (; {index} < end; {index}++) {{")
            lines += [*self.pass_of(number, self._cell(), index, name, vector=False), "}"]
        return lines

    def _result_loops(self, target: ElementTarget) -> list[str]:
        width, index = self.form.width, self.inner_names[-1]
        lines = [f"index_t {index} = low;"]
        if width > 1:
            lines.append(f"for (; {index} + {width} <= high; {index} += {width}) {{")
            lines += [*self.stored_result(target, self._cell(), vector=True), "}"]
        if self.space.inner[-1] % width or width == 1:
            lines += [f"for (; {index} < high; {index}++) {{", *self.stored_result(target, self._cell(), vector=False), "}"]
        return lines

    def _nest(self, inner: list[str]) -> list[str]:
        """Loops over all axes of a row but the last, around statements for ``low`` to ``high`` along the last."""
        names, sizes = self.inner_names, self.inner_sizes
        if len(names) == 1:
            return ["{", "index_t low = lo, high = hi;", *inner, "}"]
        lines = [f"for (index_t {names[0]} = lo; {names[0]} < hi; {names[0]}++)"]
        lines += [
            f"for (index_t {name} = 0; {name} < {size}; {name}++)" for name, size in zip(names[1:-1], sizes[1:-1], strict=True)
        ]
        return [*lines, "{", f"index_t low = 0, high = {sizes[-1]};", *inner, "}"]

    def _position(self) -> str:
        width = self.form.width
        return f"(splat_i32((i32){self.inner_names[-1]}) + (i32v)({', '.join(map(str, range(width)))}))"

    def _cell(self) -> str:
        flat = self.inner_names[0]
        for name, size in zip(self.inner_names[1:], self.inner_sizes[1:], strict=True):
            flat = f"({flat} * {size} + {name})"
        return f"{flat} * {self.form.width}" if self.form.is_across else flat

    def _across(self) -> list[str]:
        if self.form.vectors > 1:
            return self._across_side_by_side()
        width, index = self.form.width, self.outer_names[-1]
        size = self.outer_sizes[-1] or self.row_count
        lines = [*self._block_of_rows(index, width), f"index_t row = above + {index};"]
        vector = self._across_rows(vector=True)
        if self.space.outer[-1] % width == 0:
            return [*lines, *vector]
        scalar = self._across_rows(vector=False)
        lines += [f"if ({index} + {width} <= {size}) {{", *vector, "} else {"]
        return [*lines, f"for (; {index} < {size}; {index}++, row++) {{", *scalar, "}", "}"]

    def _block_of_rows(self, first: str, size: int) -> list[str]:
        """Statements that make the first index of a block of rows along their last axis, and the row ``above`` that starts at."""
        whole = self.outer_sizes[-1] or self.row_count
        if len(self.outer_names) == 1:
            return [f"index_t {first} = unit * {size}, above = 0;"]
        blocks = self.parameters.index(-(-self.space.outer[-1] // size))
        lines = [f"index_t above = unit / {blocks};", *decoded("above", self.outer_names[:-1], self.outer_sizes[:-1])]
        return [*lines, f"index_t {first} = unit % {blocks} * {size};", f"above = above * {whole};"]

    def _across_side_by_side(self) -> list[str]:
        """Several vectors of neighbouring rows; there are no rows beside them."""
        width, numbers = self.form.width, range(self.form.vectors)
        lines = self._block_of_rows("left", width * self.form.vectors)
        for number, step in enumerate(self.program.steps):
            kind = self.type_of(step)
            start = f"splat_{kind}({start_of(step.combination, kind)})"
            names = [f"{step.name}{each}" for each in numbers]
            lines += [f"{kind}v {name} = {start};" for name in names]
            lines += self._one_by_one(number, names, f"{kind}v", start, vector=True)
        for each in numbers:
            lines += ["{", f"index_t row = above + left + {each * width};"]
            lines += [f"{self.type_of(step)}v {step.name}v = {step.name}{each};" for step in self.program.steps]
            lines += [*self._row_stores(vector=True), "}"]
        return lines

    def _across_rows(self, *, vector: bool) -> list[str]:
        mark, lines = "v" if vector else "", []
        for number, step in enumerate(self.program.steps):
            kind, name = self.type_of(step), f"{step.name}{'v' if vector else ''}"
            start = start_of(step.combination, kind)
            start = f"splat_{kind}({start})" if vector else start
            lines.append(f"{kind}{mark} {name} = {start};")
            lines += self._one_by_one(number, [name], f"{kind}{mark}", start, vector=vector)
            lines += self._derived(number, vector=vector)
        lines += self._row_stores(vector=vector)
        if self.result is not None:
            index, target = self.inner_names[-1], self.result
            body = self.stored_result(target, self._cell(), vector=vector)
            lines += self._nest([f"for (index_t {index} = low; {index} < high; {index}++) {{", *body, "}"])
        return lines

    def _one_by_one(self, number: int, names: list[str], c_type: str, start: str, *, vector: bool) -> list[str]:
        """A loop that combines the elements of a row, or of vectors of rows, in order; sums in blocks."""
        index, step = self.inner_names[-1], self.program.steps[number]
        is_blocked = step.combination == "sum" and self.space.inner[-1] > SEQUENCE
        accumulators = [f"a{each}" for each in range(len(names))] if is_blocked else names
        body = self._side_by_side(number, accumulators, vector=vector)
        if not is_blocked:
            return self._nest([f"for (index_t {index} = low; {index} < high; {index}++) {{", *body, "}"])
        blocks = [f"for (index_t block = low; block < high; block += {SEQUENCE}) {{"]
        blocks.append(f"index_t end = block + {SEQUENCE} < high ? block + {SEQUENCE} : high;")
        blocks += [f"{c_type} {each} = {start};" for each in accumulators]
        blocks += [f"for (index_t {index} = block; {index} < end; {index}++) {{", *body, "}"]
        blocks += [f"{name} = {name} + {each};" for name, each in zip(names, accumulators, strict=True)]
        return self._nest([*blocks, "}"])

    def _side_by_side(self, number: int, accumulators: list[str], *, vector: bool) -> list[str]:
        """Statements that combine an element, or a vector at each of several places, with its accumulator."""
        index = self.inner_names[-1]
        position = f"splat_i32((i32){index})" if vector else index
        if len(accumulators) == 1:
            return self.pass_of(number, self._cell(), position, accumulators[0], vector=vector)
        lines = []
        for each, accumulator in enumerate(accumulators):
            lines += ["{", f"index_t {self.outer_names[-1]} = left + {each * self.form.width};"]
            lines += [f"{self.type_of(step)}v {step.name}v = {step.name}{each};" for step in self.program.steps[:number]]
            lines += [*self.pass_of(number, self._cell(), position, accumulator, vector=vector), "}"]
        return lines

    def _row_stores(self, *, vector: bool) -> list[str]:
        lines = []
        for target in self.rows:
            kind = COMPUTE[target.element_type]
            if not vector:
                lines.append(stored(target.memory, self.row_position("row"), f"({kind}){target.name}", target.element_type))
            else:
                own = "i32" if target.name == "position" else self.kind
                element = stored(target.memory, self.row_position("(row + lane)"), f"({kind})each[lane]", target.element_type)
                lines.append(
                    f"{{ {own} each[VW]; VSTORE({target.name}v, each); for (int lane = 0; lane < VW; lane++) {element} }}"
                )
        return lines
