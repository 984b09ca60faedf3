"""What a row kernel does with each row: steps that combine its elements to a number, and what becomes of the elements."""

from __future__ import annotations

from ort_sdk.api.data_classes import dataclass

__all__ = [
    "COMBINATIONS",
    "LOG_SOFTMAX",
    "ROOT_MEAN_SQUARE",
    "SOFTMAX",
    "STANDARDIZED",
    "Combination",
    "RowProgram",
    "Step",
    "position_program",
    "reduction_program",
]


@dataclass(frozen=True, slots=True)
class Combination:
    """How two values are combined, ``{a}`` before ``{b}``, and what changes nothing: a number, or a bound of the type."""

    text: str
    start: str


COMBINATIONS = {
    "sum": Combination("{a} + {b}", "0"),
    "prod": Combination("{a} * {b}", "1"),
    # a NaN stays
    "max": Combination("SELECT(({a} > {b}) | ({a} != {a}), {a}, {b})", "least"),
    "min": Combination("SELECT(({a} < {b}) | ({a} != {a}), {a}, {b})", "greatest"),
    "any": Combination("{a} | {b}", "0"),
    "all": Combination("{a} & {b}", "1"),
}
"""Name → combination."""


@dataclass(frozen=True, slots=True)
class Step:
    """One pass over a row.

    Texts are in the device language. ``{x}`` is the element, ``{r}`` its position in the row; other names stand for results of
    steps before, for what was derived from them, and for the program's numbers.
    """

    name: str
    """Of its result."""
    combination: str
    value: str = "{x}"
    """What is combined."""
    change: str = ""
    """What the elements become before, for the later steps, too."""
    derived: tuple[tuple[str, str], ...] = ()
    """(name, text) of values of the row that follow."""
    type: str = ""
    """That is computed in; empty for that of the elements."""


@dataclass(frozen=True, slots=True)
class RowProgram:
    """The passes over a row."""

    name: str
    steps: tuple[Step, ...]
    result: str = ""
    """What is written in each element's place; empty where nothing is."""
    values: tuple[str, ...] = ()
    """Names of results that may be written once per row, in order."""
    is_dear: bool = False
    """Whether changed elements had better be kept than computed again."""

    @property
    def passes(self) -> int:
        """How often it goes through a row."""
        return len(self.steps) + bool(self.result)


SOFTMAX = RowProgram(
    "softmax",
    (Step("largest", "max"), Step("total", "sum", change="exp({x} - {largest})")),
    "{x} / {total}",
    is_dear=True,
)
LOG_SOFTMAX = RowProgram(
    "log_softmax",
    (
        Step("largest", "max"),
        Step("total", "sum", value="exp({x})", change="{x} - {largest}", derived=(("logarithm", "log({total})"),)),
    ),
    "{x} - {logarithm}",
)
STANDARDIZED = RowProgram(
    "standardized",
    (
        Step("total", "sum", derived=(("mean", "{total} / {count}"),)),
        Step(
            "squares",
            "sum",
            value="{x} * {x}",
            change="{x} - {mean}",
            derived=(("inverse", "1.0f / sqrt({squares} / {count} + {epsilon})"),),
        ),
    ),
    "{x} * {inverse}",
    ("mean", "inverse"),
)
"""Zero mean and unit variance. Numbers: ``count``, ``epsilon``."""
ROOT_MEAN_SQUARE = RowProgram(
    "root_mean_square",
    (
        Step(
            "squares",
            "sum",
            value="{x} * {x}",
            derived=(("inverse", "1.0f / sqrt({squares} / {count} + {epsilon})"),),
        ),
    ),
    "{x} * {inverse}",
    ("inverse",),
)
"""Divided by the root of the mean square. Numbers: ``count``, ``epsilon``."""


def reduction_program(name: str) -> RowProgram:
    """A reduction, to one of ``COMBINATIONS``."""
    return RowProgram(name, (Step("result", name),), values=("result",))


def position_program(combination: str, kind: str, *, last: bool) -> RowProgram:
    """The position of the largest or smallest element, a NaN before all others.

    Args:
        combination: ``max`` or ``min``.
        kind: type of positions.
        last: of equal elements the last, and not the first.
    """
    is_found = "({x} == {extreme}) | (({x} != {x}) & ({extreme} != {extreme}))"
    position = Step("position", "max" if last else "min", f"SELECT({is_found}, {{r}}, {{none}})", type=kind)
    return RowProgram("position", (Step("extreme", combination), position), values=("position",))
