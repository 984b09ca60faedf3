"""What the kernels of specialized algorithms share: a constant weight that is arranged once, and a general kernel in reserve."""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from ort_sdk.api import (
    NOT_PACKED,
    TENSOR_BYTES,
    HostArray,
    KernelInfo,
    NotPacked,
    OpKernel,
    PrePackedWeights,
    Slot,
    Tensor,
)
from ort_sdk.opset.definition import input_rule
from ort_sdk_cpu.kernel.layouts.any_layout import FixedSlot
from ort_sdk_cpu.kernel.layouts.memory import is_nhwc
from ort_sdk_cpu.memory.workspace import workspace_of

from .problem import ConvAlgorithm, ConvProblem

__all__ = ["BIAS", "FLOAT", "MAX_1D_BYTES", "TEAM_WORK", "WEIGHT", "SpecializedConvKernel"]

TEAM_WORK = 1 << 21
"""Multiplications from which on a team is worth it. Around such a convolution there is often nothing to do for a second thread,
which sleeps by then and takes half as long to wake."""
MAX_1D_BYTES = 1 << 16
"""Of a 1-D input for which a bound call is made of calls that need no Python, in memory of its own."""
X, WEIGHT, BIAS = range(3)
FLOAT = np.dtype(np.float32)


class SpecializedConvKernel(OpKernel):
    """A convolution with a constant weight whose algorithm is for some inputs; a general kernel is made when another comes.

    A constant weight of 1-D convolutions is read where it is, aligned or not: what is kept is its arrangement.

    Args:
        info: the node.
        make_general: makes the kernel that computes what this does not.
        problem: the node's.
    """

    own_algorithm: ClassVar[ConvAlgorithm]

    binds_any_layout = True
    deterministic = True
    shape_inputs = ()
    packs_in_first_run = True

    def __init__(self, info: KernelInfo, make_general: Callable[[], Any], problem: ConvProblem) -> None:
        self._make_general, self._geometry, self._workspace = make_general, problem.geometry, workspace_of(info)
        self._shape = problem.weight_shape or ()
        """Of the weight."""
        self._used: Any = None
        """Name of the algorithm used last, or the general kernel."""
        self._matrix: tuple[HostArray, HostArray] | None = None
        self._kept_shape = self._shape if problem.rank == 1 else None
        """Of a weight that is kept where it is; others are read, with what follows, by general kernels, too."""
        self._weight: HostArray | None = None
        self._input_rule = input_rule(info)

    @functools.cached_property
    def _general(self) -> Any:
        """The general kernel, made when it is first needed, which it is of few nodes."""
        return self._make_general()

    @property
    def algorithm(self) -> str | None:
        """The algorithm used or bound last; None before shapes are known."""
        used = self._used
        return used if used is None or isinstance(used, str) else getattr(used, "algorithm", None)

    def packing_identity(self, input_index: int) -> str | None:
        """The weight stays as it is."""
        return TENSOR_BYTES if input_index == WEIGHT and self._kept_shape is not None else None

    def prepack(self, tensor: Tensor, input_index: int, allocator: Any) -> PrePackedWeights | NotPacked:
        """The weight's bytes as they are."""
        return NOT_PACKED if self.packing_identity(input_index) is None else PrePackedWeights((tensor.packed(),))

    def use_prepacked(self, weights: PrePackedWeights, input_index: int) -> None:
        """Read the weight from the buffer."""
        self._weight = weights.buffers[0].view(FLOAT).reshape(self._kept_shape)

    @functools.cached_property
    def _aligned_weight(self) -> HostArray:
        """The weight as other kernels read it."""
        return np.require(self._weight, requirements=("C", "A"))

    # What a subclass says

    @abstractmethod
    def _takes(self, x: HostArray) -> bool:
        """Whether an input is computed here."""

    @abstractmethod
    def _new_output(self, x: HostArray) -> HostArray:
        """A new array (N, M, *spatial) for the result of an input that is taken."""

    @abstractmethod
    def _launch(self, x: HostArray) -> Any:
        """What computes inputs of this shape: a call of X, the arranged weight, the bias and the output, with ``fixed``."""

    @abstractmethod
    def _arranged(self, weight: HostArray) -> HostArray:
        """The weight as it is read."""

    def _is_written(self, out: HostArray) -> bool:
        """Whether results are written to an output of this layout."""
        return is_nhwc(out)

    def _output(self, out: HostArray) -> HostArray:
        """An output as a launch writes it."""
        return out

    def _is_own(self, x_shape: tuple[int, ...]) -> bool:
        """Whether inputs of this shape are hardly ever left to the general kernel."""
        return True

    def followed_by(self, activations: Any, x_shape: tuple[int, ...], *, adds_last: bool) -> Any:
        """The general kernel with more done to its result, for inputs that are its own; None for those computed here."""
        follow = getattr(self._general, "followed_by", None)
        return None if follow is None or self._is_own(x_shape) else follow(activations, x_shape, adds_last=adds_last)

    def compute(self, *inputs: Any) -> Any:
        """A new array (N, M, *spatial)."""
        self._check(inputs)
        x = inputs[X]
        if not self._takes(x):
            return self._compute_general(inputs)
        out = self._new_output(x)
        self._launch(x)(x, *self._constants(inputs), self._output(out))
        self._used = self.own_algorithm
        return out

    def _check(self, inputs: Sequence[Any]) -> None:
        """Refuse inputs that the operator does not allow: those beside X are not looked at again."""
        if self._input_rule is not None:
            self._input_rule.check(inputs)

    def _compute_general(self, inputs: Sequence[Any]) -> Any:
        """What the general kernel computes."""
        if self._weight is not None:
            inputs = [*inputs[:WEIGHT], self._aligned_weight, *inputs[WEIGHT + 1 :]]
        self._used = self._general
        return self._general.compute(*inputs)

    def _bind_general(self, inputs: Sequence[Slot], outputs: Sequence[Slot]) -> Callable[[], Any]:
        """What the general kernel makes of slots."""
        if self._weight is not None:
            inputs = [*inputs[:WEIGHT], FixedSlot(self._aligned_weight, is_constant=True), *inputs[WEIGHT + 1 :]]
        bound: Callable[[], Any] = self._general.bind(inputs, outputs)
        self._used = self._general
        return bound

    def bind(self, inputs: Sequence[Slot], outputs: Sequence[Slot]) -> Callable[[], Any]:
        """A call that reads the inputs' slots and writes into the output's array."""
        x, out = inputs[X], outputs[0]
        are_fixed = all(slot.is_fixed for slot in (*inputs, out))
        if are_fixed and self._takes(x.array) and self._is_written(out.array):
            arrays = [slot.array for slot in inputs]
            self._check(arrays)
            self._used = self.own_algorithm
            constants = self._constants(arrays)
            fixed: Callable[[], Any] = self._launch(x.array).bind_arrays(x.array, *constants, self._output(out.array))
            return fixed
        launch: Any = None
        other: Callable[[], Any] | None = self._bind_general(inputs, outputs) if are_fixed else None
        if other is not None:
            return other

        def call() -> None:
            nonlocal launch, other
            array, written = x.array, out.array
            if not self._takes(array) or not self._is_written(written):
                other = other or self._bind_general(inputs, outputs)
                other()
                return
            arrays = [slot.array for slot in inputs]
            self._check(arrays)
            launch = launch or self._launch(array)
            launch(array, *self._constants(arrays), self._output(written))
            self._used = self.own_algorithm

        return call

    def _constants(self, inputs: Sequence[Any]) -> tuple[HostArray, HostArray | None]:
        """The weight as it is read, made once, and the bias."""
        weight: Any = inputs[WEIGHT] if self._weight is None else self._weight
        bias = inputs[BIAS] if len(inputs) > BIAS else None
        if self._matrix is None or self._matrix[0] is not weight:
            self._matrix = (weight, np.require(self._arranged(weight), requirements=("C", "A")))
        return self._matrix[1], None if bias is None else np.ascontiguousarray(bias)
