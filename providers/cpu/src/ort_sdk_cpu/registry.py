"""The CPU provider's kernels: the shared operator set over NumPy, and what NumPy does faster another way."""

from __future__ import annotations

import functools

from ort_sdk.api import KernelCreateInfo, KernelRegistry
from ort_sdk.opset import add_opset

from .namespace import CpuNamespace

__all__ = ["kernel_registry"]

NAME = "CPUExecutionProvider"


@functools.cache
def kernel_registry() -> KernelRegistry:
    """The registry, built once per process and shared by all sessions."""
    opset, registry = KernelRegistry(NAME), KernelRegistry(NAME)
    add_opset(opset, CpuNamespace())
    registry.add_source(functools.partial(_kernels, opset), opset.operators())
    return registry


def _kernels(opset: KernelRegistry, domain: str, op_type: str) -> tuple[KernelCreateInfo, ...]:
    """The shared set's kernels of an operator; those that can be bound are made so."""
    from .kernels import index

    rows = opset.candidates(domain, op_type)
    if not index.load(domain, op_type):
        return rows
    from .kernels.bindable import BINDERS, bound_kernel
    from .kernels.direct_kernel import DIRECT, direct_kernel

    if (domain, op_type) in DIRECT and (domain, op_type) not in BINDERS:
        return tuple(KernelCreateInfo(row.kernel_def, functools.partial(direct_kernel, row.create)) for row in rows)
    return tuple(KernelCreateInfo(row.kernel_def, functools.partial(bound_kernel, row.create)) for row in rows)
