"""Kernels that compute a node in another way than the shared set, and are not bound: their shapes are others in each run."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import KernelInfo, OpKernel, Slot

__all__ = [
    "DIRECT",
    "EAGER_MODULES",
    "DirectMaker",
    "calling",
    "calling_with",
    "computed_by",
    "direct_kernel",
    "directly",
    "eager_calls_in",
]

DirectMaker = Callable[[KernelInfo], "Callable[..., Any] | None"]
"""Makes a node's ``call(*inputs)``, which returns its outputs, or ``NotImplemented`` for arrays it is not for; None for none."""

DIRECT: dict[tuple[str, str], DirectMaker] = {}
"""(domain, op_type) → what makes the call of a node; filled by importing the modules."""


def computed_by(*op_types: str, domain: str = "") -> Callable[[DirectMaker], DirectMaker]:
    """Decorator that declares what makes the calls of operators."""

    def declare(maker: DirectMaker) -> DirectMaker:
        DIRECT.update(dict.fromkeys(((domain, op_type) for op_type in op_types), maker))
        return maker

    return declare


EAGER_MODULES: dict[tuple[str, str], str] = {}
"""(domain, op_type) → module with the maker of its calls on arrays of shapes that were never seen before; see ``eager_tasks``."""


def eager_calls_in(module: str, *op_types: str, domain: str = "") -> None:
    """Say which module has the makers of operators' calls, without importing it.

    Args:
        module: below ``ort_sdk_cpu``.
        op_types: the operators.
        domain: theirs.
    """
    EAGER_MODULES.update(dict.fromkeys(((domain, op_type) for op_type in op_types), f"ort_sdk_cpu.{module}"))


class _DirectKernel(OpKernel):
    """A kernel of the shared set that computes most arrays in another way.

    Args:
        kernel: the shared set's.
        call: the other way. What it is a method of may have ``in_place``, see ``OpKernel``, and ``bind(inputs, outputs,
            otherwise)``: a call without arguments that does the work on slots, and calls ``otherwise`` where that does not do;
            None, or a ``LookupError``, for slots that it is not for.
    """

    def __init__(self, kernel: Any, call: Callable[..., Any]) -> None:
        self.deterministic = kernel.deterministic
        self.shape_inputs = kernel.shape_inputs
        self.contents_from_shapes = kernel.contents_from_shapes
        owner = self._owner = getattr(call, "__self__", None)
        self.in_place = getattr(owner, "in_place", ())
        self.compute = directly(call, kernel.compute)  # type: ignore[method-assign]

    @property
    def algorithm(self) -> str | None:
        """Name of the algorithm that the other way used last; None if it tells none."""
        name: str | None = getattr(self._owner, "algorithm", None)
        return name


class _BoundDirectKernel(_DirectKernel):
    """One whose call can be bound."""

    binds_moving_slots = True

    def __init__(self, kernel: Any, call: Callable[..., Any], bind: Callable[..., Any]) -> None:
        super().__init__(kernel, call)
        self._bind = bind

    def bind(self, inputs: Sequence[Slot], outputs: Sequence[Slot]) -> Callable[[], Any]:
        """The call's own way to do the work on slots, or results that are copied."""
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


def directly(call: Callable[..., Any], otherwise: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel's function: the call, or the other one for arrays it is not for."""

    def run(*inputs: Any) -> Any:
        result = call(*inputs)
        return otherwise(*inputs) if result is NotImplemented else result

    return run


def direct_kernel(create: Callable[[KernelInfo], Any], info: KernelInfo) -> Any:
    """The kernel of a node whose operator is in ``DIRECT``: the shared set's, if the node has no call of its own."""
    return calling(create(info), info)


def calling(kernel: Any, info: KernelInfo) -> Any:
    """A kernel of the shared set over the node's call, if it has one."""
    maker = DIRECT.get((info.domain, info.op_type))
    return calling_with(kernel, None if maker is None else maker(info))


def calling_with(kernel: Any, call: Callable[..., Any] | None) -> Any:
    """A kernel of the shared set over a call, if there is one."""
    if call is None:
        return kernel
    bind = getattr(getattr(call, "__self__", None), "bind", None)
    return _DirectKernel(kernel, call) if bind is None else _BoundDirectKernel(kernel, call, bind)
