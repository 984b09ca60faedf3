"""Convolutions of dynamically quantized tensors with what makes float32 of their sums, as onnxruntime's quantizer writes them.

ConvInteger → Cast → Mul by the product of two scales, and perhaps a bias and bounds behind it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import FusedSteps, FusibleProgram, FusibleStep, HostArray, Slot, TensorElementType
from ort_sdk.api.data_classes import dataclass
from ort_sdk_cpu.kernel.layouts.channels_last import readable
from ort_sdk_cpu.quantized.conv.dequantized import DequantizationEpilogue, DequantizedConvolution

__all__ = ["DynamicConvolution", "float_convolutions"]

_X, _ZERO_POINT = 0, 2
_FLOAT = np.dtype(np.float32)


def float_convolutions(program: FusibleProgram) -> Iterator[FusedSteps]:
    """One kernel for each convolution and what follows, where nothing else reads what is between."""
    makers = {value: position for position, step in program.steps.items() for value in step.outputs if value}
    for position, step in program.steps.items():
        if not hasattr(step.kernel, "dequantized_convolution"):
            continue
        run = _run_of(program, position, makers)
        made = None if run is None else _fused(program, step, run)
        if made is not None:
            yield made


@dataclass(slots=True)
class _Run:
    """Steps behind a convolution, as far as they are known."""

    positions: list[int]
    scale: int
    """Value that holds the scale of X."""
    finish: DequantizationEpilogue
    last: int
    """Value that the last step makes."""


def _run_of(program: FusibleProgram, position: int, makers: dict[int, int]) -> _Run | None:
    """The convolution's sums as float32, times scales; None if that does not follow."""
    cast = _only_reader(program, program.steps[position].outputs[0])
    if (
        cast is None
        or program.steps[cast].op_type != "Cast"
        or program.steps[cast].attributes.get("to") != TensorElementType.FLOAT
    ):
        return None
    product = _only_reader(program, program.steps[cast].outputs[0])
    if product is None or program.steps[product].op_type != "Mul":
        return None
    sums, step = program.steps[cast].outputs[0], program.steps[product]
    factor = next((value for value in step.inputs if value != sums), 0)
    scaling = makers.get(factor)
    if scaling is None or program.steps[scaling].op_type != "Mul" or _only_reader(program, factor) != product:
        return None
    result = program.values[step.outputs[0]]
    pair = _scales(program, program.steps[scaling], result.shape)
    if pair is None or result.shape != program.values[sums].shape:
        return None
    run = _Run([position, cast, scaling, product], pair[0], DequantizationEpilogue(pair[1]), step.outputs[0])
    _add_bias(program, run)
    _add_bounds(program, run)
    return run


def _scales(program: FusibleProgram, step: FusibleStep, shape: Sequence[int]) -> tuple[int, HostArray] | None:
    """The value that is the scale of X, and the weight's scales."""
    constants = [program.values[value].constant for value in step.inputs]
    for own, other in ((0, 1), (1, 0)):
        weight, scale = constants[own], program.values[step.inputs[other]]
        is_scale = scale.constant is None and math.prod(scale.shape) == 1 and scale.element_type.numpy_dtype == _FLOAT
        if weight is not None and is_scale:
            scales = _per_channel(weight, shape)
            return None if scales is None else (step.inputs[other], scales)
    return None


def _per_channel(array: HostArray, shape: Sequence[int]) -> HostArray | None:
    """Float32 constants that differ along axis 1 only: one, or one for each channel; None for others."""
    if array.dtype != _FLOAT or array.ndim > len(shape):
        return None
    own = (*[1] * (len(shape) - array.ndim), *array.shape)
    is_fit = all(size == 1 for axis, size in enumerate(own) if axis != 1) and own[1] in {1, shape[1]}
    return np.ascontiguousarray(array.reshape(-1)) if is_fit else None


def _only_reader(program: FusibleProgram, value: int) -> int | None:
    """Position of the one step of this provider that reads a value; None if there are others."""
    readers = list(program.readers.get(value, ()))
    return readers[0] if len(readers) == 1 and readers[0] in program.steps else None


def _add_bias(program: FusibleProgram, run: _Run) -> None:
    position = _only_reader(program, run.last)
    step = None if position is None else program.steps[position]
    if step is None or position is None or step.op_type != "Add":
        return
    other = next((value for value in step.inputs if value != run.last), 0)
    constant = program.values[other].constant if other in program.values else None
    shape = program.values[run.last].shape
    bias = None if constant is None else _per_channel(constant, shape)
    if bias is not None and program.values[step.outputs[0]].shape == shape:
        run.finish = run.finish._replace(bias=np.ascontiguousarray(np.broadcast_to(bias, shape[1:2])))
        run.positions.append(position)
        run.last = step.outputs[0]


def _add_bounds(program: FusibleProgram, run: _Run) -> None:
    position = _only_reader(program, run.last)
    step = None if position is None else program.steps[position]
    bounds = None if step is None else _bounds(program, step)
    if step is not None and position is not None and bounds is not None:
        run.finish = run.finish._replace(low=bounds[0], high=bounds[1])
        run.positions.append(position)
        run.last = step.outputs[0]


def _bounds(program: FusibleProgram, step: FusibleStep) -> tuple[float, float] | None:
    """Of Relu, or of Clip with constant ones."""
    if step.op_type == "Relu":
        return 0.0, math.inf
    if step.op_type != "Clip":
        return None
    found = [float(step.attributes.get("min", -math.inf)), float(step.attributes.get("max", math.inf))]
    for place, value in enumerate(step.inputs[1:3]):
        constant = program.values[value].constant if value else np.float32(found[place])
        if constant is None or constant.size != 1:
            return None
        found[place] = float(constant.reshape(()))
    return (found[0], found[1]) if found[0] <= found[1] else None


def _fused(program: FusibleProgram, step: FusibleStep, run: _Run) -> FusedSteps | None:
    x = program.values[step.inputs[_X]]
    convolution = step.kernel.dequantized_convolution(x.shape, run.finish)
    if convolution is None or x.shape[1] != convolution.channels:
        return None
    zero_point = step.inputs[_ZERO_POINT] if len(step.inputs) > _ZERO_POINT else 0
    if zero_point and math.prod(program.values[zero_point].shape) != 1:
        return None
    inputs = (step.inputs[_X], run.scale, *([zero_point] if zero_point else []))
    return FusedSteps(tuple(sorted(run.positions)), DynamicConvolution(convolution), inputs, (run.last,))


class DynamicConvolution:
    """A convolution of X, which has one scale and perhaps a zero point, as float32.

    Args:
        convolution: what computes it.
    """

    binds_any_layout = True

    def __init__(self, convolution: DequantizedConvolution) -> None:
        self._convolution = convolution

    @property
    def algorithm(self) -> str | None:
        """That of the convolution, once it is bound."""
        return self._convolution.algorithm

    def bind(self, inputs: Sequence[Slot], outputs: Sequence[Slot]) -> Callable[[], Any]:
        """A call that reads the slots of X, its scale and its zero point, and writes into the output's array."""
        output, convolution = outputs[0], self._convolution
        x = inputs[0]
        if all(slot.is_fixed for slot in (*inputs, output)) and readable(x.array) is x.array:
            operands = _operands(inputs)
            return convolution.call(*operands, output.array).bind_arrays(*operands, output.array)

        def compute() -> None:
            operands = _operands(inputs)
            convolution.call(*operands, output.array).run(*operands, output.array)

        return compute


def _operands(inputs: Sequence[Slot]) -> tuple[HostArray, HostArray, HostArray]:
    """X, its zero point and its scale."""
    x, scale = readable(inputs[0].array), inputs[1].array
    return x, inputs[2].array if len(inputs) > 2 else np.zeros(1, x.dtype), scale
