"""Symbolic shapes, and views of arrays, as Python expressions over a program's values.

What a program works out by a step for each Shape, Gather, Concat and Reshape becomes one line. An expression has value ``n`` as
``vn``. It holds for values of the ranks that the program was traced with.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ort_sdk.api import FusibleProgram, FusibleStep

__all__ = ["OPEN", "Expression", "Expressions", "SymbolicIntegers", "function_of", "function_of_lines"]

_DIMENSION = re.compile(r"v\d+\.shape\[\d\]|\((v\d+\.shape\[\d\]|\d+) \+ (v\d+\.shape\[\d\]|\d+)\)")
"""A dimension, or the sum of two integers that are none below 0."""
OPEN = "-1"
"""The dimension that a Reshape infers from the others."""
MAX_INTEGERS = 16
"""Elements of a constant that may be written out: as many as a shape has, and some more."""
INTEGER_TYPES = frozenset({6, 7})
"""ONNX's integers of the types that a Cast may make of a shape: int32 and int64."""


@dataclass(frozen=True, slots=True)
class SymbolicIntegers:
    """Integers as expressions."""

    texts: tuple[str, ...]
    values: frozenset[int] = frozenset()
    """Values that occur in the expressions."""
    steps: frozenset[int] = frozenset()
    """Positions of the steps that they replace."""
    is_vector: bool = True
    """Whether they are an array of one dimension; else a scalar."""

    def with_texts(
        self, texts: Iterable[str], step: int, *, is_vector: bool = True, further: frozenset[int] = frozenset()
    ) -> SymbolicIntegers:
        """Others that a step makes of these, and further steps."""
        return SymbolicIntegers(tuple(texts), self.values, self.steps | further | {step}, is_vector)


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
        self._integers: dict[int, SymbolicIntegers] = {}
        self._dims: dict[int, SymbolicIntegers] = {}
        self._booleans: dict[int, tuple[tuple[bool, ...], frozenset[int]]] = {}
        """Result of a comparison → whether each pair of integers is the same in every run, and the steps."""
        for position, step in program.steps.items():
            shown = all(index in program.values for index in (*step.inputs, *step.outputs))
            if shown and len(step.outputs) == 1 and not step.domain:
                self._read(position, step)

    def integers(self, value: int) -> SymbolicIntegers | None:
        """The elements of an integer value; None if they do not follow from shapes."""
        found = self._integers.get(value)
        if found is not None or value not in self._program.values:
            return found
        constant = self.constant(value)
        if constant is None or constant.ndim > 1 or constant.size > MAX_INTEGERS or constant.dtype.kind != "i":
            return None
        return SymbolicIntegers(tuple(map(str, constant.reshape(-1).tolist())), is_vector=constant.ndim == 1)

    def constant(self, value: int) -> Any:
        """A value that is the same in every run; None for others."""
        shown = self._program.values.get(value)
        return None if shown is None else shown.constant

    def dims(self, value: int) -> SymbolicIntegers:
        """A value's shape, in terms of the values that it is a rearrangement of."""
        found = self._dims.get(value)
        if found is not None:
            return found
        shown = self._program.values[value]
        if shown.constant is not None:
            return SymbolicIntegers(tuple(map(str, shown.shape)))
        return SymbolicIntegers(tuple(f"v{value}.shape[{axis}]" for axis in range(len(shown.shape))), frozenset({value}))

    def array(self, value: int) -> Expression:
        """A value as a view of what it comes from."""
        position = self.makers.get(value)
        step = None if position is None else self._program.steps[position]
        view = None if step is None or step.domain else _VIEW_RULES.get(step.op_type)
        found = None if view is None or position is None or step is None else view(self, position, step)
        return Expression(f"v{value}", frozenset({value}), frozenset()) if found is None else found

    def target(self, step: FusibleStep) -> SymbolicIntegers | None:
        """The shape that a Reshape is given, with the dimensions that 0 stands for; None if it is not known."""
        integers = self.integers(step.inputs[1]) if len(step.inputs) > 1 else None
        if integers is None or "0" not in integers.texts:
            return integers
        if step.attributes.get("allowzero", 0):
            return None
        dims = self.dims(step.inputs[0])
        if any(text == "0" for text in integers.texts[len(dims.texts) :]):
            return None
        texts = [dims.texts[axis] if text == "0" else text for axis, text in enumerate(integers.texts)]
        return SymbolicIntegers(tuple(texts), integers.values | dims.values, integers.steps | dims.steps)

    def rank(self, value: int) -> int:
        """Dimensions of a value."""
        return len(self._program.values[value].shape)

    def is_view(self, step: FusibleStep) -> bool:
        """Whether a step may give a view."""
        return step.op_type in _VIEW_RULES and not step.domain

    def booleans(self, value: int) -> tuple[tuple[bool, ...], frozenset[int]] | None:
        """A vector of booleans that are the same in every run, and the steps that compute them; None for others."""
        constant = self.constant(value)
        if constant is not None:
            return (tuple(map(bool, constant.reshape(-1))), frozenset()) if constant.ndim == 1 else None
        return self._booleans.get(value)

    def _compare(self, position: int, step: FusibleStep) -> None:
        first, second = (self.integers(value) for value in step.inputs)
        if first is None or second is None or len(first.texts) != len(second.texts) or not first.is_vector:
            return
        found = [_is_same(*pair) for pair in zip(first.texts, second.texts, strict=True)]
        if None not in found:
            self._booleans[step.outputs[0]] = tuple(map(bool, found)), first.steps | second.steps | {position}

    def _read(self, position: int, step: FusibleStep) -> None:
        integers, dims = _INTEGER_RULES.get(step.op_type), _DIMS_RULES.get(step.op_type)
        integers = None if integers is None else integers(self, position, step)
        shape = None if dims is None else dims(self, position, step)
        if integers is not None:
            self._integers[step.outputs[0]] = integers
        if step.op_type == "Equal":
            self._compare(position, step)
        if shape is not None:
            self._dims[step.outputs[0]] = shape


def _is_same(first: str, second: str) -> bool | None:
    """Whether two integers are the same in every run; None where that is not known. No dimension is negative."""
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
    """A function that gives an expression's value, or ``NotImplemented`` for other ranks.

    Args:
        ranks: value → dimensions that it must have, for its parameters in order.
        text: the expression.
        reshaped: values that must have elements.
        result: what the expression's value is assigned to.
        returned: what is made of that.
        names: other names in the texts.
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
    exec(compile(source, "<views>", "exec"), namespace)  # noqa: S102 - the text is made of integers only
    # Taken out of its own globals: a function that is among them holds itself, and only the cyclic collector would free it.
    function: Callable[..., Any] = namespace.pop("compute")
    return function


def _shape(expressions: Expressions, position: int, step: FusibleStep) -> SymbolicIntegers | None:
    dims = expressions.dims(step.inputs[0])
    axes = slice(step.attributes.get("start", 0), step.attributes.get("end", None))
    return dims.with_texts(dims.texts[axes], position)


def _gather(expressions: Expressions, position: int, step: FusibleStep) -> SymbolicIntegers | None:
    integers, indices = (expressions.integers(value) for value in step.inputs)
    if integers is None or indices is None or indices.values or not integers.is_vector or step.attributes.get("axis", 0):
        return None
    found = [int(text) for text in indices.texts]
    if not all(-len(integers.texts) <= index < len(integers.texts) for index in found):
        return None
    return integers.with_texts([integers.texts[index] for index in found], position, is_vector=indices.is_vector)


def _unsqueeze(expressions: Expressions, position: int, step: FusibleStep) -> SymbolicIntegers | None:
    """Unsqueeze of a scalar."""
    integers = _with_constant_axes(expressions, step)
    return None if integers is None or integers.is_vector else integers.with_texts(integers.texts, position)


def _with_constant_axes(expressions: Expressions, step: FusibleStep) -> SymbolicIntegers | None:
    """The integers that a Squeeze or Unsqueeze is given, if its axes are constant."""
    x, *axes = step.inputs
    return expressions.integers(x) if all(not value or expressions.constant(value) is not None for value in axes) else None


def _squeeze(expressions: Expressions, position: int, step: FusibleStep) -> SymbolicIntegers | None:
    """Squeeze of a vector of one integer."""
    integers = _with_constant_axes(expressions, step)
    is_one = integers is not None and integers.is_vector and len(integers.texts) == 1
    return integers.with_texts(integers.texts, position, is_vector=False) if is_one and integers is not None else None


def _cast(expressions: Expressions, position: int, step: FusibleStep) -> SymbolicIntegers | None:
    integers = expressions.integers(step.inputs[0])
    if integers is None or step.attributes.get("to") not in INTEGER_TYPES:
        return None
    return integers.with_texts(integers.texts, position, is_vector=integers.is_vector)


def _reshape_to_vector(expressions: Expressions, position: int, step: FusibleStep) -> SymbolicIntegers | None:
    """Reshape of one integer to a vector."""
    integers, target = (expressions.integers(value) for value in step.inputs)
    is_one = integers is not None and len(integers.texts) == 1 and target is not None and target.texts in {("-1",), ("1",)}
    return integers.with_texts(integers.texts, position) if is_one and integers is not None else None


def _slice(expressions: Expressions, position: int, step: FusibleStep) -> SymbolicIntegers | None:
    """Slice of a vector, forwards."""
    integers, *bounds = (expressions.integers(value) for value in step.inputs)
    if integers is None or not integers.is_vector or len(bounds) < 2 or any(bound is None or bound.values for bound in bounds):
        return None
    start, end, *others = (int(bound.texts[0]) for bound in bounds if bound is not None)
    if any(other not in {0, 1} for other in others) or others[1:] == [0]:
        return None
    return integers.with_texts(integers.texts[start:end], position)


def _concat(expressions: Expressions, position: int, step: FusibleStep) -> SymbolicIntegers | None:
    inputs = [expressions.integers(value) for value in step.inputs]
    vectors = [vector for vector in inputs if vector is not None and vector.is_vector]
    if len(vectors) < len(inputs):
        return None
    return _combined(vectors, [text for vector in vectors for text in vector.texts], position)


def _where(expressions: Expressions, position: int, step: FusibleStep) -> SymbolicIntegers | None:
    """Where, with a condition that is the same in every run."""
    condition = expressions.booleans(step.inputs[0])
    first, second = (expressions.integers(value) for value in step.inputs[1:])
    if condition is None or first is None or second is None or not first.is_vector or not second.is_vector:
        return None
    if not len(condition[0]) == len(first.texts) == len(second.texts):
        return None
    texts = [own if holds else other for holds, own, other in zip(condition[0], first.texts, second.texts, strict=True)]
    found = _combined([first, second], texts, position)
    return found.with_texts(texts, position, further=condition[1])


def _combined(inputs: Sequence[SymbolicIntegers], texts: Iterable[str], step: int, *, is_vector: bool = True) -> SymbolicIntegers:
    """Integers that a step makes of several."""
    values, steps = (frozenset().union(*sets) for sets in ([each.values for each in inputs], [each.steps for each in inputs]))
    return SymbolicIntegers(tuple(texts), values, steps | {step}, is_vector)


def _binary(sign: str) -> Callable[[Expressions, int, FusibleStep], SymbolicIntegers | None]:
    def compute(expressions: Expressions, position: int, step: FusibleStep) -> SymbolicIntegers | None:
        inputs = [expressions.integers(value) for value in step.inputs]
        found = [each for each in inputs if each is not None and len(each.texts) == 1]
        if len(found) != 2 or not any(each.values for each in found):
            return None
        is_vector = found[0].is_vector or found[1].is_vector
        return _combined(found, [f"({found[0].texts[0]} {sign} {found[1].texts[0]})"], position, is_vector=is_vector)

    return compute


def _transposed_dims(expressions: Expressions, position: int, step: FusibleStep) -> SymbolicIntegers | None:
    dims = expressions.dims(step.inputs[0])
    perm = step.attributes.get("perm", range(len(dims.texts))[::-1])
    return dims.with_texts([dims.texts[axis] for axis in perm], position)


def _concatenated_dims(expressions: Expressions, position: int, step: FusibleStep) -> SymbolicIntegers | None:
    inputs = [expressions.dims(value) for value in step.inputs]
    axis, (first, *_) = step.attributes["axis"], inputs
    along = axis % len(first.texts)
    total = "(" + " + ".join(dims.texts[along] for dims in inputs) + ")"
    return _combined(inputs, [*first.texts[:along], total, *first.texts[along + 1 :]], position)


def _reshaped_dims(expressions: Expressions, position: int, step: FusibleStep) -> SymbolicIntegers | None:
    target = expressions.target(step)
    if target is None:
        return None
    if OPEN not in target.texts:
        reshaped = expressions.array(step.inputs[0])
        return SymbolicIntegers(target.texts, target.values | reshaped.values, target.steps | reshaped.steps | {position})
    x, result = expressions.dims(step.inputs[0]), step.outputs[0]
    texts = [f"v{result}.shape[{axis}]" if text == OPEN else text for axis, text in enumerate(target.texts)]
    return SymbolicIntegers(tuple(texts), target.values | x.values | {result}, target.steps | x.steps | {position})


def _reshape_view(expressions: Expressions, position: int, step: FusibleStep) -> Expression | None:
    target = expressions.target(step)
    if target is None:
        return None
    x = expressions.array(step.inputs[0])
    text = f"{x.text}.reshape({', '.join(target.texts)})" if target.texts else f"{x.text}.reshape(())"
    return Expression(text, x.values | target.values, x.steps | target.steps | {position}, x.reshaped | x.values)


def _transpose_view(expressions: Expressions, position: int, step: FusibleStep) -> Expression | None:
    x, perm = expressions.array(step.inputs[0]), step.attributes.get("perm", ())
    axes = ", ".join(map(str, perm))
    return Expression(f"{x.text}.transpose({axes})", x.values, x.steps | {position}, x.reshaped)


def _slice_view(expressions: Expressions, position: int, step: FusibleStep) -> Expression | None:
    """A Slice forwards."""
    if len(step.inputs) < 4 or not step.inputs[3]:
        return None
    starts, ends, axes = (expressions.integers(value) for value in step.inputs[1:4])
    steps = expressions.integers(step.inputs[4]) if len(step.inputs) > 4 and step.inputs[4] else None
    is_known = starts is not None and ends is not None and axes is not None and not axes.values
    if not is_known or (len(step.inputs) > 4 and (steps is None or set(steps.texts) != {"1"})):
        return None
    assert starts is not None and ends is not None and axes is not None  # noqa: S101, PT018 - as was just looked at
    x, subscripts = expressions.array(step.inputs[0]), [":"] * expressions.rank(step.inputs[0])
    for axis, start, end in zip(axes.texts, starts.texts, ends.texts, strict=True):
        subscripts[int(axis)] = f"{start}:{end}"
    values, made = x.values | starts.values | ends.values, x.steps | starts.steps | ends.steps | {position}
    return Expression(f"{x.text}[{', '.join(subscripts)}]", values, made, x.reshaped)


Rule = Callable[[Expressions, int, FusibleStep], Any]

_INTEGER_RULES: dict[str, Rule] = {
    "Add": _binary("+"),
    "Cast": _cast,
    "Concat": _concat,
    "Gather": _gather,
    "Mul": _binary("*"),
    "Reshape": _reshape_to_vector,
    "Shape": _shape,
    "Slice": _slice,
    "Squeeze": _squeeze,
    "Sub": _binary("-"),
    "Unsqueeze": _unsqueeze,
    "Where": _where,
}
"""Operator → the integers it makes of others."""

_DIMS_RULES: dict[str, Rule] = {"Concat": _concatenated_dims, "Reshape": _reshaped_dims, "Transpose": _transposed_dims}
"""Operator → shape of what it makes."""

_VIEW_RULES: dict[str, Rule] = {"Reshape": _reshape_view, "Slice": _slice_view, "Transpose": _transpose_view}
"""Operator → the view it gives."""
