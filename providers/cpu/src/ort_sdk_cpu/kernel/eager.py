"""Kernels that compute a node by a call of their own on the arrays of a run, without being bound to buffers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import KernelInfo, OpKernel, Slot

__all__ = [
    "DIRECT_CALLS",
    "EAGER_MODULES",
    "DirectCallMaker",
    "declare_eager_calls",
    "direct_call",
    "direct_kernel",
    "over_direct_call",
    "with_direct_call",
    "with_fallback",
]

DirectCallMaker = Callable[[KernelInfo], "Callable[..., Any] | None"]
"""Makes a node's ``call(*inputs)``, which returns its outputs, or ``NotImplemented`` for arrays that it does not support; None
for a node that has no such call."""

DIRECT_CALLS: dict[tuple[str, str], DirectCallMaker] = {}
"""(domain, op_type) → the maker of its nodes' calls; filled when the families' modules are imported."""


def direct_call(*op_types: str, domain: str = "") -> Callable[[DirectCallMaker], DirectCallMaker]:
    """Decorator that declares the maker of operators' calls.

    Args:
        op_types: operators.
        domain: their domain.
    """

    def declare(maker: DirectCallMaker) -> DirectCallMaker:
        DIRECT_CALLS.update(dict.fromkeys(((domain, op_type) for op_type in op_types), maker))
        return maker

    return declare


EAGER_MODULES: dict[tuple[str, str], str] = {}
"""(domain, op_type) → module of its eager call, for shapes that no run had before; see ``eager_tasks``."""


def declare_eager_calls(module: str, *op_types: str, domain: str = "") -> None:
    """Declare which module has the eager calls of operators, without importing it.

    Args:
        module: name of the module, below ``ort_sdk_cpu``.
        op_types: operators.
        domain: their domain.
    """
    EAGER_MODULES.update(dict.fromkeys(((domain, op_type) for op_type in op_types), f"ort_sdk_cpu.{module}"))


class _DirectKernel(OpKernel):
    """A kernel of the shared set that computes most arrays by a call of its own.

    Args:
        kernel: the shared set's.
        call: the call. The object that it is a method of may have ``in_place``, see ``OpKernel``, and ``bind(inputs, outputs,
            otherwise)``: it returns a call without arguments that computes from slots to slots, and calls ``otherwise`` for
            arrays that it does not support; it returns None, or raises ``LookupError``, for slots that it does not support.
    """

    def __init__(self, kernel: Any, call: Callable[..., Any]) -> None:
        self.deterministic = kernel.deterministic
        self.shape_inputs = kernel.shape_inputs
        self.contents_from_shapes = kernel.contents_from_shapes
        owner = self._owner = getattr(call, "__self__", None)
        self.in_place = getattr(owner, "in_place", ())
        self.compute = with_fallback(call, kernel.compute)  # type: ignore[method-assign]

    @property
    def algorithm(self) -> str | None:
        """Name of the algorithm that the call used last; None if it names none."""
        name: str | None = getattr(self._owner, "algorithm", None)
        return name


class _BoundDirectKernel(_DirectKernel):
    """One whose call can be bound."""

    binds_moving_slots = True

    def __init__(self, kernel: Any, call: Callable[..., Any], bind: Callable[..., Any]) -> None:
        super().__init__(kernel, call)
        self._bind = bind

    def bind(self, inputs: Sequence[Slot], outputs: Sequence[Slot]) -> Callable[[], Any]:
        """The call's own way to compute from slots to slots, or its results copied to the outputs' arrays."""
        otherwise = functools.partial(_compute_into, self.compute, inputs, outputs)
        try:
            return self._bind(inputs, outputs, otherwise) or otherwise
        except LookupError:
            return otherwise


def _compute_into(compute: Callable[..., Any], inputs: Sequence[Slot], outputs: Sequence[Slot]) -> None:
    result = compute(*[slot.array for slot in inputs])
    for slot, value in zip(outputs, result if isinstance(result, tuple) else (result,), strict=False):
        if slot.array is not None and slot.array is not value:
            np.copyto(slot.array, value)


def with_fallback(call: Callable[..., Any], otherwise: Callable[..., Any]) -> Callable[..., Any]:
    """A function that tries a call first.

    Args:
        call: returns the outputs, or ``NotImplemented``.
        otherwise: computes the outputs then.
    """

    def run(*inputs: Any) -> Any:
        result = call(*inputs)
        return otherwise(*inputs) if result is NotImplemented else result

    return run


def direct_kernel(create: Callable[[KernelInfo], Any], info: KernelInfo) -> Any:
    """The kernel of a node whose operator is in ``DIRECT``.

    Args:
        create: creates the shared set's kernel, which is returned if the node has no call of its own.
        info: the node.
    """
    return with_direct_call(create(info), info)


def with_direct_call(kernel: Any, info: KernelInfo) -> Any:
    """A kernel that tries the node's own call before a kernel of the shared set; that kernel if the node has no such call."""
    maker = DIRECT_CALLS.get((info.domain, info.op_type))
    return over_direct_call(kernel, None if maker is None else maker(info))


def over_direct_call(kernel: Any, call: Callable[..., Any] | None) -> Any:
    """A kernel that tries a call before a kernel of the shared set; that kernel if the call is None."""
    if call is None:
        return kernel
    bind = getattr(getattr(call, "__self__", None), "bind", None)
    return _DirectKernel(kernel, call) if bind is None else _BoundDirectKernel(kernel, call, bind)
