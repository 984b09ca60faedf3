"""Convolutions along one axis with one filter per channel, as of sound: a compiled task over signals with channels last."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo
from ort_sdk.api.data_classes import dataclass
from ort_sdk.opset.nn.windows import WindowAttributes
from ort_sdk_cpu.jit.native_call import in_turn
from ort_sdk_cpu.jit.task import TaskCall
from ort_sdk_cpu.kernel.activation import Activation, ActivationKind
from ort_sdk_cpu.kernel.copy import CopyWriter
from ort_sdk_cpu.memory.workspace import Scratch
from ort_sdk_cpu.platform import libraries

from .conv_1d import ADDED, FLOAT, MAX_SIGNAL_BYTES, TEAM_PRODUCTS, WEIGHT, SignalConvKernel, is_channels_last
from .epilogue import node_activation

__all__ = ["DepthwiseSignalKernel", "with_filters"]

_KINDS = frozenset({ActivationKind.IDENTITY, ActivationKind.LEAKY_RELU})
_X, _FILTERS, _BIAS, _Y = range(4)


def with_filters(info: KernelInfo, make_usual: Callable[[], Any]) -> DepthwiseSignalKernel | None:
    """The kernel over the task; None if the node is no such convolution.

    Args:
        info: a Conv or FusedConv node.
        make_usual: makes the kernel that computes what is no signal.
    """
    weight = info.constants.get(WEIGHT)
    activation = node_activation(info)
    if weight is None or info.has_input(ADDED) or activation is None or activation.kind not in _KINDS:
        return None
    shape = tuple(weight.shape)
    if len(shape) != 3 or shape[1] != 1 or shape[0] != int(info.attribute("group", 1)) or shape[0] == 1:
        return None
    attributes = WindowAttributes.of(info)
    if attributes.auto_pad not in {"NOTSET", "VALID"} or not libraries.numba().is_usable:
        return None
    (begin,), (end,) = attributes.explicit_pads(1)
    (stride,), (dilation,) = attributes.per_axis("strides", 1, 1), attributes.per_axis("dilations", 1, 1)
    if min(begin, end) < 0:
        return None
    return DepthwiseSignalKernel(info, make_usual, Filters(shape[0], shape[2], stride, dilation, begin, end, activation))


@dataclass(frozen=True, slots=True)
class Filters:
    """One filter per channel, zeros before the signal and behind it, and what is done to results."""

    channels: int
    taps: int
    stride: int
    dilation: int
    begin: int
    end: int
    activation: Activation

    def count(self, length: int) -> int:
        """Windows of a signal."""
        return (self.begin + length + self.end - (self.taps - 1) * self.dilation - 1) // self.stride + 1

    def call(self, samples: int, length: int) -> TaskCall:
        """The task, but for its arrays."""
        count = self.count(length)
        is_team = samples * count * self.taps * self.channels >= TEAM_PRODUCTS
        pairs = ((1, length), (1, self.taps), (1, count), (1, self.stride), (1, self.dilation), (0, self.begin))
        # Threads share rows: the signal is one row, or one column.
        geometry = [size for pair in pairs for size in (reversed(pair) if is_team else pair)]
        activation = self.activation
        epilogue = (int(activation.kind), float(activation.alpha), float(activation.beta))
        arguments = (0, 0, 0, 0, samples, self.channels, *geometry, *epilogue)
        return TaskCall("depthwise", "depthwise", arguments, libraries.thread_count() if is_team else 1)


class DepthwiseSignalKernel(SignalConvKernel):
    """Y[n, c, t] = activation(bias[c] + sum over k of X[n, c, t * stride + k * dilation - begin] * W[c, 0, k]).

    Args:
        info: the node.
        make_usual: makes the kernel that computes what this does not.
        filters: of the node.
    """

    def __init__(self, info: KernelInfo, make_usual: Callable[[], Any], filters: Filters) -> None:
        super().__init__(info, make_usual, outputs=filters.channels, axis=0)
        self._filters = filters

    def count(self, length: int) -> int:
        """Windows of a signal."""
        return self._filters.count(length)

    def _takes(self, x: HostArray) -> bool:
        is_signal = x.dtype == FLOAT and x.ndim == 3 and x.shape[1] == self._filters.channels and x.size > 0
        return is_signal and self.count(x.shape[2]) > 0

    def _product(self, x: HostArray) -> _Filtered:
        return _Filtered(x.shape, self._filters, self._scratch)

    def _arranged(self, weight: HostArray) -> HostArray:
        return np.ascontiguousarray(weight.reshape(self._filters.channels, -1).T)


class _Filtered:
    """Signals of one shape. For one thread at a time."""

    def __init__(self, shape: tuple[int, ...], filters: Filters, scratch: Scratch) -> None:
        samples, channels, length = shape
        self._shape, self._scratch, self._call = (samples, length, channels), scratch, filters.call(samples, length)

    def __call__(self, x: HostArray, matrix: HostArray, bias: HostArray | None, rows: HostArray) -> None:
        """Write (N, windows, C)."""
        signal = x.transpose(0, 2, 1)
        if not is_channels_last(x):
            copied = self._scratch.array("signal", self._shape, FLOAT)
            np.copyto(copied, signal)
            signal = copied
        self._aim(signal, matrix, bias, rows)
        self._call.run()

    def fixed(self, x: HostArray, matrix: HostArray, bias: HostArray | None, rows: HostArray) -> Callable[[], Any]:
        """The call on arrays that stay the same; a short signal that lies otherwise has memory of its own."""
        if is_channels_last(x):
            self._aim(x, matrix, bias, rows)
            return self._call.kept(self, x, matrix, bias, rows)
        if x.nbytes > MAX_SIGNAL_BYTES:
            return functools.partial(self, x, matrix, bias, rows)
        signal = np.empty(self._shape, FLOAT)
        copy = CopyWriter(lambda: [(signal, x.transpose(0, 2, 1))]).fixed()
        self._aim(signal, matrix, bias, rows)
        return in_turn([copy, self._call.kept(self, signal, matrix, bias, rows)])

    def _aim(self, signal: HostArray, matrix: HostArray, bias: HostArray | None, rows: HostArray) -> None:
        for place, array in ((_X, signal), (_FILTERS, matrix), (_BIAS, bias), (_Y, rows)):
            self._call.point(place, array)
