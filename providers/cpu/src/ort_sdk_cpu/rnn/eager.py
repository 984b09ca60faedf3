"""Recurrent layers over sequences of a length that was never seen before: by the writers that programs use, made for the call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import KernelInfo
from ort_sdk_cpu.kernel.eager_tasks import eager_call
from ort_sdk_cpu.kernel.writer import MakeWriter

__all__ = ["directions_of", "layer_call"]

_GATES = {"GRU": 3, "LSTM": 4, "RNN": 1}
_PEEPHOLE_GATES = 3
_WEIGHT, _RECURRENT, _BIAS, _LENGTHS, _STATES, _PEEPHOLES = 1, 2, 3, 4, slice(5, 7), 7


@eager_call("GRU", "LSTM", "RNN", integer_inputs=(_LENGTHS,))
def direct_recurrent(info: KernelInfo, make_writer: MakeWriter) -> Callable[..., Any]:
    """The layer as a call; ``NotImplemented`` for shapes that do not belong together, which are another's to refuse."""
    gates, directions = _GATES[info.op_type], directions_of(info)

    def states(inputs: Sequence[Any]) -> tuple[int, int, int] | None:
        if not _fit(info, inputs, gates, directions):
            return None
        return directions, inputs[0].shape[1], _shape_of(info, inputs, _RECURRENT)[2]

    return layer_call(info, make_writer, states)


def directions_of(info: KernelInfo) -> int:
    """How many a layer has."""
    return 2 if info.attribute("direction", "forward") == "bidirectional" else 1


def layer_call(
    info: KernelInfo, make_writer: MakeWriter, states_of: Callable[[Sequence[Any]], tuple[int, int, int] | None]
) -> Callable[..., Any]:
    """A layer as a call.

    Args:
        info: the node.
        make_writer: makes what writes its outputs.
        states_of: from the inputs, the shape of the last states, (directions, batch, hidden); None if the call is not for them.
    """
    wanted = [info.wants_output(index) for index in range(len(info.outputs))]
    while wanted and not wanted[-1]:
        wanted.pop()

    def call(*inputs: Any) -> Any:
        states = states_of(inputs) if wanted else None
        if states is None:
            return NotImplemented
        x = inputs[0]
        shapes = ((x.shape[0], *states), states, states)
        outputs = tuple(np.empty(shape, x.dtype) if given else None for shape, given in zip(shapes, wanted, strict=False))
        make_writer(inputs, outputs)(*inputs, *outputs)  # type: ignore[arg-type]
        return outputs if len(outputs) > 1 else outputs[0]

    return call


def _shape_of(info: KernelInfo, inputs: Sequence[Any], index: int) -> tuple[int, ...]:
    """Of a weight, which is not given if it is packed."""
    return tuple(info.constants[index].shape) if inputs[index] is None else inputs[index].shape


def _fit(info: KernelInfo, inputs: Sequence[Any], gates: int, directions: int) -> bool:
    x, w, r = inputs[0], *(_shape_of(info, inputs, index) for index in (_WEIGHT, _RECURRENT))
    if x.ndim != 3 or len(r) != 3 or not x.size:
        return False
    hidden = r[2]
    if any(array is not None and array.shape != (directions, _PEEPHOLE_GATES * hidden) for array in inputs[_PEEPHOLES:]):
        return False
    rows, bias = gates * hidden, inputs[_BIAS] if len(inputs) > _BIAS else None
    are_weights = w == (directions, rows, x.shape[2]) and r == (directions, rows, hidden)
    is_bias = bias is None or bias.shape == (directions, 2 * rows)
    state = (directions, x.shape[1], hidden)
    are_lengths = all(given is None or given.shape == (x.shape[1],) for given in inputs[_LENGTHS:5])
    return are_weights and is_bias and are_lengths and all(given is None or given.shape == state for given in inputs[_STATES])
