"""The CPU provider's kernel registry: the shared operator set over NumPy, and faster kernels in place of some of it."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

from ort_sdk.api import KernelCreateInfo, KernelInfo, KernelRegistry
from ort_sdk.opset import add_opset
from ort_sdk.opset.families import DeclaredOperators

from .namespace import CpuNamespace

__all__ = ["kernel_registry", "newest_kernel"]

NAME = "CPUExecutionProvider"


@functools.cache
def kernel_registry() -> KernelRegistry:
    """The registry, created once per process and shared by all sessions."""
    opset, registry = KernelRegistry(NAME), KernelRegistry(NAME)
    add_opset(opset, CpuNamespace())
    registry.add_source(functools.partial(_kernels, opset), DeclaredOperators(on_host=True))
    return registry


def newest_kernel(info: KernelInfo) -> Any:
    """The kernel of an operator's newest version.

    Args:
        info: the node; its version is replaced.
    """
    newest = max(kernel_registry().candidates(info.domain, info.op_type), key=lambda row: row.kernel_def.since_version)
    return newest.create(replace(info, since_version=newest.kernel_def.since_version))


def _kernels(opset: KernelRegistry, domain: str, op_type: str) -> tuple[KernelCreateInfo, ...]:
    """Kernel definitions of an operator: those of the shared set, with this provider's factories where a module has some."""
    from . import operator_modules

    rows = opset.candidates(domain, op_type)
    if not operator_modules.load(domain, op_type):
        return rows
    from ort_sdk_cpu.kernel.bindable import BINDERS
    from ort_sdk_cpu.kernel.bound import bound_kernel
    from ort_sdk_cpu.kernel.eager import DIRECT_CALLS, direct_kernel

    if (domain, op_type) in DIRECT_CALLS and (domain, op_type) not in BINDERS:
        return tuple(KernelCreateInfo(row.kernel_def, functools.partial(direct_kernel, row.create)) for row in rows)
    return tuple(KernelCreateInfo(row.kernel_def, functools.partial(bound_kernel, row.create)) for row in rows)
