"""Convolutions of a program that do the element-wise steps behind them as well."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ort_sdk.api import FusedSteps, FusibleProgram, FusibleStep, Slot
from ort_sdk_cpu.kernels.any_layout import FixedSlot

from .post_ops import Tail, tail_of

__all__ = ["FollowedConvolution", "fused_convolutions"]

NODE_INPUTS = 4
"""X, W, B and Z."""


def fused_convolutions(program: FusibleProgram) -> Iterator[FusedSteps]:
    """One kernel for each convolution and what follows it, where it can be post-ops."""
    taken: set[int] = set()
    for position, step in program.steps.items():
        if not hasattr(step.kernel, "followed_by") or position in taken or len(step.outputs) != 1:
            continue
        tail = tail_of(program, step.outputs[0], taken)
        made = None if tail is None else _fused(program, position, step, tail)
        if made is not None:
            taken.update(made.positions)
            yield made


def _fused(program: FusibleProgram, position: int, step: FusibleStep, tail: Tail) -> FusedSteps | None:
    shape = program.values[step.outputs[0]].shape
    added = [value for value in step.inputs[NODE_INPUTS - 1 :] if value]
    if any(program.values[value].shape != shape for value in added):
        return None
    x_shape = program.values[step.inputs[0]].shape
    kernel = step.kernel.followed_by(tail.post_ops, x_shape, adds_last=tail.added != 0)
    if kernel is None:
        return None
    given = [*step.inputs, *(0,) * (NODE_INPUTS - len(step.inputs)), *((tail.added,) if tail.added else ())]
    positions = (position, *tail.members)
    inputs = tuple(value for value in given if value)
    return FusedSteps(positions, FollowedConvolution(kernel, [bool(value) for value in given]), inputs, (tail.output,))


class FollowedConvolution:
    """A convolution with what follows it.

    Args:
        kernel: computes both, with all inputs it may have.
        is_given: which of them there are.
    """

    binds_any_layout = True

    def __init__(self, kernel: Any, is_given: Sequence[bool]) -> None:
        self._kernel, self._is_given = kernel, is_given

    def bind(self, inputs: Sequence[Slot], outputs: Sequence[Slot]) -> Callable[[], Any]:
        """A call that reads the inputs' slots and writes into the output's array."""
        given = iter(inputs)
        call: Callable[[], Any] = self._kernel.bind(
            [next(given) if there else FixedSlot(None) for there in self._is_given],  # type: ignore[arg-type]
            outputs,
        )
        return call
