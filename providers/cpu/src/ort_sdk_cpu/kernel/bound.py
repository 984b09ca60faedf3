"""Kernels of the shared set that also write into preallocated outputs.

A *writer* does a node's work into given arrays: ``writer(*inputs, *outputs)``, None where an optional input is absent. A
ufunc is one as it is. A writer is made per program, from arrays of the shapes it will be called with.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo, OpKernel, Slot, TensorElementType
from ort_sdk.api.data_classes import dataclass
from ort_sdk.opset.input_shapes import InputRule
from ort_sdk.opset.numpy_namespace import NumpyNamespace
from ort_sdk_cpu.platform.cpu_features import InstructionSet, instruction_set

from .eager import calling, calling_with, directly
from .element_operation import ElementOperation, operation_of

__all__ = [
    "BINDERS",
    "NAMING",
    "BindableKernel",
    "Binder",
    "Binding",
    "DirectlyBindable",
    "FirstMaker",
    "MakeWriter",
    "Maker",
    "Writer",
    "bindable",
    "bound_kernel",
    "copied",
    "first_made_by",
    "has_half_weight",
    "made_by",
    "written",
]

Writer = Callable[..., Any]
"""Writes outputs: ``writer(*inputs, *outputs)``. Never writes inputs; their strides may differ from call to call.

A writer may have ``fixed(*inputs, *outputs)``: a call without arguments on arrays that stay the same, or None; ``know(inputs)``,
called before that: which inputs' contents stay the same, too; and ``on_slots(slots)``: a call on slots, some of which get other
arrays before each call.
"""

MakeWriter = Callable[[Sequence[Any], Sequence[HostArray]], Writer]
"""``make(inputs, outputs)`` makes a writer for arrays of these shapes and types; an absent input is None.

The writer keeps no array but constants of the node: all others may be others at the next call.
"""

Binder = Callable[[KernelInfo, Any], "MakeWriter | None"]
"""``binder(info, kernel)``: how a node's kernel of the shared set is bound; None if it is not."""


@dataclass(frozen=True, slots=True)
class Binding:
    """How an operator is bound."""

    binder: Binder
    any_type: bool
    has_weight: bool
    reads_halves: bool
    reads_strings: bool
    any_layout: bool
    elementwise: bool


_MOVED = frozenset(TensorElementType) - {TensorElementType.UNDEFINED, TensorElementType.STRING}
_COMPUTED = frozenset(element_type for element_type in _MOVED if NumpyNamespace().compute_type(element_type) is element_type)
_TEXTS = frozenset({TensorElementType.STRING})

BINDERS: dict[tuple[str, str], Binding] = {}
"""(domain, op_type) → how it is bound; filled by importing the modules."""


def bindable(
    *op_types: str,
    domain: str = "",
    any_type: bool = False,
    has_weight: bool = False,
    reads_halves: bool = False,
    reads_strings: bool = False,
    any_layout: bool = False,
    elementwise: bool = False,
) -> Callable[[Binder], Binder]:
    """Decorator that declares the binder of operators.

    Args:
        op_types: operators.
        domain: their domain.
        any_type: elements are moved, not computed on, so that types NumPy computes in wider ones are bound, too.
        has_weight: input 1 is a weight, to be packed if it is constant.
        reads_halves: that may be a constant of float16 where all else is float32.
        reads_strings: inputs may be strings.
        any_layout: the writer writes into an output whose axes lie in memory in any order.
        elementwise: so it does, and it does the same to every element: it may get all arrays with their axes permuted.
    """

    def declare(binder: Binder) -> Binder:
        for op_type in op_types:
            layouts = (any_layout or elementwise, elementwise)
            BINDERS[domain, op_type] = Binding(binder, any_type, has_weight, reads_halves, reads_strings, *layouts)
        return binder

    return declare


def copied(compute: Callable[..., Any]) -> Writer:
    """A writer that copies what a function gives."""

    def write(*arrays: Any) -> None:
        np.copyto(arrays[-1], compute(*arrays[:-1]))

    return write


def written(compute: Callable[..., Any]) -> Writer:
    """A writer of those outputs that are asked for, of a function of one input that gives several."""

    def write(x: HostArray, *outputs: HostArray | None) -> None:
        found = compute(x)
        for value, out in zip(found if isinstance(found, tuple) else (found,), outputs, strict=False):
            if out is not None:
                np.copyto(out, value)

    return write


Maker = Callable[[KernelInfo, Any, MakeWriter], "BindableKernel | None"]
"""``maker(info, kernel, make_writer)``: a kernel that does more with the node; None for the usual one."""

MAKERS: dict[tuple[str, str], Maker] = {}
"""(domain, op_type) → what may make a kernel of its own; filled by importing the modules."""


def made_by(*op_types: str, domain: str = "") -> Callable[[Maker], Maker]:
    """Decorator that declares what may make the kernels of bindable operators over another library."""

    def declare(maker: Maker) -> Maker:
        MAKERS.update(dict.fromkeys(((domain, op_type) for op_type in op_types), maker))
        return maker

    return declare


FirstMaker = Callable[[KernelInfo, Callable[[], Any]], Any]
"""``maker(info, make_usual)``: a kernel of a node that seldom needs the usual one, made by ``make_usual``; None: take that."""

FIRST_MAKERS: dict[tuple[str, str], FirstMaker] = {}
"""(domain, op_type) → what is asked before a kernel of the shared set is made; filled by importing the modules."""


def first_made_by(*op_types: str, domain: str = "") -> Callable[[FirstMaker], FirstMaker]:
    """Decorator that declares what may make the kernels of bindable operators whose types NumPy computes in by itself."""

    def declare(maker: FirstMaker) -> FirstMaker:
        FIRST_MAKERS.update(dict.fromkeys(((domain, op_type) for op_type in op_types), maker))
        return maker

    return declare


NAMING: dict[tuple[str, str], Callable[[KernelInfo, Any], Callable[..., Any] | None]] = {}
"""(domain, op_type) of operators that may give strings, for which nothing is bound → from a node and the shared set's function,
a call on a run's arrays; filled by importing the modules."""


class BindableKernel(OpKernel):
    """A kernel of the shared set, with ``bind``.

    Args:
        kernel: what computes step by step, and what is known of it.
        make_writer: makes the writer of a program.
    """

    def __init__(self, kernel: Any, make_writer: MakeWriter) -> None:
        self._compute = kernel.compute
        self.deterministic = kernel.deterministic
        self.shape_inputs = kernel.shape_inputs
        self.contents_from_shapes = kernel.contents_from_shapes
        rule = self.input_rule = getattr(kernel, "input_rule", None)
        self._make_writer = make_writer if rule is None else _checked(make_writer, rule)
        self._choosing: tuple[Any, ...] = (make_writer,)
        """What may tell an ``algorithm``, the one that it chose last: of a run, and of a program."""
        self._element_operation: ElementOperation | None = None
        self._told: tuple[KernelInfo, Callable[..., Any]] | None = None
        """The node, and the shared set's function, until somebody asks what they make together."""

    def describe(self, info: KernelInfo) -> None:
        """Take what the node tells of the kernel: when that is asked for, as most sessions ask for none of it before they run.

        With constants at once: they would be kept until then.
        """
        self._told = info, self._compute
        if info.constants:
            self._look_at_node()

    def _look_at_node(self) -> None:
        told = self._told
        if told is None:
            return
        info, compute = told
        eager_writers, eager_tasks = _direct_modules()
        self._element_operation = operation_of(info)
        compute = eager_writers.through_writer(info, compute, self._make_writer)
        call = eager_tasks.eager_call_of(info, self._make_writer)
        if call is not None:
            self._choosing = (getattr(call, "__self__", call), *self._choosing)
        self._compute = compute if call is None else directly(call, compute)
        self._told = None

    @property
    def algorithm(self) -> str | None:
        """Name of the algorithm used last by a run without a program, or else of a program's; None if nobody chose one."""
        return next(filter(None, (getattr(each, "algorithm", None) for each in self._choosing)), None)

    @property
    def element_operation(self) -> ElementOperation | None:
        """The node as a part of a chain of element-wise ones, if it can be one."""
        self._look_at_node()
        return self._element_operation

    @property
    def compute(self) -> Callable[..., Any]:
        """The shared set's function, without a call around it, or a faster one."""
        return self._compute if self._told is None else self._compute_first

    def _compute_first(self, *inputs: Any) -> Any:
        self._look_at_node()
        return self._compute(*inputs)

    def make_writer(self, inputs: Sequence[Any], outputs: Sequence[HostArray]) -> Writer:
        """The writer of a program. A method to override: a method of its own in an attribute would make a kernel hold itself."""
        return self._make_writer(inputs, outputs)

    def bind(self, inputs: Sequence[Slot], outputs: Sequence[Slot]) -> Callable[[], Any]:
        """A call that reads the inputs' slots and writes into the outputs' arrays."""
        slots, count = (*inputs, *_asked_for(outputs)), len(inputs)
        if not all(slot.is_fixed for slot in slots):
            return _slot_call(self.make_writer, slots, count)
        arrays = [slot.array for slot in slots]
        writer = self.make_writer(arrays[:count], arrays[count:])
        if isinstance(writer, np.ufunc):
            return functools.partial(writer, *arrays[:count], out=arrays[count])
        know = getattr(writer, "know", None)
        if know is not None:
            know([index for index, slot in enumerate(inputs) if getattr(slot, "is_constant", False)])
        fixed = getattr(writer, "fixed", None)
        call = None if fixed is None else fixed(*arrays)
        return functools.partial(writer, *arrays) if call is None else call


def _checked(make_writer: MakeWriter, rule: InputRule) -> MakeWriter:
    """Makes writers for arrays of shapes that the operator allows: a writer has to be right for no others."""

    def make(inputs: Sequence[Any], outputs: Sequence[HostArray]) -> Writer:
        rule.check(inputs)
        return make_writer(inputs, outputs)

    return make


def _checked_call(call: Callable[..., Any], rule: InputRule) -> Callable[..., Any]:
    """A call on arrays of shapes that the operator allows."""

    def run(*inputs: Any) -> Any:
        rule.check(inputs)
        return call(*inputs)

    return run


class DirectlyBindable(BindableKernel):
    """One whose function is a call on a run's arrays.

    Args:
        kernel: see ``BindableKernel``, like the next.
        make_writer: see there.
        call: gives the outputs, or ``NotImplemented`` for arrays it is not for.
    """

    def __init__(self, kernel: Any, make_writer: MakeWriter, call: Callable[..., Any]) -> None:
        super().__init__(kernel, make_writer)
        self.call = call if self.input_rule is None else _checked_call(call, self.input_rule)
        self._compute = directly(self.call, self._compute)


@functools.cache
def _direct_modules() -> tuple[ModuleType, ModuleType]:
    """Two modules that import this one: to look them up for every kernel takes as long as all else."""
    from . import eager_tasks, eager_writers

    return eager_writers, eager_tasks


def _asked_for(outputs: Sequence[Slot]) -> Sequence[Slot]:
    """The outputs up to the last that is asked for: others are fixed to None."""
    count = len(outputs)
    while outputs[count - 1].is_fixed and outputs[count - 1].array is None:
        count -= 1
    return outputs[:count]


def _slot_call(make_writer: MakeWriter, slots: Sequence[Slot], count: int) -> Callable[[], None]:
    """Reads the slots, ``count`` inputs first, at each call; the writer is made at the first, when all shapes can be seen."""
    writer: Writer | None = None
    on_slots: Callable[[], Any] | None = None

    def call() -> None:
        nonlocal writer, on_slots
        if on_slots is not None:
            on_slots()
            return
        arrays = [slot.array for slot in slots]
        if writer is None:
            writer = make_writer(arrays[:count], arrays[count:])
            if isinstance(writer, np.ufunc):
                writer = functools.partial(_apply, writer)
            elif hasattr(writer, "on_slots"):
                on_slots = writer.on_slots(slots)
        writer(*arrays)

    return call


def _apply(function: np.ufunc, *arrays: HostArray) -> None:
    function(*arrays[:-1], out=arrays[-1])


STORING_KEYS = ("session.prepack_cache_dir", "session.save_external_prepacked_constant_initializers")
"""Config entries of sessions that keep packed weights in files."""


WITH_PRODUCTS = frozenset(
    {
        *("Conv", "ConvTranspose", "Einsum", "FusedConv", "FusedGemm", "FusedMatMul", "FusedMatMulActivation", "GRU", "Gemm"),
        *("LSTM", "MatMul", "MultiHeadAttention", "RNN", "TransposeMatMul"),
    }
)
"""Operators that NumPy's BLAS may compute."""


CONVOLUTIONS = frozenset({"Conv", "ConvInteger", "FusedConv", "QLinearConv"})
"""Operators whose pads may be negative, which cuts the input: only the shared set does that."""


def bound_kernel(create: Callable[[KernelInfo], Any], info: KernelInfo) -> Any:
    """The shared set's kernel for a node, with ``bind`` if the operator has a binder and NumPy computes in the node's types."""
    made = _bound_kernel(create, info)
    if info.op_type in WITH_PRODUCTS and info.execution_provider is not None:
        info.execution_provider.uses_blas = True
    if isinstance(made, BindableKernel):
        made.describe(info)
    return made


def _bound_kernel(create: Callable[[KernelInfo], Any], info: KernelInfo) -> Any:
    key = (info.domain, info.op_type)
    if info.op_type in CONVOLUTIONS and min(info.attribute("pads", None) or (0,)) < 0:
        return create(info)
    binding = BINDERS[key]
    make_usual = functools.partial(_usual_kernel, create, info, binding)
    if _is_computed_directly(info, binding):
        first = FIRST_MAKERS.get(key)
        made = None if first is None else first(info, make_usual)
        return make_usual() if made is None else made
    if binding.reads_halves and has_half_weight(info):
        return make_usual()
    kernel, naming = create(info), NAMING.get(key)
    return kernel if naming is None else calling_with(kernel, naming(info, kernel.compute))


def _usual_kernel(create: Callable[[KernelInfo], Any], info: KernelInfo, binding: Binding) -> Any:
    """The shared set's kernel, bound."""
    kernel = create(info)
    make_writer = binding.binder(info, kernel.compute)
    if make_writer is None:
        return calling(kernel, info)
    maker = MAKERS.get((info.domain, info.op_type))
    made = None if maker is None else maker(info, kernel, make_writer)
    if made is not None:
        return made
    if binding.any_layout:
        return _any_layout_kernel()(kernel, make_writer, is_elementwise=binding.elementwise)
    if not binding.has_weight or not stores_packed_weights(info):
        return BindableKernel(kernel, make_writer)
    from .packed import PackableKernel

    return PackableKernel(kernel, make_writer, info)


@functools.cache
def _any_layout_kernel() -> type[Any]:
    from .layouts.any_layout import AnyLayoutKernel

    return AnyLayoutKernel


def stores_packed_weights(info: KernelInfo) -> bool:
    """Whether the node's session keeps packed weights in files."""
    return any(info.session_config.get(key, "0") not in {"", "0"} for key in STORING_KEYS)


def has_half_weight(info: KernelInfo) -> bool:
    """Whether a node of float32 has a constant of float16 as input 1, and the processor has an instruction to read it."""
    tensor = info.constants.get(1)
    if tensor is None or tensor.element_type is not TensorElementType.FLOAT16 or instruction_set() < InstructionSet.AVX2:
        return False
    others = {argument.element_type for index, argument in enumerate(info.inputs) if argument is not None and index != 1}
    return others | {info.output_element_type(0)} == {TensorElementType.FLOAT}


def _is_computed_directly(info: KernelInfo, binding: Binding) -> bool:
    allowed = _MOVED if binding.any_type else _COMPUTED
    return (allowed | _TEXTS if binding.reads_strings else allowed).issuperset(info.element_types())
