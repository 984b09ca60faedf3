"""Kernels of the shared operator set that can be bound to preallocated outputs, and the tables of how that is done."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo, OpKernel, Slot
from ort_sdk.api.data_classes import dataclass
from ort_sdk.opset.input_shapes import InputRule

from .eager import with_fallback
from .element_operation import ElementOperation, operation_of
from .writer import MakeWriter, Writer

__all__ = [
    "BINDERS",
    "EARLY_KERNEL_MAKERS",
    "KERNEL_MAKERS",
    "STRING_CALLS",
    "BindableKernel",
    "Binder",
    "Binding",
    "DirectBindableKernel",
    "EarlyKernelMaker",
    "KernelMaker",
    "bindable",
    "early_kernel_maker",
    "kernel_maker",
]

Binder = Callable[[KernelInfo, Any], "MakeWriter | None"]
"""``binder(info, compute)``: how a node, computed by a function of the shared set, is bound; None if it is not."""


@dataclass(frozen=True, slots=True)
class Binding:
    """How an operator is bound; fields as the arguments of ``bindable``."""

    binder: Binder
    any_type: bool
    has_weight: bool
    float16_weight: bool
    reads_strings: bool
    any_layout: bool
    elementwise: bool


BINDERS: dict[tuple[str, str], Binding] = {}
"""(domain, op_type) → how it is bound; filled when the families' modules are imported."""


def bindable(
    *op_types: str,
    domain: str = "",
    any_type: bool = False,
    has_weight: bool = False,
    float16_weight: bool = False,
    reads_strings: bool = False,
    any_layout: bool = False,
    elementwise: bool = False,
) -> Callable[[Binder], Binder]:
    """Decorator that declares the binder of operators.

    Args:
        op_types: operators.
        domain: their domain.
        any_type: elements are moved, not computed on, so that element types that NumPy computes in wider ones are bound, too.
        has_weight: input 1 is a weight, which is packed if it is constant.
        float16_weight: input 1 may be a float16 constant where all else is float32.
        reads_strings: inputs may be strings.
        any_layout: the writer writes outputs of any memory order.
        elementwise: the writer does the same to every element, so that all arrays may get their axes permuted; implies
            ``any_layout``.
    """

    def declare(binder: Binder) -> Binder:
        for op_type in op_types:
            layouts = (any_layout or elementwise, elementwise)
            BINDERS[domain, op_type] = Binding(binder, any_type, has_weight, float16_weight, reads_strings, *layouts)
        return binder

    return declare


KernelMaker = Callable[[KernelInfo, Any, MakeWriter], "BindableKernel | None"]
"""``maker(info, kernel, make_writer)``: a kernel in place of ``BindableKernel``; None for that one."""

KERNEL_MAKERS: dict[tuple[str, str], KernelMaker] = {}
"""(domain, op_type) → its maker; filled when the families' modules are imported."""


def kernel_maker(*op_types: str, domain: str = "") -> Callable[[KernelMaker], KernelMaker]:
    """Decorator that declares the maker of bindable operators' kernels.

    Args:
        op_types: operators.
        domain: their domain.
    """

    def declare(maker: KernelMaker) -> KernelMaker:
        KERNEL_MAKERS.update(dict.fromkeys(((domain, op_type) for op_type in op_types), maker))
        return maker

    return declare


EarlyKernelMaker = Callable[[KernelInfo, Callable[[], Any]], Any]
"""``maker(info, make_usual)``: a kernel that rarely needs the usual one, which ``make_usual`` makes; None for the usual one."""

EARLY_KERNEL_MAKERS: dict[tuple[str, str], EarlyKernelMaker] = {}
"""(domain, op_type) → what is called before the shared set's kernel is made; filled when the families' modules are imported."""


def early_kernel_maker(*op_types: str, domain: str = "") -> Callable[[EarlyKernelMaker], EarlyKernelMaker]:
    """Decorator that declares a maker which is called before the shared set's kernel is made.

    Args:
        op_types: bindable operators.
        domain: their domain.
    """

    def declare(maker: EarlyKernelMaker) -> EarlyKernelMaker:
        EARLY_KERNEL_MAKERS.update(dict.fromkeys(((domain, op_type) for op_type in op_types), maker))
        return maker

    return declare


STRING_CALLS: dict[tuple[str, str], Callable[[KernelInfo, Any], Callable[..., Any] | None]] = {}
"""(domain, op_type) of operators that may return strings, whose nodes are not bound then → ``make(info, compute)``, which returns
a call on a run's arrays; filled when the families' modules are imported."""


class BindableKernel(OpKernel):
    """A kernel of the shared set, with ``bind``.

    Args:
        kernel: the shared set's, which computes without a program.
        make_writer: makes the writer of a program.
    """

    def __init__(self, kernel: Any, make_writer: MakeWriter) -> None:
        self._compute = kernel.compute
        self.deterministic = kernel.deterministic
        self.shape_inputs = kernel.shape_inputs
        self.contents_from_shapes = kernel.contents_from_shapes
        rule = self.input_rule = getattr(kernel, "input_rule", None)
        self._make_writer = make_writer if rule is None else _checked(make_writer, rule)
        self._selectors: tuple[Any, ...] = (make_writer,)
        """Objects that may have an ``algorithm``, the one that they selected last: for runs without programs, for programs."""
        self._element_operation: ElementOperation | None = None
        self._node: tuple[KernelInfo, Callable[..., Any]] | None = None
        """The node and the shared set's function, until ``_resolve`` is called."""

    def describe(self, info: KernelInfo) -> None:
        """Set the node. What follows from it is made when it is first needed: most sessions need none of it before they run.

        With constants it is made at once, since they would be kept alive until then.
        """
        self._node = info, self._compute
        if info.constants:
            self._resolve()

    def _resolve(self) -> None:
        """Choose the node's function, and its operation in element-wise chains."""
        if self._node is None:
            return
        info, compute = self._node
        self._element_operation = operation_of(info)
        self._compute, call = _eager_tasks().eager_function(info, compute, self._make_writer)
        if call is not None:
            self._selectors = (getattr(call, "__self__", call), *self._selectors)
        self._node = None

    @property
    def algorithm(self) -> str | None:
        """Name of the algorithm that a run without a program used last, or else a program; None if none was selected."""
        return next(filter(None, (getattr(each, "algorithm", None) for each in self._selectors)), None)

    @property
    def element_operation(self) -> ElementOperation | None:
        """The node as an operation of an element-wise chain; None if it is none."""
        self._resolve()
        return self._element_operation

    @property
    def compute(self) -> Callable[..., Any]:
        """The shared set's function, or a faster one."""
        return self._compute if self._node is None else self._compute_first

    def _compute_first(self, *inputs: Any) -> Any:
        self._resolve()
        return self._compute(*inputs)

    def make_writer(self, inputs: Sequence[Any], outputs: Sequence[HostArray]) -> Writer:
        """The writer of a program; overridable. A bound method in an attribute would make the kernel a reference cycle."""
        return self._make_writer(inputs, outputs)

    def bind(self, inputs: Sequence[Slot], outputs: Sequence[Slot]) -> Callable[[], Any]:
        """A call that reads the inputs' slots and writes into the outputs' arrays."""
        slots, count = (*inputs, *_wanted(outputs)), len(inputs)
        if not all(slot.is_fixed for slot in slots):
            return _slot_call(self.make_writer, slots, count)
        arrays = [slot.array for slot in slots]
        writer = self.make_writer(arrays[:count], arrays[count:])
        if isinstance(writer, np.ufunc):
            return functools.partial(writer, *arrays[:count], out=arrays[count])
        set_constant_inputs = getattr(writer, "set_constant_inputs", None)
        if set_constant_inputs is not None:
            set_constant_inputs([index for index, slot in enumerate(inputs) if getattr(slot, "is_constant", False)])
        bind_arrays = getattr(writer, "bind_arrays", None)
        call = None if bind_arrays is None else bind_arrays(*arrays)
        return functools.partial(writer, *arrays) if call is None else call


def _checked(make_writer: MakeWriter, rule: InputRule) -> MakeWriter:
    """``make_writer`` for shapes that the operator allows: a writer need not be right for any others."""

    def make(inputs: Sequence[Any], outputs: Sequence[HostArray]) -> Writer:
        rule.check(inputs)
        return make_writer(inputs, outputs)

    return make


def _checked_call(call: Callable[..., Any], rule: InputRule) -> Callable[..., Any]:
    """``call`` on arrays of shapes that the operator allows."""

    def run(*inputs: Any) -> Any:
        rule.check(inputs)
        return call(*inputs)

    return run


class DirectBindableKernel(BindableKernel):
    """A bindable kernel whose function is a call on a run's arrays.

    Args:
        kernel: as for ``BindableKernel``.
        make_writer: as for ``BindableKernel``.
        call: returns the outputs, or ``NotImplemented`` for arrays that it does not support.
    """

    def __init__(self, kernel: Any, make_writer: MakeWriter, call: Callable[..., Any]) -> None:
        super().__init__(kernel, make_writer)
        self.call = call if self.input_rule is None else _checked_call(call, self.input_rule)
        self._compute = with_fallback(self.call, self._compute)
        self._selectors = (getattr(call, "__self__", call), *self._selectors)


@functools.cache
def _eager_tasks() -> ModuleType:
    """The module, imported late; cached, since an import statement per kernel takes as long as all else that is done for it."""
    from . import eager_tasks

    return eager_tasks


def _wanted(outputs: Sequence[Slot]) -> Sequence[Slot]:
    """The outputs up to the last that is wanted: unwanted ones are fixed to None."""
    count = len(outputs)
    while outputs[count - 1].is_fixed and outputs[count - 1].array is None:
        count -= 1
    return outputs[:count]


def _slot_call(make_writer: MakeWriter, slots: Sequence[Slot], count: int) -> Callable[[], None]:
    """A call that reads the slots each time; the writer is made in the first call, when all shapes are known.

    Args:
        make_writer: makes the writer.
        slots: of inputs, then of outputs.
        count: number of inputs.
    """
    writer: Writer | None = None
    bound: Callable[[], Any] | None = None

    def call() -> None:
        nonlocal writer, bound
        if bound is not None:
            bound()
            return
        arrays = [slot.array for slot in slots]
        if writer is None:
            writer = make_writer(arrays[:count], arrays[count:])
            if isinstance(writer, np.ufunc):
                writer = functools.partial(_apply, writer)
            elif hasattr(writer, "bind_slots"):
                bound = writer.bind_slots(slots)
        writer(*arrays)

    return call


def _apply(function: np.ufunc, *arrays: HostArray) -> None:
    function(*arrays[:-1], out=arrays[-1])
