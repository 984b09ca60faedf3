"""The CPU provider's kernels: the shared operator set over NumPy, and what NumPy does faster another way."""

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
    """The registry, built once per process and shared by all sessions."""
    opset, registry = KernelRegistry(NAME), KernelRegistry(NAME)
    add_opset(opset, CpuNamespace())
    registry.add_source(functools.partial(_kernels, opset), DeclaredOperators(on_host=True))
    return registry


def newest_kernel(info: KernelInfo) -> Any:
    """The kernel of one of ONNX's operators, of its newest version.

    Args:
        info: what the kernel may know, without a version.
    """
    newest = max(kernel_registry().candidates(info.domain, info.op_type), key=lambda row: row.kernel_def.since_version)
    return newest.create(replace(info, since_version=newest.kernel_def.since_version))


def _kernels(opset: KernelRegistry, domain: str, op_type: str) -> tuple[KernelCreateInfo, ...]:
    """The shared set's kernels of an operator; those that can be bound are made so."""
    from . import operator_modules

    rows = opset.candidates(domain, op_type)
    if not operator_modules.load(domain, op_type):
        return rows
    from ort_sdk_cpu.kernel.bound import BINDERS, bound_kernel
    from ort_sdk_cpu.kernel.eager import DIRECT, direct_kernel

    if (domain, op_type) in DIRECT and (domain, op_type) not in BINDERS:
        return tuple(KernelCreateInfo(row.kernel_def, functools.partial(direct_kernel, row.create)) for row in rows)
    return tuple(KernelCreateInfo(row.kernel_def, functools.partial(bound_kernel, row.create)) for row in rows)
