"""Convolutions along one axis, as of sound and text: products with windows read where they lie, overlapping."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

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
    TensorElementType,
)
from ort_sdk.api.data_classes import dataclass
from ort_sdk.opset.definition import input_rule
from ort_sdk.opset.nn.windows import WindowAttributes
from ort_sdk_cpu.gemm.plan import EPILOGUE_KINDS, GemmCall
from ort_sdk_cpu.gemm.select import GemmProblem
from ort_sdk_cpu.jit.native_call import in_turn
from ort_sdk_cpu.kernel.activation import IDENTITY, Activation
from ort_sdk_cpu.kernel.copy import CopyWriter
from ort_sdk_cpu.kernel.layouts.any_layout import FixedSlot
from ort_sdk_cpu.memory.workspace import Scratch, scratch_of
from ort_sdk_cpu.platform import libraries

from .epilogue import node_activation

__all__ = ["ProductConvKernel", "SignalConvKernel", "is_channels_last", "with_windows"]

MIN_INNER = 16
"""Elements of a window below which a product has too little to do for each result."""
PANEL = 32
"""Channels that a product makes at a time."""
MOST_UNUSED, MOST_UNUSED_COVERED = 1 / 4, 1
"""For each channel of the output, those made that are none: more where windows cover an axis, which others take step by step."""
TEAM_PRODUCTS = 1 << 21
"""Multiplications from which on a team is worth it. Around such a convolution there is often nothing to do for a second thread,
which sleeps by then and takes half as long to wake."""
MAX_SAMPLES, MAX_SIGNAL_BYTES = 32, 1 << 16
"""Signals for which a bound call is made of calls that need no Python, in memory of its own."""
SIGNAL_RANK = 3
X, WEIGHT, BIAS, ADDED = range(4)
FLOAT = np.dtype(np.float32)


def with_windows(info: KernelInfo, make_usual: Callable[[], Any]) -> ProductConvKernel | None:
    """The kernel over products; None if the node is no such convolution.

    Args:
        info: a Conv or FusedConv node.
        make_usual: makes the kernel that computes inputs with other axes longer than 1.
    """
    weight = info.constants.get(WEIGHT)
    activation = node_activation(info)
    if weight is None or info.has_input(ADDED) or activation is None or activation.kind not in EPILOGUE_KINDS:
        return None
    outputs, channels, *spatial = weight.shape
    rank = len(spatial)
    covered = _covered_axis(info, channels, spatial)
    along = [axis for axis, size in enumerate(spatial) if size > 1 and axis != covered]
    channels *= 1 if covered is None else spatial[covered]
    is_plain = int(info.attribute("group", 1)) == 1 and info.attribute("auto_pad", "NOTSET") in {"NOTSET", "VALID", ""}
    if rank not in {1, 2} or len(along) != 1 or not is_plain or not libraries.numba().is_usable:
        return None
    attributes, (axis,) = WindowAttributes.of(info), along
    begins, ends = attributes.explicit_pads(rank)
    others_are_plain = all(begins[other] == ends[other] == 0 for other in range(rank) if other != axis)
    windows = _Windows(spatial[axis], attributes.per_axis("strides", rank, 1)[axis], begins[axis], ends[axis])
    unused = -outputs % PANEL / outputs
    fits = outputs == channels == 1 or unused <= (MOST_UNUSED if covered is None else MOST_UNUSED_COVERED)
    dilations = attributes.per_axis("dilations", rank, 1)
    if not others_are_plain or dilations[axis] != 1 or (covered is not None and dilations[covered] != 1) or not fits:
        return None
    if windows.taps * channels < MIN_INNER or min(windows.begin, windows.end) < 0:
        return None
    return ProductConvKernel(info, make_usual, _Sizes(channels, outputs, axis, windows, covered), activation)


def _covered_axis(info: KernelInfo, channels: int, spatial: Sequence[int]) -> int | None:
    """The axis of pictures of one channel that a window covers, as of the vectors of words: windows lie along the other."""
    if channels != 1 or len(spatial) != 2 or min(spatial) == 1:
        return None
    x = info.inputs[X]
    shape = x.shape or () if x is not None else ()
    return next((axis for axis in (1, 0) if len(shape) == 4 and shape[2 + axis] == spatial[axis]), None)


@dataclass(frozen=True, slots=True)
class _Windows:
    """Elements of a window, elements from one to the next, zeros before the signal and behind it."""

    taps: int
    stride: int
    begin: int
    end: int

    def count(self, length: int) -> int:
        """Windows of a signal."""
        return (self.begin + length + self.end - self.taps) // self.stride + 1


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Channels of X and Y, which spatial axis the windows lie along, and the windows."""

    channels: int
    """Those of X, or, if there is but one, the size of the axis that the windows cover."""
    outputs: int
    axis: int
    windows: _Windows
    covered: int | None = None
    """That axis."""

    def are_of(self, shape: tuple[int, ...]) -> bool:
        """Whether an X of this shape extends along the windows, and the channels, only."""
        channels, spatial = shape[1], shape[2:]
        found = channels if self.covered is None else spatial[self.covered]
        return found == self.channels and math.prod(shape[1:]) == found * spatial[self.axis]


class SignalConvKernel(OpKernel):
    """A convolution along one axis whose result has channels last.

    A constant weight of signals is read where it lies, aligned or not: what is kept is its arrangement.

    Args:
        info: the node.
        make_usual: makes the kernel that computes what this does not.
        outputs: channels of the result.
        axis: spatial axis the windows lie along.
    """

    binds_any_layout = True
    deterministic = True
    shape_inputs = ()
    packs_in_first_run = True
    _covered: int | None = None
    """Spatial axis that each window covers."""

    def __init__(self, info: KernelInfo, make_usual: Callable[[], Any], outputs: int, axis: int) -> None:
        self._make_usual, self._outputs, self._axis, self._scratch = make_usual, outputs, axis, scratch_of(info)
        self._matrix: tuple[HostArray, HostArray] | None = None
        self._weight_shape = _signal_weight_shape(info.constants.get(WEIGHT))
        self._weight: HostArray | None = None
        self._input_rule = input_rule(info)

    @functools.cached_property
    def _kernel(self) -> Any:
        """The usual kernel, made when it is first needed: most nodes compute signals only."""
        return self._make_usual()

    def packing_identity(self, input_index: int) -> str | None:
        """The weight stays as it is."""
        return TENSOR_BYTES if input_index == WEIGHT and self._weight_shape is not None else None

    def prepack(self, tensor: Tensor, input_index: int, allocator: Any) -> PrePackedWeights | NotPacked:
        """The weight's bytes as they lie."""
        return NOT_PACKED if self.packing_identity(input_index) is None else PrePackedWeights((tensor.packed(),))

    def use_prepacked(self, weights: PrePackedWeights, input_index: int) -> None:
        """Read the weight from the buffer."""
        self._weight = weights.buffers[0].view(FLOAT).reshape(self._weight_shape)

    @functools.cached_property
    def _aligned_weight(self) -> HostArray:
        """The weight as other kernels read it."""
        return np.require(self._weight, requirements=("C", "A"))

    def count(self, length: int) -> int:
        """Windows of a signal."""
        raise NotImplementedError

    def _takes(self, x: HostArray) -> bool:
        """Whether an input is computed here."""
        raise NotImplementedError

    def _product(self, x: HostArray) -> Any:
        """What writes a result of inputs of this shape: a call of X, the arranged weight, the bias and rows, with ``fixed``."""
        raise NotImplementedError

    def _arranged(self, weight: HostArray) -> HostArray:
        """The weight as the product reads it."""
        raise NotImplementedError

    def followed_by(self, post_ops: Any, x_shape: tuple[int, ...], *, adds_last: bool) -> Any:
        """The other kernel with more done to its result, for inputs that are its own; None if it cannot, as for signals."""
        follow = getattr(self._kernel, "followed_by", None)
        return None if follow is None or self._is_signal(x_shape) else follow(post_ops, x_shape, adds_last=adds_last)

    def compute(self, *inputs: Any) -> Any:
        """A new array (N, M, *spatial), channels last."""
        self._check(inputs)
        x, axis = inputs[X], 2 + self._axis
        if not self._takes(x):
            return self._compute_usual(inputs)
        shape = [x.shape[0], *x.shape[2:], self._outputs]
        shape[axis - 1] = self.count(x.shape[axis])
        if self._covered is not None:
            shape[self._covered + 1] = 1
        out = np.moveaxis(np.empty(shape, FLOAT), -1, 1)
        self._product(x)(x, *self._constants(inputs), _rows(out))
        return out

    def _check(self, inputs: Sequence[Any]) -> None:
        """Refuse inputs that the operator does not allow: those beside X are not looked at again."""
        if self._input_rule is not None:
            self._input_rule.check(inputs)

    def _compute_usual(self, inputs: Sequence[Any]) -> Any:
        """What the usual kernel computes."""
        if self._weight is None:
            return self._kernel.compute(*inputs)
        return self._kernel.compute(*inputs[:WEIGHT], self._aligned_weight, *inputs[WEIGHT + 1 :])

    def _bind_usual(self, inputs: Sequence[Slot], outputs: Sequence[Slot]) -> Callable[[], Any]:
        """What the usual kernel makes of slots."""
        if self._weight is not None:
            inputs = [*inputs[:WEIGHT], FixedSlot(self._aligned_weight, is_constant=True), *inputs[WEIGHT + 1 :]]
        bound: Callable[[], Any] = self._kernel.bind(inputs, outputs)
        return bound

    def bind(self, inputs: Sequence[Slot], outputs: Sequence[Slot]) -> Callable[[], Any]:
        """A call that reads the inputs' slots and writes into the output's array."""
        x, out = inputs[X], outputs[0]
        are_fixed = all(slot.is_fixed for slot in (*inputs, out))
        if are_fixed and self._takes(x.array) and self._is_written(out.array):
            arrays = [slot.array for slot in inputs]
            self._check(arrays)
            constants = self._constants(arrays)
            fixed: Callable[[], Any] = self._product(x.array).fixed(x.array, *constants, self._places(out.array))
            return fixed
        product: Any = None
        other: Callable[[], Any] | None = self._bind_usual(inputs, outputs) if are_fixed else None
        if other is not None:
            return other

        def call() -> None:
            nonlocal product, other
            array, written = x.array, out.array
            if not self._takes(array) or not self._is_written(written):
                other = other or self._bind_usual(inputs, outputs)
                other()
                return
            arrays = [slot.array for slot in inputs]
            self._check(arrays)
            product = product or self._product(array)
            product(array, *self._constants(arrays), self._places(written))

        return call

    def _is_written(self, out: HostArray) -> bool:
        """Whether an output lies so that results are written to it."""
        return is_channels_last(out)

    def _places(self, out: HostArray) -> HostArray:
        """An output as the product writes it."""
        return _rows(out)

    def _is_signal(self, shape: tuple[int, ...]) -> bool:
        """Whether X extends along the windows only."""
        return math.prod(shape[2:]) == shape[2 + self._axis]

    def _constants(self, inputs: Sequence[Any]) -> tuple[HostArray, HostArray | None]:
        """The weight as it is read, made once, and the bias."""
        weight: Any = inputs[WEIGHT] if self._weight is None else self._weight
        bias = inputs[BIAS] if len(inputs) > BIAS else None
        if self._matrix is None or self._matrix[0] is not weight:
            self._matrix = (weight, np.require(self._arranged(weight), requirements=("C", "A")))
        return self._matrix[1], None if bias is None else np.ascontiguousarray(bias)


def _signal_weight_shape(tensor: Tensor | None) -> tuple[int, ...] | None:
    """Shape of a weight that is read where it lies; None for those of pictures, which other kernels read with what follows."""
    if tensor is None or len(tensor.shape) != SIGNAL_RANK or tensor.element_type is not TensorElementType.FLOAT:
        return None
    return tensor.shape


class ProductConvKernel(SignalConvKernel):
    """Y[n, m, t] = activation(bias[m] + sum over c, k of X[n, c, t * stride + k - begin] * W[m, c, k]).

    With channels last, windows are the rows of a matrix whose rows overlap, and so are results.

    Args:
        info: the node.
        make_usual: makes the kernel that computes what this does not.
        sizes: of the node.
        activation: what follows the GEMM.
    """

    def __init__(self, info: KernelInfo, make_usual: Callable[[], Any], sizes: _Sizes, activation: Activation) -> None:
        super().__init__(info, make_usual, sizes.outputs, sizes.axis)
        self._sizes, self._activation, self._covered = sizes, activation, sizes.covered

    def count(self, length: int) -> int:
        """Windows of a signal."""
        return self._sizes.windows.count(length)

    def _takes(self, x: HostArray) -> bool:
        if x.dtype != FLOAT or x.ndim not in {3, 4} or not x.size or not self._is_signal(x.shape):
            return False
        if x.ndim == 3 and x.shape[1] > 1 and not is_channels_last(x):
            return False  # The other kernel turns such a signal faster; it is slow where a further axis makes it a picture.
        return self.count(x.shape[2 + self._axis]) > 0

    def _is_signal(self, shape: tuple[int, ...]) -> bool:
        return self._sizes.are_of(shape)

    def _product(self, x: HostArray) -> _WindowProduct:
        return _WindowProduct(x.shape[2 + self._axis], self._sizes, self._activation, self._scratch)

    def _arranged(self, weight: HostArray) -> HostArray:
        """(taps * C, M)."""
        sizes = self._sizes
        by_tap = _by_step(weight, (sizes.outputs,), sizes).transpose(1, 2, 0)
        return np.ascontiguousarray(by_tap).reshape(-1, self._sizes.outputs)


class _WindowProduct:
    """Products of the windows of each sample. For one thread at a time."""

    def __init__(self, length: int, sizes: _Sizes, activation: Activation, scratch: Scratch) -> None:
        self._length, self._channels, self._windows, self._scratch = length, sizes.channels, sizes.windows, scratch
        self._sizes = sizes
        self._outputs, self._activation = sizes.outputs, activation
        self._is_single = sizes.outputs == 1 and activation == IDENTITY
        self._product = self._made()

    def _made(self) -> GemmCall:
        count, inner = self._windows.count(self._length), self._windows.taps * self._channels
        step = self._windows.stride * self._channels * FLOAT.itemsize
        most_threads = 1 if count * inner * self._outputs < TEAM_PRODUCTS else None
        if self._is_single:
            sizes = GemmProblem(1, inner, count, trans_b=True)
            return GemmCall(sizes, self._scratch, ldb=step, most_threads=most_threads)
        return GemmCall(
            GemmProblem(count, inner, self._outputs),
            self._scratch,
            activation=self._activation,
            lda=step,
            most_threads=most_threads,
        )

    def __call__(self, x: HostArray, matrix: HostArray, bias: HostArray | None, rows: HostArray) -> None:
        """Write (N, windows, M); one channel is one row of dot products, whose addend would be another for each of them."""
        for sample, out in zip(x, rows, strict=True):
            signal = self._channels_last(sample)
            if self._is_single:
                self._product(matrix, signal, None, out)
            else:
                self._product(signal, matrix, bias, out)
        if self._is_single and bias is not None:
            np.add(rows, bias, rows)

    def fixed(self, x: HostArray, matrix: HostArray, bias: HostArray | None, rows: HostArray) -> Callable[[], Any]:
        """The call on arrays that stay the same; short signals have memory of their own for the zeros around them."""
        shape = (self._windows.begin + self._length + self._windows.end, self._channels)
        is_short = len(x) <= MAX_SAMPLES and math.prod(shape) * FLOAT.itemsize <= MAX_SIGNAL_BYTES
        if not is_short or (self._is_single and bias is not None):
            return functools.partial(self, x, matrix, bias, rows)
        padded = np.zeros(shape, FLOAT)
        pairs = zip(x, rows, strict=True)
        return in_turn([call for sample, out in pairs for call in self._steps(sample, matrix, bias, out, padded)])

    def _steps(
        self, sample: HostArray, matrix: HostArray, bias: HostArray | None, out: HostArray, padded: HostArray
    ) -> Iterator[Callable[[], Any]]:
        """The calls for one sample."""
        signal, read = self._signal(sample), padded
        if self._is_ready(signal):
            read = signal
        else:
            inner = padded[self._windows.begin : self._windows.begin + self._length]
            yield CopyWriter(lambda: [(inner, signal)]).fixed()
        operands = (matrix, read, None) if self._is_single else (read, matrix, bias)
        yield self._made().fixed(*operands, out)

    def _signal(self, sample: HostArray) -> HostArray:
        """(C, *spatial) as (length, C), where it lies."""
        return _by_step(sample, (), self._sizes)

    def _is_ready(self, signal: HostArray) -> bool:
        """Whether windows can be read where the signal lies."""
        return not self._windows.begin and not self._windows.end and signal.flags.c_contiguous

    def _channels_last(self, sample: HostArray) -> HostArray:
        """(C, *spatial) as (length, C), with zeros around it."""
        begin, end = self._windows.begin, self._windows.end
        signal = self._signal(sample)
        if self._is_ready(signal):
            return signal
        padded = self._scratch.array("signal", (begin + self._length + end, self._channels), FLOAT)
        padded[:begin] = padded[begin + self._length :] = 0
        padded[begin : begin + self._length] = signal
        return padded


def _by_step(array: HostArray, leading: tuple[int, ...], sizes: _Sizes) -> HostArray:
    """(*leading, C, *spatial) as (*leading, steps along the windows, C): a view, as all other axes have one element."""
    if sizes.covered is not None and sizes.covered > sizes.axis:
        return array.reshape(*leading, -1, sizes.channels)
    return array.reshape(*leading, sizes.channels, -1).swapaxes(-1, -2)


def is_channels_last(array: HostArray) -> bool:
    """Whether (N, C, *spatial) lies as (N, *spatial, C), without gaps."""
    return bool(np.moveaxis(array, 1, -1).flags.c_contiguous)


def _rows(out: HostArray) -> HostArray:
    """(N, M, *spatial) as (N, windows, M)."""
    return np.moveaxis(out, 1, -1).reshape(out.shape[0], -1, out.shape[1])
