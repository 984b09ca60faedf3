"""Convolutions of 8-bit tensors that add another tensor to their result, as residual networks do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import FusedSteps, FusibleProgram, FusibleStep, Slot
from ort_sdk_cpu.quantized.conv.direct import QuantizedAdd

__all__ = ["ConvolutionWithAdd", "quantized_sums"]

SUM = "QLinearAdd"
_OPERANDS = ((3, 0), (0, 3))
"""Of a sum: where its inputs are, each with a scale and a zero point behind it."""
_TOTAL = 6


def quantized_sums(program: FusibleProgram) -> Iterator[FusedSteps]:
    """One kernel for each convolution and the addition behind it, where nothing else reads its result."""
    makers = {value: position for position, step in program.steps.items() for value in step.outputs}
    taken: set[int] = set()
    for position, step in program.steps.items():
        if step.op_type != SUM or len(step.inputs) <= _TOTAL:
            continue
        for own, other in sorted(_OPERANDS, key=lambda pair: -makers.get(step.inputs[pair[0]], -1)):
            maker = makers.get(step.inputs[own], -1)
            made = None if maker in taken else _fused(program, maker, position, own, other)
            if made is not None:
                taken.add(maker)
                yield made
                break


def _fused(program: FusibleProgram, maker: int, position: int, own: int, other: int) -> FusedSteps | None:
    step, convolution = program.steps[position], program.steps.get(maker)
    if convolution is None or not hasattr(convolution.kernel, "can_fuse_add") or not step.outputs[0]:
        return None
    product, addend = program.values[step.inputs[own]], program.values.get(step.inputs[other])
    is_alone = list(program.readers.get(step.inputs[own], ())) == [position]
    if not is_alone or addend is None or addend.shape != product.shape or addend.constant is not None:
        return None
    parameters = [_parameters(program, step.inputs[index + 1 : index + 3]) for index in (own, other, _TOTAL - 1)]
    if None in parameters:
        return None
    first, second, total = (pair for pair in parameters if pair is not None)
    add = QuantizedAdd(first, product.element_type.numpy_dtype, second, total)
    x = program.values.get(convolution.inputs[0])
    if x is None or not convolution.kernel.can_fuse_add(x.shape, add):
        return None
    others = tuple(value for index, value in enumerate(step.inputs) if value and index != own)
    inputs = (*(value for value in convolution.inputs if value), *others)
    return FusedSteps((maker, position), ConvolutionWithAdd(convolution, step, add, own), inputs, step.outputs[:1])


def _parameters(program: FusibleProgram, values: Sequence[int]) -> tuple[float, int] | None:
    """(scale, zero point) that are constant, one each; None for others."""
    if len(values) != 2 or not all(values):
        return None
    found: list[Any] = [program.values[value].constant if value in program.values else None for value in values]
    if any(value is None or value.size != 1 for value in found) or found[0].dtype != np.float32:
        return None
    scale = float(found[0].reshape(()))
    return (scale, int(found[1].reshape(()))) if np.isfinite(scale) and scale > 0 else None


class ConvolutionWithAdd:
    """A convolution with an addition behind it.

    Args:
        convolution: its step.
        addition: the other one.
        add: scales and zero points of the addition.
        own: which input of the addition is the convolution's result.
    """

    binds_any_layout = True

    def __init__(self, convolution: FusibleStep, addition: FusibleStep, add: QuantizedAdd, own: int) -> None:
        self._convolution, self._addition, self._add, self._own = convolution, addition, add, own

    @property
    def algorithm(self) -> str | None:
        """That of the convolution."""
        return getattr(self._convolution.kernel, "algorithm", None)

    def bind(self, inputs: Sequence[Slot], outputs: Sequence[Slot]) -> Callable[[], Any]:
        """A call that reads the inputs' slots, of the convolution and of the addition, and writes into the output's array."""
        output, given = outputs[0], iter(inputs)
        operands = [next(given) if value else None for value in self._convolution.inputs]
        terms = [next(given) if value and place != self._own else None for place, value in enumerate(self._addition.inputs)]
        addend = terms[_OPERANDS[0][0] - self._own]
        if addend is not None and all(slot.is_fixed for slot in (*inputs, output)):
            call: Callable[[], Any] | None = self._convolution.kernel.with_add(
                _read(operands), addend.array, self._add, output.array
            )
            if call is not None:
                return call

        def compute() -> None:
            arrays = _read(terms)
            arrays[self._own] = self._convolution.kernel.compute(*_read(operands))
            np.copyto(output.array, self._addition.kernel.compute(*arrays))

        return compute


def _read(slots: Sequence[Slot | None]) -> list[Any]:
    return [None if slot is None else slot.array for slot in slots]
