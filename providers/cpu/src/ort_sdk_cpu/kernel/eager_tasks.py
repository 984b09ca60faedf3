"""Compiled tasks outside of programs: called on the arrays of a run, for shapes that no run had before.

An operator has an eager call or an eager writer. A family's module of eager calls has a maker for each of its operators: from a
node it makes ``call(*inputs)``, which returns the node's outputs, or ``NotImplemented`` for arrays that the task does not
support. Element types are the node's, so the call checks only what may differ between runs. The module is imported when a node of
the operator first meets such a shape. An eager writer is the writer of a program, made for the arrays of one call.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo, TensorElementType
from ort_sdk_cpu.memory.strides import memory_order
from ort_sdk_cpu.platform import libraries

from .eager import EAGER_MODULES, with_fallback
from .task_writer import MIN_ELEMENTS, are_floats, is_worth_a_task
from .writer import MakeWriter

if TYPE_CHECKING:
    from ort_sdk_cpu.jit.task import TaskFunction

__all__ = ["EagerCall", "EagerTask", "eager_call", "eager_function", "is_vector"]

EagerCall = Callable[..., Any]
EagerMaker = Callable[[KernelInfo, MakeWriter], EagerCall | None]

_FLOATS = frozenset({TensorElementType.FLOAT})
_MAKERS: dict[tuple[str, str], tuple[EagerMaker, Sequence[int]]] = {}
"""(domain, op_type) → its maker, and the inputs that need not be float32."""

OPERATORS = frozenset(
    {
        *(("", op_type) for op_type in ("Erf", "Gelu", "LayerNormalization", "RMSNormalization", "Sigmoid", "Softmax")),
        ("", "SimplifiedLayerNormalization"),
        *(("com.microsoft", op_type) for op_type in ("BiasGelu", "FastGelu", "Gelu", "SkipLayerNormalization")),
        ("com.microsoft", "SkipSimplifiedLayerNormalization"),
    }
)
"""Operators with eager writers whose outputs have the shape and type of the first input."""

UNARY = frozenset({("", "Erf"), ("", "Gelu"), ("", "Sigmoid"), ("com.microsoft", "Gelu")})
"""Those that do the same to each element of their only input, so that the output takes the input's memory order."""

QUANTIZED = {
    ("", "QuantizeLinear"): (0,),
    **dict.fromkeys((("com.microsoft", op_type) for op_type in ("QLinearAdd", "QLinearMul")), (0, 3)),
    **dict.fromkeys((("com.microsoft", op_type) for op_type in ("QLinearLeakyRelu", "QLinearSigmoid")), (0,)),
}
"""Element-wise operators with 8-bit outputs → indices of the inputs that have an element per element of the output."""

DYNAMIC_QUANTIZATION = ("", "DynamicQuantizeLinear")

MIN_QUANTIZED_ELEMENTS = 1 << 14
"""Elements from which on 8-bit outputs are worth an eager writer: to make one takes as long as NumPy with some thousands."""


def eager_call(*op_types: str, domain: str = "", integer_inputs: Sequence[int] = ()) -> Callable[[EagerMaker], EagerMaker]:
    """Decorator that declares the maker of operators' eager calls.

    Args:
        op_types: operators.
        domain: their domain.
        integer_inputs: indices of inputs that need not be float32, such as masks and lengths.
    """

    def declare(maker: EagerMaker) -> EagerMaker:
        for op_type in op_types:
            _MAKERS[domain, op_type] = maker, integer_inputs
        return maker

    return declare


def eager_function(
    info: KernelInfo, compute: Callable[..., Any], make_writer: MakeWriter
) -> tuple[Callable[..., Any], EagerCall | None]:
    """A node's function outside of programs: by a compiled task where it has one for the arrays of a call.

    Args:
        info: the node.
        compute: the shared set's function, for all other arrays.
        make_writer: makes the node's writer.

    Returns:
        The function, and the eager call that it tries first, if there is one.
    """
    function = _over_writer(info, compute, make_writer)
    call = _eager_call_of(info, make_writer)
    return (function if call is None else with_fallback(call, function)), call


def _eager_call_of(info: KernelInfo, make_writer: MakeWriter) -> EagerCall | None:
    """The node's eager call; None if it has none, or none for its element types."""
    key = (info.domain, info.op_type)
    module = EAGER_MODULES.get(key)
    if module is None or not libraries.compiled_kernels().is_usable:
        return None
    importlib.import_module(module)
    maker, integer_inputs = _MAKERS[key]
    return maker(info, make_writer) if _computed_types(info, integer_inputs) == _FLOATS else None


def _computed_types(info: KernelInfo, integer_inputs: Sequence[int]) -> AbstractSet[TensorElementType | None]:
    """Element types of the outputs, and of the inputs other than ``integer_inputs``."""
    if not integer_inputs:
        return info.element_types()
    inputs = [argument for index, argument in enumerate(info.inputs) if index not in integer_inputs]
    return {argument.element_type for argument in (*inputs, *info.outputs) if argument is not None}


class EagerTask:
    """A task that is loaded when it is first called.

    Args:
        module: as for ``TaskFunction``.
        name: as for ``TaskFunction``.
    """

    def __init__(self, module: str, name: str) -> None:
        self._names = (module, name)
        self._function: TaskFunction | None = None

    def __call__(self) -> TaskFunction:
        """The task's function."""
        if self._function is None:
            from ort_sdk_cpu.jit.task import task_function

            self._function = task_function(*self._names)
        return self._function

    def pays(self, size: int) -> bool:
        """Whether the task is worth loading for ``size`` elements, or need not be compiled."""
        return size >= MIN_ELEMENTS or (size > 0 and (self._function is not None or self._is_compiled))

    @functools.cached_property
    def _is_compiled(self) -> bool:
        return is_worth_a_task(MIN_ELEMENTS - 1, *self._names)


def is_vector(array: HostArray | None, width: int) -> bool:
    """Whether an optional array, if it is given, is a contiguous vector of ``width`` elements."""
    return array is None or (array.shape == (width,) and array.flags.c_contiguous)


def _over_writer(info: KernelInfo, compute: Callable[..., Any], make_writer: MakeWriter) -> Callable[..., Any]:
    """The function of an operator with an eager writer; ``compute`` for all other operators."""
    key = (info.domain, info.op_type)
    if key in QUANTIZED:
        return _quantized(info, compute, make_writer)
    if key == DYNAMIC_QUANTIZATION:
        return _dynamically_quantized(compute, make_writer)
    if key not in OPERATORS:
        return compute
    wanted = [info.wants_output(index) for index in range(len(info.outputs))]
    while wanted and not wanted[-1]:
        wanted.pop()
    run = _float_function(wanted, compute, make_writer)
    return _in_memory_order(run) if key in UNARY else run


def _float_function(wanted: Sequence[bool], compute: Callable[..., Any], make_writer: MakeWriter) -> Callable[..., Any]:
    """The function of an operator in ``OPERATORS``: by the writer where all arrays are float32, contiguous and large enough.

    Args:
        wanted: which outputs are wanted, up to the last that is.
        compute: the shared set's function.
        make_writer: makes the writer, anew in each call: a writer serves one thread.
    """

    def run(x: HostArray, *others: Any) -> Any:
        arrays = (x, *others)
        is_large = is_worth_a_task(x.size) and x.flags.c_contiguous
        if not wanted or not is_large or not are_floats(arrays) or not all(_fits(other, x) for other in others):
            return compute(*arrays)
        outputs = tuple(np.empty(x.shape, x.dtype) if is_wanted else None for is_wanted in wanted)
        make_writer(arrays, outputs)(*arrays, *outputs)  # type: ignore[arg-type]
        return outputs if len(outputs) > 1 else outputs[0]

    return run


def _in_memory_order(run: Callable[..., Any]) -> Callable[..., Any]:
    """A unary function on the input's axes in memory order, so that channels-last arrays are contiguous, too."""

    def call(x: HostArray) -> Any:
        if x.flags.c_contiguous:
            return run(x)
        order = memory_order(x)
        return run(x.transpose(order)).transpose(np.argsort(order))

    return call


def _quantized(info: KernelInfo, compute: Callable[..., Any], make_writer: MakeWriter) -> Callable[..., Any]:
    """The function of an operator in ``QUANTIZED``: the output takes the first input's memory order."""
    element_type, elementwise = info.output_element_type(0), QUANTIZED[info.domain, info.op_type]
    if element_type not in {TensorElementType.INT8, TensorElementType.UINT8}:
        return compute

    def run(*arrays: Any) -> Any:
        x = arrays[0]
        is_even = all(arrays[index].shape == x.shape for index in elementwise)
        if x.size < MIN_QUANTIZED_ELEMENTS or not is_even or not is_worth_a_task(x.size):
            return compute(*arrays)
        out = np.empty_like(x, element_type.numpy_dtype)
        make_writer(arrays, (out,))(*arrays, out)
        return out

    return run


def _dynamically_quantized(compute: Callable[..., Any], make_writer: MakeWriter) -> Callable[..., Any]:
    """The function of DynamicQuantizeLinear: the output takes the input's memory order."""

    def run(x: HostArray) -> Any:
        if x.size < MIN_QUANTIZED_ELEMENTS or x.dtype != np.float32 or not is_worth_a_task(x.size):
            return compute(x)
        outputs = (np.empty_like(x, np.uint8), np.empty((), np.float32), np.empty((), np.uint8))
        make_writer((x,), outputs)(x, *outputs)
        return outputs

    return run


def _fits(other: HostArray | None, x: HostArray) -> bool:
    """Whether a further input has the first one's shape, or that of its rows; other shapes are left to the shared set."""
    return other is None or other.shape in {x.shape, x.shape[-1:]}
