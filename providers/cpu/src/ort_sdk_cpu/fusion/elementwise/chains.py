"""Chains of element-wise steps as one step each."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ort_sdk.api import CompilationPolicy, FusedSteps, FusibleProgram, StepFusion, compilation_context
from ort_sdk_cpu.platform import libraries

if TYPE_CHECKING:
    from .groups import Group

__all__ = ["fused_chains"]


def fused_chains(program: FusibleProgram) -> StepFusion:
    """Chains; those compiled already, if compiling is not allowed, or if this thread does not wait for it."""
    has_any = any(getattr(step.kernel, "element_operation", None) is not None for step in program.steps.values())
    if not has_any or not libraries.compiled_kernels().is_usable:
        return StepFusion()
    from .groups import groups_of

    groups = [group for group in groups_of(program) if not (program.shapes_vary and group.is_small_step)]
    chosen = [group for group in groups if _is_at_hand(group, may_compile=program.may_compile)]
    is_complete = len(chosen) == len(groups) or not libraries.numba().is_usable
    return StepFusion([_fused(group, program) for group in chosen], is_complete=is_complete)


def _is_at_hand(group: Group, *, may_compile: bool) -> bool:
    """Whether a chain is compiled, or will be when it is used; asks for it if this thread does not wait."""
    from .compile import is_compiled, request

    if is_compiled(group.chain):
        return True
    may_wait = compilation_context().policy is not CompilationPolicy.RAISE
    if may_compile and not may_wait:
        request(group.chain)
    return may_compile and may_wait


def _fused(group: Group, program: FusibleProgram) -> FusedSteps:
    if program.shapes_vary:
        from .dynamic_shapes import DynamicChain

        return FusedSteps(group.positions, DynamicChain(group), group.inputs, group.outputs)
    from ort_sdk_cpu.kernel.task_writer import threads_for

    from .kernel import ChainKernel, JoinableKernel

    threads = threads_for(math.prod(group.shape) * group.cost // 2)
    kernel = ChainKernel(group, [program.values[index].shape for index in group.inputs], threads)
    if not group.is_small_step:
        return FusedSteps(group.positions, kernel, group.inputs, group.outputs)
    step = program.steps[group.positions[0]]
    return FusedSteps(group.positions, JoinableKernel(kernel, step), group.inputs, group.outputs)
