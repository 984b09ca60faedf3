"""What all kernels of Conv, FusedConv and ConvTranspose with channels last share, whatever computes them."""

from __future__ import annotations

import copy
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from ort_sdk.api import HostArray, KernelInfo, RuntimeException
from ort_sdk.api.data_classes import dataclass
from ort_sdk_cpu.elementwise.activation import InPlace
from ort_sdk_cpu.kernel.activation import IDENTITY, Activation
from ort_sdk_cpu.kernel.layouts.channels_last import ArraysCall, ChannelsLastKernel
from ort_sdk_cpu.kernel.layouts.memory import is_channels_last

from . import select
from .epilogue import node_activation
from .geometry import ConvGeometry
from .problem import ConvAlgorithm, ConvProblem

if TYPE_CHECKING:
    from .im2row.dynamic_shapes import DynamicConvolution

__all__ = ["WEIGHT", "ConvKernel", "NoFallback", "Variant"]

WEIGHT = 1
GUESSED_SIZE = 56
"""Length of a spatial axis that is not known when the weight is packed: the layout hardly depends on it."""
_FLOAT = np.dtype(np.float32)


@dataclass(frozen=True, slots=True)
class Variant:
    """All that a call is made for, beside the node's attributes."""

    x_shape: tuple[int, ...]
    weight_shape: tuple[int, ...]
    has_bias: bool
    has_added: bool


class ConvKernel(ChannelsLastKernel):
    """activation(Conv(X, W, B) + Z), or ConvTranspose: (N, C, *spatial) in, (N, M, *spatial) out, NHWC in memory.

    Subclasses say how: a call for arrays that stay (``_call``), and what is packed.

    Args:
        info: the node.
        fallback: computes what this does not: small problems, and shapes that do not fit together.
        activate: the node's activation in NumPy, for those that no epilogue has.
    """

    own_algorithm: ClassVar[ConvAlgorithm]
    """What it computes with, unless shapes vary or it leaves a run to its fallback."""
    _algorithm_of_fallback = ConvAlgorithm.OPSET
    packs_in_first_run = True
    is_depthwise = False
    """Whether it has one filter per channel, and may be computed with what is around it."""
    _is_fused = False
    """Whether nothing else can compute what it does."""

    def __init__(self, info: KernelInfo, fallback: Any, activate: InPlace | None) -> None:
        super().__init__(info, fallback)
        problem = ConvProblem.of(info)
        self.geometry: ConvGeometry = problem.geometry
        """Its windows."""
        activation = node_activation(info)
        self._activations: tuple[Activation, ...] = () if activation is None or activation == IDENTITY else (activation,)
        self._adds_last = False
        """Whether one more input is added behind all else."""
        self._activate = activate if activation is None else None
        self.has_finish = self._activate is not None
        self._has_bias, self._has_added = problem.has_bias, problem.has_added
        self._x_shape, self._weight_shape = problem.x_shape, problem.weight_shape
        self._has_constant_weight = problem.is_weight_constant
        self._expected = self._expected_variant()
        self._dynamic: tuple[DynamicConvolution | None, ...] = ()
        """What convolves inputs of every shape, once that was asked for."""

    # Packing

    def _expected_variant(self) -> Variant | None:
        """The convolution to pack for: the node's, what is not known of X being guessed; None if it is small or not known."""
        shape = self._weight_shape
        if shape is None or not all(shape) or not 3 <= len(shape) <= 5:
            return None
        known = self._x_shape if self._x_shape is not None and len(self._x_shape) == len(shape) else (None,) * len(shape)
        guesses = [1, 0, *(max(GUESSED_SIZE, size) for size in shape[2:])]
        sizes = [guess if size is None else size for size, guess in zip(known, guesses, strict=True)]
        sizes[1] = self.geometry.input_channels(shape)
        if 0 in sizes or not select.is_worth_it(self.own_algorithm, self.geometry, tuple(sizes), shape):
            return None
        return Variant(tuple(sizes), shape, self._has_bias, self._has_added)

    # Fusing

    def followed_by(self, activations: tuple[Activation, ...], x_shape: tuple[int, ...], *, adds_last: bool) -> Self | None:
        """The kernel with more done to its result, for programs where X has this shape; None if that is not fast.

        An epilogue of ConvTranspose is slow.

        Args:
            activations: functions of each element, in order.
            x_shape: of X; Z has the output's.
            adds_last: whether an input behind X, W, B and Z, of the output's shape, is added at last.
        """
        shape = self._weight_shape
        if self.has_finish or not self._has_constant_weight or shape is None or len(x_shape) != len(shape):
            return None
        if self.geometry.transpose is not None or 0 in x_shape:
            return None
        if not self.is_packed and self.work(x_shape, shape) < select.MINIMUM_FUSED_WORK:
            return None
        made = copy.copy(self)
        made._fallback, made._is_fused = NoFallback(), True
        made._activations = (*self._activations, *activations)
        made._adds_last = adds_last
        made._calls = threading.local()
        made._dynamic = ()
        return made if made._can_follow(Variant(x_shape, shape, self._has_bias, self._has_added)) else None

    def _can_follow(self, variant: Variant) -> bool:
        """Whether the activations can be part of the convolution."""
        raise NotImplementedError

    # Computing

    def work(self, x_shape: tuple[int, ...], weight_shape: tuple[int, ...]) -> int:
        """Multiplications and additions."""
        return select.work_of(self.geometry, x_shape, weight_shape)

    def output_shape(self, inputs: Sequence[Any]) -> tuple[int, ...] | None:
        """(N, M, *spatial), if it is computed here. Shapes that do not fit together are the fallback's to refuse."""
        x, shape = inputs[0], self._weight_shape if self.is_packed else inputs[WEIGHT].shape
        if shape is None or x.ndim != len(shape) or not 3 <= x.ndim <= 5 or 0 in (*x.shape, *shape):
            return None
        channels, groups = self.geometry.input_channels(shape), self.geometry.groups
        if x.shape[1] != channels or channels % groups or self.geometry.output_channels(shape) % groups:
            return None
        is_wanted = self._is_fused or self.is_packed or is_channels_last(x)
        if not is_wanted and not select.is_worth_it(self.own_algorithm, self.geometry, x.shape, shape):
            return None
        return self.geometry.output_shape(x.shape, shape)

    def operands(self, inputs: Sequence[Any]) -> list[HostArray]:
        """X, W unless it is constant, B and Z if they are there."""
        weights = [] if self._has_constant_weight else [inputs[WEIGHT]]
        return [inputs[0], *weights, *(value for value in inputs[WEIGHT + 1 :] if value is not None)]

    def finish(self, inputs: Sequence[Any], out: HostArray) -> None:
        """Apply an activation that no epilogue has."""
        if self._activate is not None:
            self._activate(out, out)

    def make_call(self, inputs: Sequence[Any], operands: Sequence[HostArray], out: HostArray) -> ArraysCall | None:
        """The call on arrays of these layouts; packed weights belong to it."""
        has_bias, has_added = (len(inputs) > index and inputs[index] is not None for index in (2, 3))
        shape = self._weight_shape if self.is_packed else tuple(inputs[WEIGHT].shape)
        if shape is None or (has_added and inputs[3].shape != out.shape):
            return None
        call = self._call(Variant(tuple(inputs[0].shape), shape, has_bias, has_added), inputs, (*operands, out))
        if call is not None:
            self._used = getattr(call, "algorithm", self.own_algorithm)
        return call

    def _call(self, variant: Variant, inputs: Sequence[Any], arrays: Sequence[HostArray]) -> ArraysCall | None:
        """The call for operands and output like these arrays; None if there is none that is fast."""
        raise NotImplementedError

    def write_varying(self, inputs: Sequence[Any], out: HostArray) -> bool:
        """A task that takes sizes as arguments, for the convolutions that have one."""
        last = inputs[-1] if self._adds_last else None
        if not self._has_constant_weight or inputs[0].dtype != _FLOAT or (last is not None and last.shape != out.shape):
            return False
        if not self._dynamic:
            from .im2row.dynamic_shapes import dynamic_convolution

            weight = self.plain_inputs(inputs)[WEIGHT]
            self._dynamic = (dynamic_convolution(self.geometry, weight, self._activations, self.workspace),)
        convolve = self._dynamic[0]
        bias, added = (*inputs[WEIGHT + 1 :], None, None)[:2]
        if added is not None and added.shape != out.shape:
            return False
        if convolve is None or not convolve(inputs[0], bias, added, out):
            return False
        self._used = convolve.algorithm
        if last is not None:
            np.add(out, last, out)
        return True


class NoFallback:
    """Stands for a fallback where there is none, since it was seen that the kernel computes the node."""

    def compute(self, *inputs: Any) -> Any:
        """Refuse."""
        shapes = [None if value is None else value.shape for value in inputs]
        raise RuntimeException(
            f"a convolution fused with what follows it got inputs {shapes}, which are not those it was made for"
        )
