"""Scalar steps as generated Python: expressions over NumPy's functions, and calls of kernels where there is no rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import FusedSteps, FusibleProgram, FusibleStep, OrtSdkError, TensorElementType
from ort_sdk.api.data_classes import dataclass, field
from ort_sdk_cpu.fusion.elementwise.dynamic_shapes import MIN_WORK

from .expressions import Expressions, SymbolicIntegers, function_of_lines

__all__ = ["SCALAR_TYPES", "ScalarGroup", "computed_integers", "generate"]

SCALAR_TYPES = frozenset({TensorElementType.INT64, TensorElementType.INT32, TensorElementType.BOOL})
"""Element types of the values that come from outside."""
ERRORS = (ArithmeticError, LookupError, TypeError, ValueError, OrtSdkError)
"""What generated code may raise; the steps are then run one by one, and say what is wrong."""


def computed_integers(expressions: Expressions, value: int) -> SymbolicIntegers | None:
    """Integers that steps compute from shapes; None for others, constants among them."""
    integers = None if expressions.constant(value) is not None else expressions.integers(value)
    return integers if integers is not None and integers.steps else None


@dataclass(slots=True)
class ScalarGroup:
    """Steps that become one function."""

    units: list[tuple[tuple[int, ...], FusedSteps | None]] = field(default_factory=list)
    """Positions of a step, or of a chain of them; and the chain."""
    positions: set[int] = field(default_factory=set)
    readers: set[int] = field(default_factory=set)


def generate(
    program: FusibleProgram, expressions: Expressions, group: ScalarGroup, readers: Mapping[int, Sequence[int]]
) -> FusedSteps:
    """A group as one step of generated code.

    Args:
        program: the program.
        expressions: its expressions.
        group: the steps.
        readers: value → positions where it is read.
    """
    return _CodeGenerator(program, expressions, group, readers).fused()


class _CodeGenerator:
    """Generates the function of a group."""

    def __init__(
        self, program: FusibleProgram, expressions: Expressions, group: ScalarGroup, readers: Mapping[int, Sequence[int]]
    ) -> None:
        self._program, self._expressions, self._group = program, expressions, group
        self._outputs = {
            index
            for position in group.positions
            for index in program.steps[position].outputs
            if not group.positions.issuperset(readers.get(index, ()))
        }
        self._lines: list[str] = []
        self._names: dict[str, Any] = dict(FUNCTIONS)
        self._made: set[int] = set()
        """Values that were assigned before."""
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
        kernel = _GeneratedKernel(
            function_of_lines(
                {value: self._expressions.rank(value) for value in inputs},
                self._lines,
                returned=", ".join(f"v{index}" for index in outputs),
                errors=ERRORS,
                **self._names,
            )
        )
        return FusedSteps(tuple(sorted(self._group.positions)), kernel, tuple(inputs), outputs, repeated)

    def _has_all_numbers(self, chain: FusedSteps) -> bool:
        """Whether no integers are computed from shapes of values that are only in the loop, or that the loop needs itself."""
        own = [self._program.steps[position] for position in chain.positions]
        group = [self._program.steps[position] for position in self._group.positions]
        made = {index for step in own for index in step.outputs}
        return self._shape_values(own).isdisjoint(made) and self._shape_values(group).isdisjoint(made.difference(chain.outputs))

    def _shape_values(self, steps: Sequence[FusibleStep]) -> set[int]:
        """Values from whose shapes the integers that steps read or make are computed."""
        found = [
            computed_integers(self._expressions, index) for step in steps for index in (*step.inputs, *step.outputs) if index
        ]
        return {value for integers in found if integers is not None for value in integers.values}

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
            f"r = chain_{name}({', '.join(arguments)}) if {sizes} >= {MIN_WORK // len(steps)} else NotImplemented",
            "if r is NotImplemented:",
            *(f"    {line}" for line in inner),
            "else:",
            f"    {targets} = r",
        ]

    def _step(self, position: int) -> None:
        step = self._program.steps[position]
        out = step.outputs[0]
        if computed_integers(self._expressions, out) is not None:
            self.name(out)
            return
        rule = _RULES.get(step.op_type)
        text = None if rule is None else rule(self, step)
        if text is None:
            kernel = self.named(f"k{out}", step.kernel.compute)
            text = f"{kernel}({', '.join(self.name(index) if index else 'None' for index in step.inputs)})"
        # NumPy's functions give a scalar in place of an array without dimensions.
        self._lines.append(f"v{out} = {text}" if self.rank(out) else f"v{out} = asarray({text})")
        self._made.add(out)

    def name(self, index: int) -> str:
        """Name of a value, as an array that is there."""
        integers = computed_integers(self._expressions, index)
        if integers is not None and index not in self._made:
            texts = f"[{', '.join(integers.texts)}]" if integers.is_vector else integers.texts[0]
            kind = self.named(f"t{index}", self.element_type(index).numpy_dtype)
            self._lines.append(f"v{index} = array({self._of(integers, texts)}, {kind})")
            self._made.add(index)
        elif self._expressions.constant(index) is not None:
            self._names[f"v{index}"] = self._expressions.constant(index)
        elif index not in self._made:
            self._inputs.add(index)
        return f"v{index}"

    def named(self, name: str, value: Any) -> str:
        """A name for something that the code uses."""
        self._names[name] = value
        return name

    def need(self, condition: str) -> None:
        """Return to the steps where a condition does not hold."""
        self._lines.append(f"if not {condition}: return NotImplemented")

    def _of(self, integers: SymbolicIntegers, text: str) -> str:
        """A text in which these integers occur."""
        self._inputs |= integers.values
        self._repeated |= integers.steps
        return text

    def rank(self, index: int) -> int:
        """Dimensions of a value."""
        return self._expressions.rank(index)

    def element_type(self, index: int) -> TensorElementType:
        """Type of a value's elements."""
        return self._program.values[index].element_type

    def integer(self, index: int) -> str | None:
        """A scalar integer of shapes, or a constant; None for others."""
        integers = self._expressions.integers(index)
        if integers is None or integers.is_vector or len(integers.texts) != 1:
            return None
        return self._of(integers, integers.texts[0])

    def integers(self, index: int) -> tuple[str, ...] | None:
        """A vector of integers of shapes, or constants; None for others."""
        integers = self._expressions.integers(index)
        if integers is None or not integers.is_vector:
            return None
        self._of(integers, "")
        return integers.texts

    def shape(self, index: int) -> tuple[int, ...]:
        """Shape of a value in the traced run."""
        return tuple(self._program.values[index].shape)

    def is_plain(self, index: int) -> bool:
        """Whether a value is not computed from shapes."""
        return computed_integers(self._expressions, index) is None

    def constant(self, index: int) -> Any:
        """A value that is the same in every run; None for others."""
        return self._expressions.constant(index)

    def target(self, step: FusibleStep) -> str | None:
        """The shape that a Reshape is given."""
        integers = self._expressions.target(step)
        return None if integers is None or not integers.texts else self._of(integers, ", ".join(integers.texts))


@dataclass(frozen=True, slots=True)
class _GeneratedKernel:
    """Several scalar steps."""

    compute: Callable[..., Any]


def _unsqueeze(own: _CodeGenerator, step: FusibleStep) -> str | None:
    axes = own.constant(step.inputs[1]) if len(step.inputs) > 1 else None
    x, rank = step.inputs[0], own.rank(step.outputs[0])
    if axes is None or not own.is_plain(x):
        return None
    added = {int(axis) % rank for axis in axes}
    return f"{own.name(x)}[{', '.join('None' if axis in added else ':' for axis in range(rank))}]"


def _range(own: _CodeGenerator, step: FusibleStep) -> str | None:
    integers = [own.integer(index) for index in step.inputs]
    if None in integers or integers[2] == "0" or own.element_type(step.outputs[0]) is not TensorElementType.INT64:
        return None
    return None if own.constant(step.inputs[2]) is None else f"arange({', '.join(map(str, integers))})"


def _reshape(own: _CodeGenerator, step: FusibleStep) -> str | None:
    target = own.target(step) if own.is_plain(step.inputs[0]) else None
    if target is None:
        return None
    # With no elements, a dimension of 0 would mean another.
    name = own.name(step.inputs[0])
    own.need(f"{name}.size")
    return f"{name}.reshape({target})"


def _transpose(own: _CodeGenerator, step: FusibleStep) -> str | None:
    perm = step.attributes.get("perm")
    return f"{own.name(step.inputs[0])}.transpose({', '.join(map(str, perm))})" if perm else None


def _infix(sign: str, types: frozenset[TensorElementType]) -> Callable[[_CodeGenerator, FusibleStep], str | None]:
    """An operator of two arrays, one of which may be a scalar."""

    def text(own: _CodeGenerator, step: FusibleStep) -> str | None:
        if own.element_type(step.inputs[0]) not in types:
            return None
        texts = [own.integer(index) or (own.name(index) if own.is_plain(index) else None) for index in step.inputs]
        has_array = any(own.rank(index) and own.is_plain(index) for index in step.inputs)
        return f"{texts[0]} {sign} {texts[1]}" if has_array and None not in texts else None

    return text


def _cast(own: _CodeGenerator, step: FusibleStep) -> str | None:
    x, out = step.inputs[0], step.outputs[0]
    target = own.element_type(out)
    if own.element_type(x) not in SCALAR_TYPES or target not in CAST_TYPES:
        return None
    return f"{own.name(x)}.astype({own.named(f't{out}', target.numpy_dtype)})"


def _concat(own: _CodeGenerator, step: FusibleStep) -> str:
    names = [own.name(index) for index in step.inputs]
    return f"concatenate(({', '.join(names)},), {step.attributes['axis']})"


def _where(own: _CodeGenerator, step: FusibleStep) -> str:
    return f"where({', '.join([own.name(index) for index in step.inputs])})"


def _gather(own: _CodeGenerator, step: FusibleStep) -> str:
    x, indices = (own.name(index) for index in step.inputs)
    return f"{x}.take({indices}, {step.attributes.get('axis', 0)})"


def _gather_nd(own: _CodeGenerator, step: FusibleStep) -> str | None:
    """GatherND of single elements."""
    indices = own.shape(step.inputs[1])
    if not indices or indices[-1] != own.rank(step.inputs[0]) or step.attributes.get("batch_dims", 0):
        return None
    x, tuples = (own.name(index) for index in step.inputs)
    own.need(f"{tuples}.shape[-1] == {indices[-1]}")
    kernel = own.named(f"k{step.outputs[0]}", step.kernel.compute)
    elements = f"{x}[{', '.join(f'{tuples}[..., {axis}]' for axis in range(indices[-1]))}]"
    return f"{elements} if {tuples}.size < {MIN_WORK} else {kernel}({x}, {tuples})"


def _expand(own: _CodeGenerator, step: FusibleStep) -> str | None:
    x, rank = step.inputs[0], own.rank(step.outputs[0])
    texts = own.integers(step.inputs[1])
    if not texts or not own.is_plain(x) or not len(texts) == rank == own.rank(x):
        return None
    name = own.name(x)
    shape = [f"{name}.shape[{axis}]" if text == "1" else text for axis, text in enumerate(texts)]
    return f"broadcast_to({name}, ({', '.join(shape)},))"


def _cum_sum(own: _CodeGenerator, step: FusibleStep) -> str | None:
    """CumSum."""
    axis = own.constant(step.inputs[1])
    is_plain = not step.attributes.get("exclusive", 0) and not step.attributes.get("reverse", 0)
    if axis is None or not is_plain or own.element_type(step.inputs[0]) is not TensorElementType.INT64:
        return None
    return f"{own.name(step.inputs[0])}.cumsum({int(axis.reshape(-1)[0])})"


def _binary_function(name: str) -> Callable[[_CodeGenerator, FusibleStep], str | None]:
    """A function of two arrays of integers."""

    def text(own: _CodeGenerator, step: FusibleStep) -> str | None:
        if len(step.inputs) != 2 or own.element_type(step.inputs[0]) is not TensorElementType.INT64:
            return None
        return f"{name}({', '.join([own.name(index) for index in step.inputs])})"

    return text


INTEGER = frozenset({TensorElementType.INT64})
BOOLEAN = frozenset({TensorElementType.BOOL})
CAST_TYPES = SCALAR_TYPES | {TensorElementType.FLOAT}
FUNCTIONS = {
    name: getattr(np, name)
    for name in ("arange", "array", "asarray", "broadcast_to", "concatenate", "maximum", "minimum", "where")
}
"""NumPy's, which the code calls."""
_RULES: dict[str, Callable[[_CodeGenerator, FusibleStep], str | None]] = {
    "Add": _infix("+", INTEGER),
    "And": _infix("&", BOOLEAN),
    "Cast": _cast,
    "Concat": _concat,
    "CumSum": _cum_sum,
    "Equal": _infix("==", INTEGER),
    "Expand": _expand,
    "Gather": _gather,
    "GatherND": _gather_nd,
    "Greater": _infix(">", INTEGER),
    "GreaterOrEqual": _infix(">=", INTEGER),
    "Less": _infix("<", INTEGER),
    "LessOrEqual": _infix("<=", INTEGER),
    "Max": _binary_function("maximum"),
    "Min": _binary_function("minimum"),
    "Mul": _infix("*", INTEGER),
    "Or": _infix("|", BOOLEAN),
    "Range": _range,
    "Reshape": _reshape,
    "Sub": _infix("-", INTEGER),
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
    "Where": _where,
}
"""Operator → its expression, where it is not a call of the kernel."""
