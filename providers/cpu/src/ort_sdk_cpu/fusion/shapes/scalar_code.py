"""Light steps as lines of Python: expressions over NumPy's functions, and calls of kernels where there is no rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import FusedSteps, FusibleProgram, FusibleStep, OrtSdkError, TensorElementType
from ort_sdk.api.data_classes import dataclass, field
from ort_sdk_cpu.fusion.elementwise.dynamic_shapes import SMALLEST_WORK

from .expressions import Expressions, Numbers, function_of_lines

__all__ = ["LIGHT_TYPES", "LightGroup", "numbers_of_steps", "written"]

LIGHT_TYPES = frozenset({TensorElementType.INT64, TensorElementType.INT32, TensorElementType.BOOL})
"""Of what a run is given, and lines begin with."""
ERRORS = (ArithmeticError, LookupError, TypeError, ValueError, OrtSdkError)
"""What lines may raise; the steps say what is wrong, one by one."""


def numbers_of_steps(told: Expressions, value: int) -> Numbers | None:
    """Whole numbers that steps work out of shapes; None for others, constants among them."""
    numbers = None if told.constant(value) is not None else told.numbers(value)
    return numbers if numbers is not None and numbers.steps else None


@dataclass(slots=True)
class LightGroup:
    """Steps that become one."""

    units: list[tuple[tuple[int, ...], FusedSteps | None]] = field(default_factory=list)
    """Positions of a step, or of a chain of them; and the chain."""
    positions: set[int] = field(default_factory=set)
    readers: set[int] = field(default_factory=set)


def written(program: FusibleProgram, told: Expressions, group: LightGroup, readers: Mapping[int, Sequence[int]]) -> FusedSteps:
    """A group as one step.

    Args:
        program: the program.
        told: its expressions.
        group: the steps.
        readers: value → positions where it is read.
    """
    return _Writer(program, told, group, readers).fused()


class _Writer:
    """Writes the function of a group."""

    def __init__(
        self, program: FusibleProgram, told: Expressions, group: LightGroup, readers: Mapping[int, Sequence[int]]
    ) -> None:
        self._program, self._told, self._group = program, told, group
        self._outputs = {
            index
            for position in group.positions
            for index in program.steps[position].outputs
            if not group.positions.issuperset(readers.get(index, ()))
        }
        self._lines: list[str] = []
        self._names: dict[str, Any] = dict(FUNCTIONS)
        self._made: set[int] = set()
        """Values that lines have assigned."""
        self._inputs: set[int] = set()
        self._repeated: set[int] = set()

    def fused(self) -> FusedSteps:
        """The steps as one."""
        for positions, chain in self._group.units:
            if chain is not None and self._has_all_numbers(chain):
                self._chain(chain)
                continue
            for position in positions:
                self._step(position)
        outputs = tuple(sorted(self._outputs))
        own = {index for position in self._group.positions for index in self._program.steps[position].outputs}
        repeated = tuple(sorted(self._repeated - self._group.positions))
        inputs = sorted(self._inputs - own)
        kernel = _Lines(
            function_of_lines(
                {value: self._told.rank(value) for value in inputs},
                self._lines,
                returned=", ".join(f"v{index}" for index in outputs),
                errors=ERRORS,
                **self._names,
            )
        )
        return FusedSteps(tuple(sorted(self._group.positions)), kernel, tuple(inputs), outputs, repeated)

    def _has_all_numbers(self, chain: FusedSteps) -> bool:
        """Whether no numbers follow from shapes that a loop does not tell, or tells when it needs those numbers itself."""
        own = [self._program.steps[position] for position in chain.positions]
        group = [self._program.steps[position] for position in self._group.positions]
        made = {index for step in own for index in step.outputs}
        return self._spoken_of(own).isdisjoint(made) and self._spoken_of(group).isdisjoint(made.difference(chain.outputs))

    def _spoken_of(self, steps: Sequence[FusibleStep]) -> set[int]:
        """Values whose shapes tell the numbers that steps read or make."""
        found = [numbers_of_steps(self._told, index) for step in steps for index in (*step.inputs, *step.outputs) if index]
        return {value for numbers in found if numbers is not None for value in numbers.values}

    def _chain(self, chain: FusedSteps) -> None:
        """One loop where there are many elements, else its steps."""
        steps = [self._program.steps[position] for position in chain.positions]
        made = {step.outputs[0] for step in steps}
        for index in {index for step in steps for index in step.inputs if index}.difference(made):
            self.name(index)
        name = f"k{chain.positions[-1]}"
        self._names[f"chain_{name}"] = chain.kernel.compute
        arguments = [self.name(index) for index in chain.inputs]
        sizes = " * ".join(f"{argument}.size" for argument in arguments)
        targets = ", ".join(f"v{index}" for index in chain.outputs)
        lines, self._lines = self._lines, []
        for position in chain.positions:
            self._step(position)
        inner, self._lines = self._lines, lines
        self._lines += [
            f"r = chain_{name}({', '.join(arguments)}) if {sizes} >= {SMALLEST_WORK // len(steps)} else NotImplemented",
            "if r is NotImplemented:",
            *(f"    {line}" for line in inner),
            "else:",
            f"    {targets} = r",
        ]

    def _step(self, position: int) -> None:
        step = self._program.steps[position]
        out = step.outputs[0]
        if numbers_of_steps(self._told, out) is not None:
            self.name(out)
            return
        rule = _RULES.get(step.op_type)
        text = None if rule is None else rule(self, step)
        if text is None:
            kernel = self.named(f"k{out}", step.kernel.compute)
            text = f"{kernel}({', '.join(self.name(index) if index else 'None' for index in step.inputs)})"
        # NumPy's functions give a number in place of an array without dimensions.
        self._lines.append(f"v{out} = {text}" if self.rank(out) else f"v{out} = asarray({text})")
        self._made.add(out)

    def name(self, index: int) -> str:
        """Name of a value, as an array that is there."""
        numbers = numbers_of_steps(self._told, index)
        if numbers is not None and index not in self._made:
            texts = f"[{', '.join(numbers.texts)}]" if numbers.is_vector else numbers.texts[0]
            kind = self.named(f"t{index}", self.element_type(index).numpy_dtype)
            self._lines.append(f"v{index} = array({self._of(numbers, texts)}, {kind})")
            self._made.add(index)
        elif self._told.constant(index) is not None:
            self._names[f"v{index}"] = self._told.constant(index)
        elif index not in self._made:
            self._inputs.add(index)
        return f"v{index}"

    def named(self, name: str, value: Any) -> str:
        """A name for something that lines speak of."""
        self._names[name] = value
        return name

    def need(self, condition: str) -> None:
        """Leave it to the steps where a condition does not hold."""
        self._lines.append(f"if not {condition}: return NotImplemented")

    def _of(self, numbers: Numbers, text: str) -> str:
        """A text that speaks of these numbers."""
        self._inputs |= numbers.values
        self._repeated |= numbers.steps
        return text

    def rank(self, index: int) -> int:
        """Dimensions of a value."""
        return self._told.rank(index)

    def element_type(self, index: int) -> TensorElementType:
        """Type of a value's elements."""
        return self._program.values[index].element_type

    def number(self, index: int) -> str | None:
        """One number of shapes, or constant, without dimensions; None for others."""
        numbers = self._told.numbers(index)
        if numbers is None or numbers.is_vector or len(numbers.texts) != 1:
            return None
        return self._of(numbers, numbers.texts[0])

    def numbers(self, index: int) -> tuple[str, ...] | None:
        """Numbers of shapes, or constants, in a vector; None for others."""
        numbers = self._told.numbers(index)
        if numbers is None or not numbers.is_vector:
            return None
        self._of(numbers, "")
        return numbers.texts

    def shape(self, index: int) -> tuple[int, ...]:
        """Shape of a value as it was seen."""
        return tuple(self._program.values[index].shape)

    def is_plain(self, index: int) -> bool:
        """Whether a value is no number that follows from shapes."""
        return numbers_of_steps(self._told, index) is None

    def constant(self, index: int) -> Any:
        """A value that is the same in every run; None for others."""
        return self._told.constant(index)

    def target(self, step: FusibleStep) -> str | None:
        """What a Reshape asks for."""
        numbers = self._told.target(step)
        return None if numbers is None or not numbers.texts else self._of(numbers, ", ".join(numbers.texts))


@dataclass(frozen=True, slots=True)
class _Lines:
    """Several light steps."""

    compute: Callable[..., Any]


def _unsqueeze(own: _Writer, step: FusibleStep) -> str | None:
    axes = own.constant(step.inputs[1]) if len(step.inputs) > 1 else None
    x, rank = step.inputs[0], own.rank(step.outputs[0])
    if axes is None or not own.is_plain(x):
        return None
    added = {int(axis) % rank for axis in axes}
    return f"{own.name(x)}[{', '.join('None' if axis in added else ':' for axis in range(rank))}]"


def _range(own: _Writer, step: FusibleStep) -> str | None:
    numbers = [own.number(index) for index in step.inputs]
    if None in numbers or numbers[2] == "0" or own.element_type(step.outputs[0]) is not TensorElementType.INT64:
        return None
    return None if own.constant(step.inputs[2]) is None else f"arange({', '.join(map(str, numbers))})"


def _reshape(own: _Writer, step: FusibleStep) -> str | None:
    target = own.target(step) if own.is_plain(step.inputs[0]) else None
    if target is None:
        return None
    # With no elements, a dimension of 0 would mean another.
    name = own.name(step.inputs[0])
    own.need(f"{name}.size")
    return f"{name}.reshape({target})"


def _transpose(own: _Writer, step: FusibleStep) -> str | None:
    perm = step.attributes.get("perm")
    return f"{own.name(step.inputs[0])}.transpose({', '.join(map(str, perm))})" if perm else None


def _with_sign(sign: str, types: frozenset[TensorElementType]) -> Callable[[_Writer, FusibleStep], str | None]:
    """An operator of two arrays, one of which may be a number."""

    def text(own: _Writer, step: FusibleStep) -> str | None:
        if own.element_type(step.inputs[0]) not in types:
            return None
        texts = [own.number(index) or (own.name(index) if own.is_plain(index) else None) for index in step.inputs]
        has_array = any(own.rank(index) and own.is_plain(index) for index in step.inputs)
        return f"{texts[0]} {sign} {texts[1]}" if has_array and None not in texts else None

    return text


def _cast(own: _Writer, step: FusibleStep) -> str | None:
    x, out = step.inputs[0], step.outputs[0]
    target = own.element_type(out)
    if own.element_type(x) not in LIGHT_TYPES or target not in CAST_TYPES:
        return None
    return f"{own.name(x)}.astype({own.named(f't{out}', target.numpy_dtype)})"


def _concat(own: _Writer, step: FusibleStep) -> str:
    names = [own.name(index) for index in step.inputs]
    return f"concatenate(({', '.join(names)},), {step.attributes['axis']})"


def _where(own: _Writer, step: FusibleStep) -> str:
    return f"where({', '.join([own.name(index) for index in step.inputs])})"


def _gather(own: _Writer, step: FusibleStep) -> str:
    x, indices = (own.name(index) for index in step.inputs)
    return f"{x}.take({indices}, {step.attributes.get('axis', 0)})"


def _gather_many(own: _Writer, step: FusibleStep) -> str | None:
    """GatherND of single elements."""
    indices = own.shape(step.inputs[1])
    if not indices or indices[-1] != own.rank(step.inputs[0]) or step.attributes.get("batch_dims", 0):
        return None
    x, places = (own.name(index) for index in step.inputs)
    own.need(f"{places}.shape[-1] == {indices[-1]}")
    kernel = own.named(f"k{step.outputs[0]}", step.kernel.compute)
    elements = f"{x}[{', '.join(f'{places}[..., {axis}]' for axis in range(indices[-1]))}]"
    return f"{elements} if {places}.size < {SMALLEST_WORK} else {kernel}({x}, {places})"


def _expand(own: _Writer, step: FusibleStep) -> str | None:
    x, rank = step.inputs[0], own.rank(step.outputs[0])
    texts = own.numbers(step.inputs[1])
    if not texts or not own.is_plain(x) or not len(texts) == rank == own.rank(x):
        return None
    name = own.name(x)
    shape = [f"{name}.shape[{axis}]" if text == "1" else text for axis, text in enumerate(texts)]
    return f"broadcast_to({name}, ({', '.join(shape)},))"


def _sums(own: _Writer, step: FusibleStep) -> str | None:
    """CumSum."""
    axis = own.constant(step.inputs[1])
    is_plain = not step.attributes.get("exclusive", 0) and not step.attributes.get("reverse", 0)
    if axis is None or not is_plain or own.element_type(step.inputs[0]) is not TensorElementType.INT64:
        return None
    return f"{own.name(step.inputs[0])}.cumsum({int(axis.reshape(-1)[0])})"


def _of_two(name: str) -> Callable[[_Writer, FusibleStep], str | None]:
    """A function of two arrays of whole numbers."""

    def text(own: _Writer, step: FusibleStep) -> str | None:
        if len(step.inputs) != 2 or own.element_type(step.inputs[0]) is not TensorElementType.INT64:
            return None
        return f"{name}({', '.join([own.name(index) for index in step.inputs])})"

    return text


WHOLE = frozenset({TensorElementType.INT64})
TRUTH = frozenset({TensorElementType.BOOL})
CAST_TYPES = LIGHT_TYPES | {TensorElementType.FLOAT}
FUNCTIONS = {
    name: getattr(np, name)
    for name in ("arange", "array", "asarray", "broadcast_to", "concatenate", "maximum", "minimum", "where")
}
"""NumPy's that lines call."""
_RULES: dict[str, Callable[[_Writer, FusibleStep], str | None]] = {
    "Add": _with_sign("+", WHOLE),
    "And": _with_sign("&", TRUTH),
    "Cast": _cast,
    "Concat": _concat,
    "CumSum": _sums,
    "Equal": _with_sign("==", WHOLE),
    "Expand": _expand,
    "Gather": _gather,
    "GatherND": _gather_many,
    "Greater": _with_sign(">", WHOLE),
    "GreaterOrEqual": _with_sign(">=", WHOLE),
    "Less": _with_sign("<", WHOLE),
    "LessOrEqual": _with_sign("<=", WHOLE),
    "Max": _of_two("maximum"),
    "Min": _of_two("minimum"),
    "Mul": _with_sign("*", WHOLE),
    "Or": _with_sign("|", TRUTH),
    "Range": _range,
    "Reshape": _reshape,
    "Sub": _with_sign("-", WHOLE),
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
    "Where": _where,
}
"""Operator → its line, where it is not the kernel's call."""
