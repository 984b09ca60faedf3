"""Element-wise steps behind a convolution as its epilogue: activations with constant parameters, at last another tensor."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ort_sdk.api import FusibleProgram, FusibleStep, TensorElementType
from ort_sdk.api.data_classes import dataclass
from ort_sdk_cpu.kernel.activation import Activation, ActivationKind, activation_of
from ort_sdk_cpu.kernel.element_operation import ElementOperation

__all__ = ["Tail", "tail_of"]

MAX_MEMBERS = 12
MAX_ACTIVATIONS = 4


@dataclass(frozen=True, slots=True)
class Tail:
    """Steps that read nothing but a value, constants, and perhaps one more tensor, which the last of them adds."""

    members: tuple[int, ...]
    """Their positions, ascending."""
    output: int
    """The value they leave."""
    activations: tuple[Activation, ...]
    """What they do to each element, in order."""
    added: int = 0
    """Value of the output's shape that is added then; 0 for none."""


def tail_of(program: FusibleProgram, value: int, taken: set[int]) -> Tail | None:
    """The longest tail of a value; None if what follows it cannot be an epilogue.

    Args:
        program: the program.
        value: float32, written by a convolution.
        taken: positions of steps that are part of something else.
    """
    finder = _Finder(program, value, taken)
    while finder.grow():
        pass
    return finder.found


class _Finder:
    def __init__(self, program: FusibleProgram, value: int, taken: set[int]) -> None:
        self._program, self._taken = program, taken
        self._shape = program.values[value].shape
        self._known: dict[int, tuple[Activation, ...]] = {value: ()}
        """Value → the functions of the convolution's result that make it."""
        self._members: list[int] = []
        self.found: Tail | None = None

    def grow(self) -> bool:
        """Take the next step that reads what is known; False if there is none, or it is no function of the result alone."""
        positions = {reader for value in self._known for reader in self._program.readers.get(value, ())}.difference(self._members)
        position = min(positions, default=-1)
        step = self._program.steps.get(position)
        if step is None or position in self._taken or len(self._members) == MAX_MEMBERS:
            return False
        operation: ElementOperation | None = getattr(step.kernel, "element_operation", None)
        if operation is None or len(step.outputs) != 1 or not self._is_like_result(step.outputs[0]):
            return False
        activations = self._applied(operation, step)
        if activations is None or len(activations) > MAX_ACTIVATIONS:
            return self._end_by_addition(operation, step, position)
        self._members.append(position)
        self._known[step.outputs[0]] = activations
        if self._is_closed(step.outputs[0]):
            self.found = Tail(tuple(self._members), step.outputs[0], activations)
        return True

    def _is_like_result(self, value: int) -> bool:
        found = self._program.values.get(value)
        return found is not None and found.shape == self._shape and found.element_type is TensorElementType.FLOAT

    def _is_closed(self, output: int) -> bool:
        """Whether nothing else reads what led to a value."""
        members = set(self._members)
        return all(members.issuperset(self._program.readers.get(value, ())) for value in self._known if value != output)

    def _end_by_addition(self, operation: ElementOperation, step: FusibleStep, position: int) -> bool:
        """Take an addition of another tensor as the last step; always False."""
        own = [value for value in step.inputs if value in self._known]
        others = [value for value in step.inputs if value not in self._known]
        is_sum = operation.op_type == "Add" and len(own) == len(others) == 1 and self._is_like_result(others[0])
        if is_sum and self._program.values[others[0]].constant is None and len(self._known[own[0]]) < MAX_ACTIVATIONS:
            activations = self._known[own[0]]
            self._members.append(position)
            self._known[step.outputs[0]] = activations
            if self._is_closed(step.outputs[0]):
                self.found = Tail(tuple(self._members), step.outputs[0], activations, others[0])
        return False

    def _applied(self, operation: ElementOperation, step: FusibleStep) -> tuple[Activation, ...] | None:
        """What a step's output is; None if it cannot be said."""
        functions = [self._known.get(value) for value in step.inputs]
        numbers = [self._number(value) for value in step.inputs]
        if functions[0] is not None and all(number is not None for number in numbers[1:]):
            return _of_one(operation, functions[0], numbers[1:])
        if len(functions) != 2 or functions[1] is None:
            return None
        if functions[0] is not None:
            return _product(functions[0], functions[1]) if operation.op_type == "Mul" else None
        number = numbers[0]
        return None if number is None else _of_number_first(operation.op_type, number, functions[1])

    def _number(self, value: int) -> float | None:
        """A constant of one element, which broadcasts to the result; NaN for an absent input."""
        if not value:
            return math.nan
        found = self._program.values.get(value)
        if found is None or found.constant is None or found.element_type is not TensorElementType.FLOAT:
            return None
        constant: Any = found.constant
        return float(constant.reshape(())) if constant.size == 1 and constant.ndim <= len(self._shape) else None


def _of_one(
    operation: ElementOperation, before: tuple[Activation, ...], numbers: Sequence[float | None]
) -> tuple[Activation, ...] | None:
    """A function of a value and of constants behind it."""
    known = [number for number in numbers if number is not None]
    if not known:
        made = _function(operation.op_type, operation.attributes)
        return None if made is None else (*before, made)
    if operation.op_type == "Clip":
        low, high = (*known, math.nan)[:2]
        return (*before, Activation(ActivationKind.CLIP, _or(low, -math.inf), _or(high, math.inf)))
    if len(known) != 1 or not math.isfinite(known[0]):
        return None
    (number,) = known
    if operation.op_type in _BOUNDS:
        return _bounded(operation.op_type, number, before)
    if operation.op_type == "Div":
        return None if number == 0 else _scaled(before, 1 / number, 0.0)
    factors = {"Add": (1.0, number), "Sub": (1.0, -number), "Mul": (number, 0.0)}.get(operation.op_type)
    return None if factors is None else _scaled(before, *factors)


def _or(number: float, otherwise: float) -> float:
    return otherwise if math.isnan(number) else number


def _bounded(op_type: str, number: float, before: tuple[Activation, ...]) -> tuple[Activation, ...]:
    """Max or Min of a value and a number, as one with bounds before it."""
    bound = _BOUNDS[op_type]
    low, high = (number, math.inf) if op_type == "Max" else (-math.inf, number)
    if before and before[-1].kind == ActivationKind.CLIP:
        low, high = bound(before[-1].alpha, number), bound(before[-1].beta, number)
        before = before[:-1]
    return (*before, Activation(ActivationKind.CLIP, low, high))


_BOUNDS: dict[str, Callable[[float, float], float]] = {"Max": max, "Min": min}


def _of_number_first(op_type: str, number: float, before: tuple[Activation, ...]) -> tuple[Activation, ...] | None:
    if op_type in _BOUNDS:
        return _bounded(op_type, number, before) if math.isfinite(number) else None
    factors = {"Add": (1.0, number), "Sub": (-1.0, number), "Mul": (number, 0.0)}.get(op_type)
    return None if factors is None or not math.isfinite(number) else _scaled(before, *factors)


def _function(op_type: str, attributes: Mapping[str, Any]) -> Activation | None:
    """A function of one number. Gelu is not among them: oneDNN's has more than twice the error of the compiled one."""
    if op_type == "Clip" and attributes:
        return Activation(ActivationKind.CLIP, attributes["min"], attributes["max"])
    if op_type == "HardSigmoid":
        return Activation(ActivationKind.HARD_SIGMOID, attributes["alpha"], attributes["beta"])
    if op_type in {"QuickGelu", "Swish"}:
        return Activation(ActivationKind.SWISH, attributes["alpha"])
    if op_type == "LeakyRelu":
        return Activation(ActivationKind.LEAKY_RELU, attributes["alpha"])
    return activation_of(op_type, ()) if op_type in _PLAIN else None


_PLAIN = frozenset({"HardSwish", "Relu", "Sigmoid", "Tanh"})
"""Operators without parameters."""


def _scaled(before: tuple[Activation, ...], factor: float, shift: float) -> tuple[Activation, ...] | None:
    """Factor · value + shift, as one with a linear function before it."""
    if not (math.isfinite(factor) and math.isfinite(shift)):
        return None
    if before and before[-1].kind == ActivationKind.LINEAR:
        last = before[-1]
        factor, shift, before = last.alpha * factor, last.beta * factor + shift, before[:-1]
    return before if (factor, shift) == (1, 0) else (*before, Activation(ActivationKind.LINEAR, factor, shift))


def _product(first: tuple[Activation, ...], second: tuple[Activation, ...]) -> tuple[Activation, ...] | None:
    """A value times a gate made of it."""
    value, product = sorted((first, second), key=len)
    if product[: len(value)] != value:
        return None
    gate = product[len(value) :]
    scale = 1.0
    if len(gate) > 1 and gate[-1].kind == ActivationKind.LINEAR and gate[-1].beta == 0:
        scale, gate = gate[-1].alpha, gate[:-1]
    made = _gated(gate)
    if made is None:
        return None
    function, factor = made
    return _scaled((*value, function), factor * scale, 0.0)


def _gated(gate: tuple[Activation, ...]) -> tuple[Activation, float] | None:
    """X times its gate as a function of x, and a factor."""
    kinds = [function.kind for function in gate]
    if kinds == [ActivationKind.HARD_SIGMOID]:
        return replace(gate[0], kind=ActivationKind.HARD_SWISH), 1.0
    if kinds == [ActivationKind.SIGMOID]:
        return Activation(ActivationKind.SWISH, 1.0), 1.0
    if kinds == [ActivationKind.LINEAR, ActivationKind.SIGMOID] and gate[0].beta == 0:
        return Activation(ActivationKind.SWISH, gate[0].alpha), 1.0
    is_clipped = kinds == [ActivationKind.LINEAR, ActivationKind.CLIP] and gate[1].alpha == 0 and 0 < gate[1].beta < math.inf
    if is_clipped:
        line, high = gate[0], gate[1].beta
        return Activation(ActivationKind.HARD_SWISH, line.alpha / high, line.beta / high), high
    return None
