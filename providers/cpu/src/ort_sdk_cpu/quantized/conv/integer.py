"""ConvInteger with constant weights by oneDNN: sums in int32, channels last."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ort_sdk.api import HostArray, InvalidArgument, InvalidGraph, KernelInfo, RuntimeException
from ort_sdk_cpu.conv.geometry import ConvGeometry
from ort_sdk_cpu.kernel.layouts.channels_last import Call, ChannelsLastKernel
from ort_sdk_cpu.kernel.layouts.memory import channels_last, contiguous, is_channels_last, layout_of
from ort_sdk_cpu.kernel.onednn import PrimitiveCall
from ort_sdk_cpu.onednn.attributes import PrimitiveAttributes
from ort_sdk_cpu.onednn.constants import Argument, zero_points_of
from ort_sdk_cpu.onednn.execution import reordered
from ort_sdk_cpu.onednn.library import is_available
from ort_sdk_cpu.onednn.memory_descriptor import MemoryDescriptor, any_layout
from ort_sdk_cpu.onednn.post_ops import Sum
from ort_sdk_cpu.onednn.primitive import Primitive, convolution
from ort_sdk_cpu.platform import libraries
from ort_sdk_cpu.platform.cpu_features import has_vnni
from ort_sdk_cpu.quantized.parameters import EXACT_FLOAT

from .select import ConvIntegerProblem, QuantizedConvAlgorithm, select_conv_integer

if TYPE_CHECKING:
    from .centered_weight import CenteredWeight
    from .dequantized import DequantizationEpilogue, DequantizedConvolution
    from .dynamic_shapes import DynamicConvInteger

__all__ = ["ConvIntegerKernel", "kernel_for"]

X, W, X_ZERO_POINT, W_ZERO_POINT = range(4)
MAX_RANK = 5
LARGEST_DIFFERENCE = 255
"""Of an element of X and its zero point."""
LARGEST_BYTE = 127
LOW_BITS = 4
"""Of the second of two weights whose sums are too large together."""
_BYTES = (np.dtype(np.uint8), np.dtype(np.int8))
_INT8, _INT32 = np.dtype(np.int8), np.dtype(np.int32)


def kernel_for(info: KernelInfo, kernel: Any) -> ConvIntegerKernel | None:
    """The kernel over oneDNN; None if there is none for the node.

    W and its zero point must be constant.

    Args:
        info: the node.
        kernel: computes what oneDNN does not.
    """
    tensor = info.constants.get(W)
    is_known = not info.has_input(W_ZERO_POINT) or info.constant_input(W_ZERO_POINT) is not None
    if not is_available() or not has_vnni() or tensor is None or not is_known:
        return None
    parts = _split(info) if 3 <= len(tensor.shape) <= MAX_RANK and all(tensor.shape) else None
    if parts is None:
        return None
    try:
        return ConvIntegerKernel(info, kernel, parts)
    except (InvalidArgument, InvalidGraph):
        return None  # The other kernel says so when it is run, as it does for shapes that are known only then.


class _SplitWeight(NamedTuple):
    """Weights of int8 that make up W less its zero point."""

    weights: list[HostArray]
    is_shifted: bool
    """Whether W is ``first * 16 + second``, and not their sum."""


def _split(info: KernelInfo) -> _SplitWeight | None:
    """As few as are needed for exact sums; None if W is of another type, or sums are too large in any case."""
    centered = _centered(info)
    if centered is None:
        return None
    first = np.clip(centered, -LARGEST_BYTE - 1, LARGEST_BYTE)
    addends = [first, centered - first] if (first != centered).any() else [first]
    high_low = [centered >> LOW_BITS, centered & ((1 << LOW_BITS) - 1)]
    if addends[-1].max() <= LARGEST_BYTE and _are_sums_exact(addends):
        return _SplitWeight(_bytes(addends), False)
    return _SplitWeight(_bytes(high_low), True) if all(_are_sums_exact([each]) for each in high_low) else None


def _bytes(parts: Sequence[HostArray]) -> list[HostArray]:
    return [np.ascontiguousarray(part, _INT8) for part in parts]


def _centered_weight(info: KernelInfo) -> HostArray:
    weight = _centered(info)
    assert weight is not None  # noqa: S101 - it was seen to be constant
    return weight


def _packable_weight(info: KernelInfo) -> CenteredWeight:
    from .centered_weight import CenteredWeight

    weight, zero_points = info.constant_input(W), info.constant_input(W_ZERO_POINT)
    assert weight is not None  # noqa: S101 - it was seen to be constant
    return CenteredWeight.of(weight, np.zeros(1, weight.dtype) if zero_points is None else zero_points.reshape(-1))


def _centered(info: KernelInfo) -> HostArray | None:
    """The constant weight less its zero point, int16; None if it is of another type."""
    weight, zero_point = info.constant_input(W), info.constant_input(W_ZERO_POINT)
    if weight is None or weight.dtype not in _BYTES:
        return None
    shift = np.zeros(1, np.int16) if zero_point is None else zero_point.reshape(-1).astype(np.int16)
    if shift.size not in {1, weight.shape[0]}:
        return None
    centered: HostArray = weight - shift.reshape(-1, *(1 for _ in weight.shape[1:]))
    return centered


def _are_sums_exact(parts: Sequence[HostArray]) -> bool:
    """Whether float32 holds all sums: oneDNN has them in it on their way out."""
    magnitude = sum(np.abs(part.astype(np.int64)) for part in parts)
    largest = np.sum(magnitude, axis=tuple(range(1, parts[0].ndim))).max()
    return bool(LARGEST_DIFFERENCE * largest <= EXACT_FLOAT)


class _AccumulatingCall:
    """A call, and one that adds to its result.

    Args:
        first: writes the output, in the layout of both.
        second: adds to it.
    """

    def __init__(self, first: PrimitiveCall, second: PrimitiveCall) -> None:
        self._first, self._second = first, second

    def run(self, *arrays: HostArray) -> None:
        """Compute; the arrays are not kept."""
        self._first.run(*arrays)
        self._second.run(*arrays)

    def bind_arrays(self, *arrays: HostArray) -> Call:
        """The call on arrays that stay the same; it keeps them."""
        first, second = self._first.bind_arrays(*arrays), self._second.bind_arrays(*arrays)

        def call() -> None:
            first()
            second()

        return call


class _ShiftedCall:
    """A call whose result is shifted, and one whose result is added to that.

    Args:
        first: writes the output.
        second: writes an array of the same layout.
    """

    def __init__(self, first: PrimitiveCall, second: PrimitiveCall) -> None:
        self._first, self._second = first, second

    def run(self, *arrays: HostArray) -> None:
        """Compute; the arrays are not kept."""
        out = arrays[-1]
        low = np.empty_like(out)
        self._first.run(*arrays)
        self._second.run(*arrays[:-1], low)
        np.left_shift(out, LOW_BITS, out)
        np.add(out, low, out)

    def bind_arrays(self, *arrays: HostArray) -> Call:
        """The call on arrays that stay the same; it keeps them."""
        return functools.partial(self.run, *arrays)


class ConvIntegerKernel(ChannelsLastKernel):
    """Convolution of X less its zero point with W less its own, in int32.

    Args:
        info: the node.
        kernel: computes what oneDNN does not.
        split: the weight; it is split again when it is packed.
    """

    _algorithm_of_fallback = QuantizedConvAlgorithm.NUMPY
    _used: QuantizedConvAlgorithm | None = None

    def __init__(self, info: KernelInfo, kernel: Any, split: _SplitWeight) -> None:
        super().__init__(info, kernel)
        self._parts, self._is_shifted = len(split.weights), split.is_shifted
        self._info, self._geometry = info, ConvGeometry.of(info)
        self._weight_shape = tuple(info.constants[W].shape)
        self._packed: dict[Any, HostArray] = {}
        self._dynamic: DynamicConvInteger | None = None

    def output_dtype(self, _inputs: Sequence[Any]) -> np.dtype[Any]:
        """Int32."""
        return _INT32

    def output_shape(self, inputs: Sequence[Any]) -> tuple[int, ...] | None:
        """(N, M, *spatial), if oneDNN computes it. Shapes that do not fit together are the other kernel's to refuse."""
        x = inputs[X]
        zero_point = inputs[X_ZERO_POINT] if len(inputs) > X_ZERO_POINT else None
        if zero_point is not None and zero_point.size != 1:
            return None
        shapes = (self._geometry, self._weight_shape, x.shape)
        problem = ConvIntegerProblem(*shapes, x.dtype, is_channels_last(x), is_split=self._parts > 1)
        self._used = select_conv_integer(problem)
        is_own = self._used is not QuantizedConvAlgorithm.NUMPY
        return self._geometry.output_shape(x.shape, self._weight_shape) if is_own else None

    def operands(self, inputs: Sequence[Any]) -> list[HostArray]:
        """X, and its zero point as int32, (1,)."""
        zero_point = inputs[X_ZERO_POINT] if len(inputs) > X_ZERO_POINT else None
        return [inputs[X], np.zeros(1, _INT32) if zero_point is None else zero_point.reshape(1).astype(_INT32)]

    def completed(self, run: Call, inputs: Sequence[Any], operands: Sequence[HostArray], _out: HostArray) -> Call:
        """The call with the zero point converted first: it has another type for oneDNN."""
        return _with_zero_point(run, inputs[X_ZERO_POINT], operands[1]) if len(inputs) > X_ZERO_POINT else run

    def dequantized_convolution(self, x_shape: Sequence[int], epilogue: DequantizationEpilogue) -> DequantizedConvolution | None:
        """What computes the node and an epilogue, for an X of this shape; None if there is nothing."""
        made = self._dequantized(epilogue)
        return made if made is not None and made.is_for(x_shape) else None

    def _dequantized(self, epilogue: DequantizationEpilogue) -> DequantizedConvolution | None:
        from .dequantized import DequantizedConvolution

        if self._geometry.groups > 1:
            return None
        weight = functools.partial(_packable_weight, self._info)  # no method of this object, which keeps the convolution
        return DequantizedConvolution(self._geometry, self._weight_shape, weight, epilogue, self.workspace)

    def write_varying(self, inputs: Sequence[Any], out: HostArray) -> bool:
        """Tasks that take sizes as arguments."""
        if self._is_shifted or not libraries.compiled_kernels().is_usable:
            return False
        if self._dynamic is None:
            from .dequantized import DequantizationEpilogue
            from .dynamic_shapes import DynamicConvInteger

            direct = self._dequantized(DequantizationEpilogue(np.ones(1, np.float32)))
            weight = functools.partial(_centered_weight, self._info)
            self._dynamic = DynamicConvInteger(self._geometry, direct, weight, self.workspace)
        x, zero_point = inputs[X], inputs[X_ZERO_POINT] if len(inputs) > X_ZERO_POINT else None
        if not self._dynamic(x, np.zeros(1, x.dtype) if zero_point is None else zero_point.reshape(1), out):
            return False
        self._used = QuantizedConvAlgorithm.FLOAT32
        return True

    def make_call(self, _inputs: Sequence[Any], operands: Sequence[HostArray], out: HostArray) -> Any:
        """The primitive, or two, on arrays of these layouts."""
        first = self._call(0, operands[0], out)
        if first is None or self._parts == 1:
            return first
        second = self._call(1, operands[0], out)
        if self._is_shifted:
            return None if second is None else _ShiftedCall(first, second)
        is_in_place = layout_of(out) == channels_last(out.shape, out.dtype)
        return _AccumulatingCall(first, second) if second is not None and is_in_place else None

    def _call(self, part: int, x: HostArray, out: HostArray) -> PrimitiveCall | None:
        primitive = self._primitive(x, out, adds=part > 0 and not self._is_shifted)
        if primitive is None:
            return None
        one = contiguous((1,), _INT32)
        arguments = [
            (int(Argument.SRC), layout_of(x) or contiguous(x.shape, x.dtype), channels_last(x.shape, x.dtype)),
            (zero_points_of(Argument.SRC), one, one),
            (int(Argument.DST), layout_of(out) or contiguous(out.shape, out.dtype), channels_last(out.shape, out.dtype)),
        ]
        layout = primitive.layout(Argument.WEIGHTS)
        constants = [(int(Argument.WEIGHTS), layout, self._weight_in(layout, part))]
        return PrimitiveCall(primitive, arguments, constants, self.workspace)

    def _weight_in(self, layout: MemoryDescriptor, part: int) -> HostArray:
        packed = self._packed.get((layout, part))
        if packed is None:
            parts, source = _split(self._info), self._geometry.weight_layout(self._weight_shape, _INT8)
            made = None if parts is None else reordered(parts.weights[part], source, layout)
            if made is None:
                raise RuntimeException(f"oneDNN has no fast copy of a weight of shape {self._weight_shape} to {layout.key}")
            packed = self._packed[layout, part] = made
        return packed

    def _primitive(self, x: HostArray, out: HostArray, *, adds: bool) -> Primitive | None:
        geometry, shape = self._geometry, self._weight_shape
        padding = geometry.padding(x.shape, shape)
        if min(*padding.begins, *padding.ends) < 0:
            return None
        return convolution(
            channels_last(x.shape, x.dtype),
            any_layout(geometry.weight_dims(shape), _INT8),
            None,
            channels_last(out.shape, out.dtype),
            padding.strides,
            padding.dilations,
            padding.begins,
            padding.ends,
            PrimitiveAttributes((Sum(),) if adds else (), zero_points=((Argument.SRC, 0),)),
        )


def _with_zero_point(run: Callable[[], Any], given: HostArray | None, wanted: HostArray) -> Call:
    """The call, with the zero point converted first."""
    if given is None:
        return run
    source = given.reshape(1)

    def call() -> None:
        wanted[0] = source[0]
        run()

    return call
