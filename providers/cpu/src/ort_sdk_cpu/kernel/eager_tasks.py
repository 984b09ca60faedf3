"""Tasks called straight on a run's arrays, with as little between as can be: for shapes that were never seen before.

A maker gives, for a node, ``call(*inputs)`` that returns the node's outputs, or ``NotImplemented`` for arrays the task is
not for. Types are the node's, so only what may change from run to run is looked at.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo, TensorElementType
from ort_sdk_cpu.memory.result_pool import SMALLEST_BYTES, ResultMemory
from ort_sdk_cpu.platform import libraries

from .bound import MakeWriter
from .element_operation import clip_bounds
from .task_writer import MIN_ELEMENTS, is_worth_a_task, threads_for

if TYPE_CHECKING:
    from ort_sdk_cpu.jit.task import TaskFunction

__all__ = ["DirectCall", "direct_call"]

DirectCall = Callable[..., Any]

FLOAT = np.dtype(np.float32)
_FLOATS = frozenset({TensorElementType.FLOAT})
FIRST_BROADCASTING = 7
"""Version of Add and its like from which on they broadcast as NumPy does."""
ACTIVATION_WORK = 4
"""Elements of a few instructions each that one of an activation is worth."""


def direct_call(info: KernelInfo, make_writer: MakeWriter) -> DirectCall | None:
    """The node's task as a call on a run's arrays; None if it has none, or not for these types and outputs.

    Args:
        info: the node.
        make_writer: makes its writer.
    """
    key = (info.domain, info.op_type)
    maker = _MAKERS.get(key)
    if maker is None and key not in _RECURRENT:
        return None
    if _types_beside_integers(info, _INTEGER_INPUTS.get(key, ())) != _FLOATS or not libraries.numba().is_usable:
        return None
    if maker is not None:
        return maker(info)
    from ort_sdk_cpu.rnn.eager import direct_recurrent

    return direct_recurrent(info, make_writer)


def _types_beside_integers(info: KernelInfo, integers: Sequence[int]) -> AbstractSet[TensorElementType | None]:
    """Element types of outputs, and of inputs but for some."""
    if not integers:
        return info.element_types()
    inputs = [argument for index, argument in enumerate(info.inputs) if index not in integers]
    return {argument.element_type for argument in (*inputs, *info.outputs) if argument is not None}


class _Task:
    """A task, which is loaded when it is first wanted.

    Args:
        module: see ``TaskFunction``, like the next two.
        name: see there.
        kinds: see there.
    """

    def __init__(self, module: str, name: str, kinds: str) -> None:
        self._names, self._kinds = (module, name), kinds
        self._function: TaskFunction | None = None

    def __call__(self) -> TaskFunction:
        if self._function is None:
            from ort_sdk_cpu.jit.task import task_function

            self._function = task_function(*self._names, self._kinds)
        return self._function

    def pays(self, size: int) -> bool:
        """Whether it is worth loading for so many elements, or there already."""
        return size >= MIN_ELEMENTS or (size > 0 and (self._function is not None or self._is_kept))

    @functools.cached_property
    def _is_kept(self) -> bool:
        return is_worth_a_task(MIN_ELEMENTS - 1, *self._names)


def _is_vector(array: HostArray | None, width: int) -> bool:
    return array is None or (array.shape == (width,) and array.flags.c_contiguous)


def _softmax(info: KernelInfo) -> DirectCall | None:
    axis = int(info.attribute("axis", -1 if info.since_version >= 13 else 1))
    is_flattened = info.since_version < 13
    task, results = _Task("rows", "softmax", "qqqq"), ResultMemory()

    def call(x: HostArray) -> Any:
        rank, size = x.ndim, x.size
        if not task.pays(size) or not rank or axis not in {-1, rank - 1} or not x.flags.c_contiguous:
            return NotImplemented
        out, width = results.empty(x.shape), x.shape[-1]
        task()(threads_for(size), x, out, size // width, width)
        return out

    return None if is_flattened else call


def _normalization(info: KernelInfo) -> DirectCall | None:
    """Along the last axis, without statistics."""
    if any(info.wants_output(index) for index in range(1, len(info.outputs))):
        return None
    axis, epsilon = int(info.attribute("axis", -1)), float(info.attribute("epsilon", 1e-5))
    name = "layer_normalization" if info.op_type == "LayerNormalization" else "rms_normalization"
    task, results = _Task("rows", name, "q" * 9 + "f"), ResultMemory()

    def call(x: HostArray, scale: HostArray, shift: HostArray | None = None) -> Any:
        size, width = x.size, x.shape[-1] if x.ndim else 0
        if not task.pays(size) or axis not in {-1, x.ndim - 1} or not x.flags.c_contiguous:
            return NotImplemented
        if not _is_vector(scale, width) or not _is_vector(shift, width):
            return NotImplemented
        out = results.empty(x.shape)
        arrays = (x, None, None, None, out, scale, shift)
        task()(threads_for(size), *arrays, size // width, width, epsilon)
        return out

    return call


def _skip_normalization(info: KernelInfo) -> DirectCall | None:
    """The same of input + skip + bias, which may be an output, too."""
    wanted = [index for index in range(len(info.outputs)) if info.wants_output(index)]
    if not wanted or wanted[0] or set(wanted) - {0, 3}:
        return None
    epsilon, has_shift = float(info.attribute("epsilon", 1e-12)), info.op_type == "SkipLayerNormalization"
    task = _Task("rows", "layer_normalization" if has_shift else "rms_normalization", "q" * 9 + "f")
    gives_total, results = len(wanted) > 1, ResultMemory()

    def call(x: HostArray, skip: HostArray, scale: HostArray, *others: Any) -> Any:
        shift, bias = (*others, None, None)[:2] if has_shift else (None, *others, None)[:2]
        size, width = x.size, x.shape[-1] if x.ndim else 0
        if not task.pays(size) or skip.shape != x.shape or not (x.flags.c_contiguous and skip.flags.c_contiguous):
            return NotImplemented
        if not (_is_vector(scale, width) and _is_vector(shift, width) and _is_vector(bias, width)):
            return NotImplemented
        out = results.empty(x.shape)
        total = results.empty(x.shape) if gives_total else out
        task()(threads_for(size), x, skip, bias, total, out, scale, shift, size // width, width, epsilon)
        return (out, None, None, total) if gives_total else out

    return call


def _activation(name: str) -> Callable[[KernelInfo], DirectCall | None]:
    """A function of each element, after adding a vector to each row if there is a second input."""
    plain, biased = _Task("elementwise", name, "qqq"), _Task("elementwise", f"bias_{name}", "qqqqq")

    def make(_info: KernelInfo) -> DirectCall:
        results = ResultMemory()

        def call(x: HostArray, bias: HostArray | None = None) -> Any:
            size = x.size
            if not (plain if bias is None else biased).pays(size):
                return NotImplemented
            # Lies as the input does, if that has no gaps.
            out, threads = results.like(x), threads_for(ACTIVATION_WORK * size)
            if bias is None and out.strides == x.strides:
                plain()(threads, x, out, size)
            elif bias is not None and x.ndim and x.flags.c_contiguous and _is_vector(bias, x.shape[-1]):
                biased()(threads, x, bias, out, size // bias.size, bias.size)
            else:
                return NotImplemented
            return out

        return call

    return make


def _binary(function: np.ufunc) -> Callable[[KernelInfo], DirectCall | None]:
    """NumPy's function of two arrays, in memory that is used again, where the result is as large as the first."""

    def make(info: KernelInfo) -> DirectCall | None:
        results = ResultMemory()

        def call(x: HostArray, y: HostArray) -> Any:
            if x.nbytes < SMALLEST_BYTES or not (y.shape == x.shape or (y.size == 1 and y.ndim <= x.ndim)):
                return NotImplemented
            return function(x, y, results.like(x))

        return call if info.since_version >= FIRST_BROADCASTING else None

    return make


def _gelu(info: KernelInfo) -> DirectCall | None:
    return _activation("fast_gelu" if info.attribute("approximate", "none") == "tanh" else "gelu")(info)


_SCALARS = ((), (1,))


def _clip(info: KernelInfo) -> DirectCall | None:
    """Bounded by numbers, which are inputs or, of old versions, attributes."""
    task, results, given = _Task("elementwise", "clip", "qqqff"), ResultMemory(), clip_bounds(info)
    least, largest = given.get("min", -math.inf), given.get("max", math.inf)

    def call(x: HostArray, low: HostArray | None = None, high: HostArray | None = None) -> Any:
        size, out = x.size, results.like(x)
        if (
            not task.pays(size)
            or out.strides != x.strides
            or any(bound is not None and bound.shape not in _SCALARS for bound in (low, high))
        ):
            return NotImplemented
        bounds = (least if low is None else low.item(), largest if high is None else high.item())
        if math.isnan(bounds[0]) or math.isnan(bounds[1]):
            return NotImplemented
        task()(threads_for(size), x, out, size, *bounds)
        return out

    return call


def _silu(info: KernelInfo) -> DirectCall | None:
    """X * sigmoid(alpha * x)."""
    from ort_sdk_cpu.elementwise.activation import silu_slope

    alpha, task, results = silu_slope(info), _Task("elementwise", "silu", "qqqf"), ResultMemory()

    def call(x: HostArray) -> Any:
        size, out = x.size, results.like(x)
        if not task.pays(size) or out.strides != x.strides:
            return NotImplemented
        task()(threads_for(ACTIVATION_WORK * size), x, out, size, alpha)
        return out

    return call


def _attention(info: KernelInfo) -> DirectCall | None:
    from ort_sdk_cpu.attention.flash_eager import direct_attention

    return direct_attention(info)


_MICROSOFT = "com.microsoft"

_RECURRENT = {("", "GRU"), ("", "LSTM"), ("", "RNN")}

_INTEGER_INPUTS = {(_MICROSOFT, "MultiHeadAttention"): (4, 8, 9), **dict.fromkeys(_RECURRENT, (4,))}
"""Inputs that need not be of float32: masks, lengths and beams."""

_MAKERS: dict[tuple[str, str], Callable[[KernelInfo], DirectCall | None]] = {
    ("", "Add"): _binary(np.add),
    ("", "Clip"): _clip,
    ("", "Div"): _binary(np.divide),
    ("", "Erf"): _activation("erf"),
    ("", "Gelu"): _gelu,
    ("", "HardSwish"): _activation("hard_swish"),
    ("", "LayerNormalization"): _normalization,
    ("", "Mul"): _binary(np.multiply),
    ("", "RMSNormalization"): _normalization,
    ("", "Sigmoid"): _activation("sigmoid"),
    ("", "SimplifiedLayerNormalization"): _normalization,
    ("", "Softmax"): _softmax,
    ("", "Sub"): _binary(np.subtract),
    ("", "Swish"): _silu,
    (_MICROSOFT, "BiasGelu"): _activation("gelu"),
    (_MICROSOFT, "FastGelu"): _activation("fast_gelu"),
    (_MICROSOFT, "Gelu"): _activation("gelu"),
    (_MICROSOFT, "MultiHeadAttention"): _attention,
    (_MICROSOFT, "QuickGelu"): _silu,
    (_MICROSOFT, "SkipLayerNormalization"): _skip_normalization,
    (_MICROSOFT, "SkipSimplifiedLayerNormalization"): _skip_normalization,
}
"""(domain, operator) → makes the call of a node."""
