"""Shapes, and views of arrays, as Python expressions over a program's values: what steps work out one by one, in one line.

An expression speaks of value ``n`` as ``vn``. It holds for values of the ranks that the program was seen with.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ort_sdk.api import FusibleProgram, FusibleStep

__all__ = ["OPEN", "Expression", "Expressions", "Numbers", "function_of", "function_of_lines"]

_DIMENSION = re.compile(r"v\d+\.shape\[\d\]|\((v\d+\.shape\[\d\]|\d+) \+ (v\d+\.shape\[\d\]|\d+)\)")
"""A dimension, or the sum of two numbers that are none below 0."""
OPEN = "-1"
"""What a Reshape is given for the number that follows from the others."""
MOST_NUMBERS = 16
"""Elements of an array that may be written out."""
INTEGERS = frozenset({6, 7})
"""Types that a Cast may make of a shape's numbers: int32 and int64."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """Whole numbers as expressions."""

    texts: tuple[str, ...]
    values: frozenset[int] = frozenset()
    """Values that the expressions speak of."""
    steps: frozenset[int] = frozenset()
    """Positions of the steps whose work they do."""
    is_vector: bool = True
    """Whether they are an array of one dimension; of none otherwise."""

    def with_texts(
        self, texts: Iterable[str], step: int, *, is_vector: bool = True, further: frozenset[int] = frozenset()
    ) -> Numbers:
        """Others, made of these by a step, and by further ones."""
        return Numbers(tuple(texts), self.values, self.steps | further | {step}, is_vector)


@dataclass(frozen=True, slots=True)
class Expression:
    """An array as an expression."""

    text: str
    values: frozenset[int]
    steps: frozenset[int]
    reshaped: frozenset[int] = frozenset()
    """Values, some view of which is reshaped: with no elements, a dimension of 0 would mean another."""


class Expressions:
    """Expressions for the values of a program.

    Args:
        program: all of it.
    """

    def __init__(self, program: FusibleProgram) -> None:
        self._program = program
        self.makers = {index: position for position, step in program.steps.items() for index in step.outputs if index}
        """Value → position of the step that makes it."""
        self._numbers: dict[int, Numbers] = {}
        self._dims: dict[int, Numbers] = {}
        self._truths: dict[int, tuple[tuple[bool, ...], frozenset[int]]] = {}
        """Result of a comparison → whether each pair of numbers is the same in every run, and the steps."""
        for position, step in program.steps.items():
            shown = all(index in program.values for index in (*step.inputs, *step.outputs))
            if shown and len(step.outputs) == 1 and not step.domain:
                self._read(position, step)

    def numbers(self, value: int) -> Numbers | None:
        """What a value of whole numbers has in it; None if that does not follow from shapes."""
        found = self._numbers.get(value)
        if found is not None or value not in self._program.values:
            return found
        constant = self.constant(value)
        if constant is None or constant.ndim > 1 or constant.size > MOST_NUMBERS or constant.dtype.kind != "i":
            return None
        return Numbers(tuple(map(str, constant.reshape(-1).tolist())), is_vector=constant.ndim == 1)

    def constant(self, value: int) -> Any:
        """A value that is the same in every run; None for others."""
        shown = self._program.values.get(value)
        return None if shown is None else shown.constant

    def dims(self, value: int) -> Numbers:
        """A value's shape, told from where it comes from as far as steps only rearrange it."""
        found = self._dims.get(value)
        if found is not None:
            return found
        shown = self._program.values[value]
        if shown.constant is not None:
            return Numbers(tuple(map(str, shown.shape)))
        return Numbers(tuple(f"v{value}.shape[{axis}]" for axis in range(len(shown.shape))), frozenset({value}))

    def array(self, value: int) -> Expression:
        """A value as a view of what it comes from."""
        position = self.makers.get(value)
        step = None if position is None else self._program.steps[position]
        view = None if step is None or step.domain else _VIEWS.get(step.op_type)
        found = None if view is None or position is None or step is None else view(self, position, step)
        return Expression(f"v{value}", frozenset({value}), frozenset()) if found is None else found

    def target(self, step: FusibleStep) -> Numbers | None:
        """What a Reshape asks for, 0 replaced by what it means; None if that is not known."""
        numbers = self.numbers(step.inputs[1]) if len(step.inputs) > 1 else None
        if numbers is None or "0" not in numbers.texts:
            return numbers
        if step.attributes.get("allowzero", 0):
            return None
        dims = self.dims(step.inputs[0])
        if any(text == "0" for text in numbers.texts[len(dims.texts) :]):
            return None
        texts = [dims.texts[axis] if text == "0" else text for axis, text in enumerate(numbers.texts)]
        return Numbers(tuple(texts), numbers.values | dims.values, numbers.steps | dims.steps)

    def rank(self, value: int) -> int:
        """Dimensions of a value."""
        return len(self._program.values[value].shape)

    def is_view(self, step: FusibleStep) -> bool:
        """Whether a step may give a view."""
        return step.op_type in _VIEWS and not step.domain

    def truths(self, value: int) -> tuple[tuple[bool, ...], frozenset[int]] | None:
        """A vector of truth values that are the same in every run, and the steps that work them out; None for others."""
        constant = self.constant(value)
        if constant is not None:
            return (tuple(map(bool, constant.reshape(-1))), frozenset()) if constant.ndim == 1 else None
        return self._truths.get(value)

    def _compare(self, position: int, step: FusibleStep) -> None:
        first, second = (self.numbers(value) for value in step.inputs)
        if first is None or second is None or len(first.texts) != len(second.texts) or not first.is_vector:
            return
        found = [_is_same(*pair) for pair in zip(first.texts, second.texts, strict=True)]
        if None not in found:
            self._truths[step.outputs[0]] = tuple(map(bool, found)), first.steps | second.steps | {position}

    def _read(self, position: int, step: FusibleStep) -> None:
        numbers, dims = _NUMBERS.get(step.op_type), _DIMS.get(step.op_type)
        told = None if numbers is None else numbers(self, position, step)
        shape = None if dims is None else dims(self, position, step)
        if told is not None:
            self._numbers[step.outputs[0]] = told
        if step.op_type == "Equal":
            self._compare(position, step)
        if shape is not None:
            self._dims[step.outputs[0]] = shape


def _is_same(first: str, second: str) -> bool | None:
    """Whether two numbers are the same in every run; None where that is not known. A dimension is no negative number."""
    if first == second:
        return True
    texts = (first, second)
    if all(text.lstrip("-").isdigit() for text in texts):
        return False
    is_dimension = any(_DIMENSION.fullmatch(text) for text in texts)
    return False if is_dimension and any(text.startswith("-") for text in texts) else None


_FUNCTION = """
def compute({parameters}):
    if {unlike}:
        return NotImplemented
    try:
        {lines}
    except errors:
        return NotImplemented
    return {returned}
"""


def function_of(
    ranks: Mapping[int, int], text: str, reshaped: Iterable[int] = (), *, result: str = "y", returned: str = "y", **names: Any
) -> Callable[..., Any]:
    """A function that gives an expression's value, or ``NotImplemented`` where shapes do not suit.

    Args:
        ranks: value → dimensions that it must have, for its parameters in order.
        text: the expression.
        reshaped: values that must have elements.
        result: what the expression's value is assigned to.
        returned: what is made of that.
        names: what else the texts speak of.
    """
    return function_of_lines(ranks, [f"{result} = {text}"], reshaped, returned=returned, **names)


def function_of_lines(
    ranks: Mapping[int, int],
    lines: Iterable[str],
    reshaped: Iterable[int] = (),
    *,
    returned: str,
    errors: tuple[type[Exception], ...] = (ValueError,),
    **names: Any,
) -> Callable[..., Any]:
    """As ``function_of``, of several lines; ``NotImplemented`` also where they raise one of ``errors``."""
    unlike = [f"v{value}.ndim != {rank}" for value, rank in ranks.items()] + [f"not v{value}.size" for value in reshaped]
    parameters = ", ".join(f"v{value}" for value in ranks)
    body = "\n        ".join(lines)
    source = _FUNCTION.format(parameters=parameters, unlike=" or ".join(unlike) or "False", lines=body, returned=returned)
    namespace = {"errors": errors, **names}
    exec(compile(source, "<views>", "exec"), namespace)  # noqa: S102 - the text is made of numbers only
    # Out of its own globals, which are what it speaks of: it would hold itself there.
    function: Callable[..., Any] = namespace.pop("compute")
    return function


def _shape(told: Expressions, position: int, step: FusibleStep) -> Numbers | None:
    dims = told.dims(step.inputs[0])
    part = slice(step.attributes.get("start", 0), step.attributes.get("end", None))
    return dims.with_texts(dims.texts[part], position)


def _gathered(told: Expressions, position: int, step: FusibleStep) -> Numbers | None:
    numbers, indices = (told.numbers(value) for value in step.inputs)
    if numbers is None or indices is None or indices.values or not numbers.is_vector or step.attributes.get("axis", 0):
        return None
    places = [int(text) for text in indices.texts]
    if not all(-len(numbers.texts) <= place < len(numbers.texts) for place in places):
        return None
    return numbers.with_texts([numbers.texts[place] for place in places], position, is_vector=indices.is_vector)


def _widened(told: Expressions, position: int, step: FusibleStep) -> Numbers | None:
    """Unsqueeze of a number."""
    numbers = _with_constant_axes(told, step)
    return None if numbers is None or numbers.is_vector else numbers.with_texts(numbers.texts, position)


def _with_constant_axes(told: Expressions, step: FusibleStep) -> Numbers | None:
    """The numbers that a Squeeze or Unsqueeze is given, if it is given no axes in each run."""
    x, *axes = step.inputs
    return told.numbers(x) if all(not value or told.constant(value) is not None for value in axes) else None


def _narrowed(told: Expressions, position: int, step: FusibleStep) -> Numbers | None:
    """Squeeze of a vector of one number."""
    numbers = _with_constant_axes(told, step)
    is_one = numbers is not None and numbers.is_vector and len(numbers.texts) == 1
    return numbers.with_texts(numbers.texts, position, is_vector=False) if is_one and numbers is not None else None


def _cast(told: Expressions, position: int, step: FusibleStep) -> Numbers | None:
    numbers = told.numbers(step.inputs[0])
    if numbers is None or step.attributes.get("to") not in INTEGERS:
        return None
    return numbers.with_texts(numbers.texts, position, is_vector=numbers.is_vector)


def _flattened(told: Expressions, position: int, step: FusibleStep) -> Numbers | None:
    """Reshape of one number to a vector."""
    numbers, target = (told.numbers(value) for value in step.inputs)
    is_one = numbers is not None and len(numbers.texts) == 1 and target is not None and target.texts in {("-1",), ("1",)}
    return numbers.with_texts(numbers.texts, position) if is_one and numbers is not None else None


def _part_of(told: Expressions, position: int, step: FusibleStep) -> Numbers | None:
    """Slice of a vector, forwards."""
    numbers, *places = (told.numbers(value) for value in step.inputs)
    if numbers is None or not numbers.is_vector or len(places) < 2 or any(place is None or place.values for place in places):
        return None
    start, end, *others = (int(place.texts[0]) for place in places if place is not None)
    if any(other not in {0, 1} for other in others) or others[1:] == [0]:
        return None
    return numbers.with_texts(numbers.texts[start:end], position)


def _joined(told: Expressions, position: int, step: FusibleStep) -> Numbers | None:
    parts = [told.numbers(value) for value in step.inputs]
    if not all(part is not None and part.is_vector for part in parts):
        return None
    found = [part for part in parts if part is not None]
    return _all_of(found, [text for part in found for text in part.texts], position)


def _chosen(told: Expressions, position: int, step: FusibleStep) -> Numbers | None:
    """Where of a condition that is the same in every run."""
    condition = told.truths(step.inputs[0])
    first, second = (told.numbers(value) for value in step.inputs[1:])
    if condition is None or first is None or second is None or not first.is_vector or not second.is_vector:
        return None
    if not len(condition[0]) == len(first.texts) == len(second.texts):
        return None
    texts = [own if holds else other for holds, own, other in zip(condition[0], first.texts, second.texts, strict=True)]
    found = _all_of([first, second], texts, position)
    return found.with_texts(texts, position, further=condition[1])


def _all_of(parts: Sequence[Numbers], texts: Iterable[str], step: int, *, is_vector: bool = True) -> Numbers:
    """Numbers made of several by a step."""
    values, steps = (frozenset().union(*sets) for sets in ([part.values for part in parts], [part.steps for part in parts]))
    return Numbers(tuple(texts), values, steps | {step}, is_vector)


def _computed(sign: str) -> Callable[[Expressions, int, FusibleStep], Numbers | None]:
    def compute(told: Expressions, position: int, step: FusibleStep) -> Numbers | None:
        parts = [told.numbers(value) for value in step.inputs]
        found = [part for part in parts if part is not None and len(part.texts) == 1]
        if len(found) != 2 or not any(part.values for part in found):
            return None
        is_vector = found[0].is_vector or found[1].is_vector
        return _all_of(found, [f"({found[0].texts[0]} {sign} {found[1].texts[0]})"], position, is_vector=is_vector)

    return compute


def _turned_dims(told: Expressions, position: int, step: FusibleStep) -> Numbers | None:
    dims = told.dims(step.inputs[0])
    perm = step.attributes.get("perm", range(len(dims.texts))[::-1])
    return dims.with_texts([dims.texts[axis] for axis in perm], position)


def _joined_dims(told: Expressions, position: int, step: FusibleStep) -> Numbers | None:
    parts = [told.dims(value) for value in step.inputs]
    axis, (first, *_) = step.attributes["axis"], parts
    along = axis % len(first.texts)
    total = "(" + " + ".join(part.texts[along] for part in parts) + ")"
    return _all_of(parts, [*first.texts[:along], total, *first.texts[along + 1 :]], position)


def _target_dims(told: Expressions, position: int, step: FusibleStep) -> Numbers | None:
    target = told.target(step)
    if target is None:
        return None
    if OPEN not in target.texts:
        reshaped = told.array(step.inputs[0])
        return Numbers(target.texts, target.values | reshaped.values, target.steps | reshaped.steps | {position})
    x, result = told.dims(step.inputs[0]), step.outputs[0]
    texts = [f"v{result}.shape[{axis}]" if text == OPEN else text for axis, text in enumerate(target.texts)]
    return Numbers(tuple(texts), target.values | x.values | {result}, target.steps | x.steps | {position})


def _reshaped(told: Expressions, position: int, step: FusibleStep) -> Expression | None:
    target = told.target(step)
    if target is None:
        return None
    x = told.array(step.inputs[0])
    text = f"{x.text}.reshape({', '.join(target.texts)})" if target.texts else f"{x.text}.reshape(())"
    return Expression(text, x.values | target.values, x.steps | target.steps | {position}, x.reshaped | x.values)


def _turned(told: Expressions, position: int, step: FusibleStep) -> Expression | None:
    x, perm = told.array(step.inputs[0]), step.attributes.get("perm", ())
    axes = ", ".join(map(str, perm))
    return Expression(f"{x.text}.transpose({axes})", x.values, x.steps | {position}, x.reshaped)


def _cut(told: Expressions, position: int, step: FusibleStep) -> Expression | None:
    """A Slice forwards."""
    if len(step.inputs) < 4 or not step.inputs[3]:
        return None
    starts, ends, axes = (told.numbers(value) for value in step.inputs[1:4])
    steps = told.numbers(step.inputs[4]) if len(step.inputs) > 4 and step.inputs[4] else None
    is_told = starts is not None and ends is not None and axes is not None and not axes.values
    if not is_told or (len(step.inputs) > 4 and (steps is None or set(steps.texts) != {"1"})):
        return None
    assert starts is not None and ends is not None and axes is not None  # noqa: S101, PT018 - as was just looked at
    x, places = told.array(step.inputs[0]), [":"] * told.rank(step.inputs[0])
    for axis, start, end in zip(axes.texts, starts.texts, ends.texts, strict=True):
        places[int(axis)] = f"{start}:{end}"
    values, made = x.values | starts.values | ends.values, x.steps | starts.steps | ends.steps | {position}
    return Expression(f"{x.text}[{', '.join(places)}]", values, made, x.reshaped)


Rule = Callable[[Expressions, int, FusibleStep], Any]

_NUMBERS: dict[str, Rule] = {
    "Add": _computed("+"),
    "Cast": _cast,
    "Concat": _joined,
    "Gather": _gathered,
    "Mul": _computed("*"),
    "Reshape": _flattened,
    "Shape": _shape,
    "Slice": _part_of,
    "Squeeze": _narrowed,
    "Sub": _computed("-"),
    "Unsqueeze": _widened,
    "Where": _chosen,
}
"""Operator → what whole numbers it makes of others."""

_DIMS: dict[str, Rule] = {"Concat": _joined_dims, "Reshape": _target_dims, "Transpose": _turned_dims}
"""Operator → shape of what it makes."""

_VIEWS: dict[str, Rule] = {"Reshape": _reshaped, "Slice": _cut, "Transpose": _turned}
"""Operator → the view it gives."""
