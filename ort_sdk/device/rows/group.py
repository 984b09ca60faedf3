"""Row kernels for GPUs: lanes of a work-group share a row, or each has its own where neighbours in memory are of other rows."""

from __future__ import annotations

from ort_sdk.device.element_types import COMPUTE
from ort_sdk.device.expressions.index_space import decoded
from ort_sdk.device.expressions.writer import stored

from .text import RowText, combined, start_of

__all__ = ["GroupText"]


class GroupText(RowText):
    """The statements for lanes that share rows."""

    def lines(self) -> list[str]:
        """The kernel's body."""
        form, parameters = self.form, self.parameters
        rows_per_group = form.lanes // form.row_lanes
        lines = [f"LOCAL({kind}, scratch_{kind}, {form.lanes});" for kind in self._scratch_kinds()]
        if self.buffer_cells:
            lines.append(f"LOCAL({self.kind}, buffer, {self.buffer_cells});")
        lines.append(f"int lane = LANE(0) % {form.row_lanes}, slot = LANE(0) / {form.row_lanes};")
        lines.append(f"index_t row = (index_t)GROUP(0) * {rows_per_group} + slot;")
        lines += decoded("row", self.outer_names, self.outer_sizes)
        if form.chunks == 1:
            lines.append(f"index_t lo = 0, hi = {self.count};")
        else:
            chunk = parameters.index(form.chunk)
            lines.append(f"index_t lo = (index_t)GROUP(1) * {chunk}, hi = lo + {chunk};")
            lines.append(f"if (hi > {self.count}) hi = {self.count};")
        # lanes without a row go through none of it, and meet the others at barriers
        lines.append(f"if (row >= {self.row_count}) hi = lo;")
        for number, step in enumerate(self.program.steps):
            lines += self._step(number)
            lines += [f"{self.kind} {name} = {self.filled(text, '', '', vector=False)};" for name, text in step.derived]
        lines += self._row_stores()
        if self.result is not None:
            lines += self._loop(self.stored_result(self.result, self._cell(), vector=False))
        return lines

    def _cell(self) -> str:
        return "r" if self.form.lanes == self.form.row_lanes else f"slot * {self.count} + r"

    def _scratch_kinds(self) -> list[str]:
        if self.form.row_lanes == 1:
            return []
        return list(dict.fromkeys(self.type_of(step) for step in self.program.steps))

    def _loop(self, body: list[str]) -> list[str]:
        head = f"for (index_t r = lo + lane; r < hi; r += {self.form.row_lanes}) {{"
        return [head, *decoded("r", self.inner_names, self.inner_sizes), *body, "}"]

    def _step(self, number: int) -> list[str]:
        step = self.program.steps[number]
        kind, name = self.type_of(step), step.name
        lines = [f"{kind} {name} = {start_of(step.combination, kind)};"]
        lines += self._loop(self.pass_of(number, self._cell(), "r", name, vector=False))
        return [*lines, *self._joined(step.combination, kind, name)]

    def _joined(self, combination: str, kind: str, name: str) -> list[str]:
        """Statements that combine the lanes' values; all get the result."""
        form = self.form
        if form.row_lanes == 1:
            return []
        scratch = f"scratch_{kind}"
        if kind == "f32" and combination in {"sum", "max", "min"} and form.row_lanes == form.lanes:
            return [f"{name} = f32_group_{combination}({name}, {scratch}, lane, {form.lanes});"]
        both = combined(combination, f"{scratch}[LANE(0)]", f"{scratch}[LANE(0) + width]", kind)
        return [
            f"{scratch}[LANE(0)] = {name}; BARRIER();",
            f"for (int width = {form.row_lanes // 2}; width > 0; width >>= 1) {{",
            f"if (lane < width) {scratch}[LANE(0)] = {both};",
            "BARRIER(); }",
            f"{name} = {scratch}[LANE(0) - lane]; BARRIER();",
        ]

    def _row_stores(self) -> list[str]:
        lines = [f"if (lane == 0 && row < {self.row_count}) {{"]
        for target in self.rows:
            value = f"({COMPUTE[target.element_type]}){target.name}"
            lines.append(stored(target.memory, self.row_position("row"), value, target.element_type))
        return [*lines, "}"] if self.rows else []
