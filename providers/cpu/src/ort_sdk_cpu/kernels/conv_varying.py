"""Convolutions of inputs whose shape is another in each run: by tasks that take sizes as arguments.

A primitive of oneDNN is made for one shape, which takes longer than most convolutions. Pointwise convolutions are products of
matrices, and those with one filter per channel have a task of their own; for all others there is nothing here.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ort_sdk.api import HostArray
from ort_sdk.opset.nn.windows import Windows
from ort_sdk_cpu import libraries
from ort_sdk_cpu.addresses import address_of
from ort_sdk_cpu.onednn.attributes import Eltwise
from ort_sdk_cpu.onednn.constants import Algorithm

from .bounds import clamp
from .compiled_product import Activation, ProductFunction
from .conv_geometry import ConvGeometry
from .scratch import Scratch

if TYPE_CHECKING:
    from ort_sdk_cpu.machine_code import TaskFunction

__all__ = ["VaryingConvolution", "varying_convolution"]

WORK_PER_THREAD = 1 << 17
"""Multiplications that are worth another thread."""
_KINDS = "q" * 19 + "f"
_FLOAT = np.dtype(np.float32)
_OF_PRODUCTS = {
    Algorithm.RELU: Activation.RELU,
    Algorithm.LOGISTIC: Activation.SIGMOID,
    Algorithm.TANH: Activation.TANH,
}

VaryingConvolution = Callable[[HostArray, "HostArray | None", "HostArray | None", HostArray], bool]
"""``convolve(x, bias, added, out)`` writes activation(Conv(x) + bias + added); False if it cannot for arrays like these."""


def varying_convolution(
    geometry: ConvGeometry, weight: HostArray, post_ops: Sequence[Eltwise], scratch: Scratch
) -> VaryingConvolution | None:
    """What convolves inputs of every shape; None if no task does.

    Args:
        geometry: of the node, which is no ConvTranspose.
        weight: (M, C / groups, *kernel).
        post_ops: what follows.
        scratch: working memory.
    """
    if geometry.transpose is not None or len(post_ops) > 1 or not libraries.numba().is_usable:
        return None
    post_op = post_ops[0] if post_ops else None
    convolve = _convolution(geometry, weight, post_op, scratch)
    if convolve is None or (post_op is not None and not convolve.includes(post_op) and post_op.algorithm not in _IN_PLACE):
        return None
    return _Varying(geometry, weight.shape[2:], post_op, convolve)


def _convolution(
    geometry: ConvGeometry, weight: HostArray, post_op: Eltwise | None, scratch: Scratch
) -> _Pointwise | _Depthwise | None:
    if geometry.groups == 1 and math.prod(weight.shape[2:]) == 1:
        return _Pointwise(weight, scratch, post_op)
    if weight.shape[1] == 1 and geometry.groups == weight.shape[0] and weight.ndim <= 4:
        return _Depthwise(weight, post_op)
    return None


def _clip(post_op: Eltwise, out: HostArray) -> None:
    clamp(out, _FLOAT.type(post_op.alpha), _FLOAT.type(post_op.beta), out)


def _hard_sigmoid(post_op: Eltwise, out: HostArray) -> None:
    np.multiply(out, _FLOAT.type(post_op.alpha), out)
    np.add(out, _FLOAT.type(post_op.beta), out)
    clamp(out, _FLOAT.type(0), _FLOAT.type(1), out)


_IN_PLACE: dict[Algorithm, Callable[[Eltwise, HostArray], None]] = {
    Algorithm.CLIP_V2: _clip,
    Algorithm.HARD_SIGMOID: _hard_sigmoid,
}


class _Varying:
    """A convolution and what follows it.

    Args:
        geometry: of the node.
        kernel: its size.
        post_op: what follows, if anything.
        convolve: the convolution.
    """

    def __init__(
        self, geometry: ConvGeometry, kernel: tuple[int, ...], post_op: Eltwise | None, convolve: _Pointwise | _Depthwise
    ) -> None:
        self._windows, self._kernel, self._convolve = geometry.windows, kernel, convolve
        self._post_op = None if post_op is None or convolve.includes(post_op) else post_op
        self._can_add = post_op is None or self._post_op is not None

    def __call__(self, x: HostArray, bias: HostArray | None, added: HostArray | None, out: HostArray) -> bool:
        """As ``VaryingConvolution``."""
        target = np.moveaxis(out, 1, -1)
        windows = self._windows.windows(x.shape[2:], self._kernel)
        if not target.flags.c_contiguous or not self._convolve.suits(windows) or not (added is None or self._can_add):
            return False
        self._convolve(np.ascontiguousarray(np.moveaxis(x, 1, -1)), bias, target, windows)
        if added is not None:
            np.add(target, np.moveaxis(added, 1, -1), target)
        if self._post_op is not None:
            _IN_PLACE[self._post_op.algorithm](self._post_op, target)
        return True


class _Pointwise:
    def __init__(self, weight: HostArray, scratch: Scratch, post_op: Eltwise | None) -> None:
        columns, inner = weight.shape[:2]
        self._weight = np.ascontiguousarray(weight.reshape(columns, inner))
        included = post_op if post_op is not None and self.includes(post_op) else None
        activation = Activation.NONE if included is None else _OF_PRODUCTS[included.algorithm]
        slope = 0.0 if included is None else included.alpha
        self._product = ProductFunction(inner, columns, scratch, is_transposed=True, activation=activation, slope=slope)

    def includes(self, post_op: Eltwise) -> bool:
        return post_op.algorithm in _OF_PRODUCTS

    def suits(self, windows: Windows) -> bool:
        return windows.is_pointwise

    def __call__(self, x: HostArray, bias: HostArray | None, out: HostArray, _windows: Windows) -> None:
        self._product(math.prod(x.shape[:-1]), x, self._weight, bias, out)


class _Depthwise:
    def __init__(self, weight: HostArray, post_op: Eltwise | None) -> None:
        self._filters = np.ascontiguousarray(weight.reshape(weight.shape[0], -1).T)
        is_included = post_op is not None and self.includes(post_op)
        self._epilogue = (int(is_included), float(post_op.alpha) if post_op is not None and is_included else 0.0)

    def includes(self, post_op: Eltwise) -> bool:
        return post_op.algorithm is Algorithm.RELU

    def suits(self, windows: Windows) -> bool:
        return min(*windows.pads_begin, 0) == 0

    def __call__(self, x: HostArray, bias: HostArray | None, out: HostArray, windows: Windows) -> None:
        addresses = (address_of(x), address_of(self._filters), 0 if bias is None else address_of(bias), address_of(out))
        work = out.size * math.prod(windows.kernel_shape)
        threads = max(1, min(libraries.thread_count(), work // WORK_PER_THREAD))
        _depthwise()(threads, *addresses, x.shape[0], x.shape[-1], *_sizes(windows), *self._epilogue)


@functools.cache
def _depthwise() -> TaskFunction:
    from ort_sdk_cpu.machine_code import task_function

    return task_function("depthwise", "depthwise", _KINDS)


def _sizes(windows: Windows) -> tuple[int, ...]:
    """Sizes, strides, dilations and padding, each for two axes: a single one is the second."""

    def both(sizes: tuple[int, ...], first: int) -> tuple[int, ...]:
        return (first, *sizes)[-2:]

    return (
        *both(windows.input_shape, 1),
        *both(windows.kernel_shape, 1),
        *both(windows.output_shape, 1),
        *both(windows.strides, 1),
        *both(windows.dilations, 1),
        *both(windows.pads_begin, 0),
    )
