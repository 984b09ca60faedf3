"""Chains of element-wise steps as one step each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ort_sdk.api import CompilationPolicy, FusedSteps, FusibleProgram, StepFusion, compilation_context
from ort_sdk_cpu.platform import libraries

if TYPE_CHECKING:
    from .groups import Group

__all__ = ["fused_chains"]


def fused_chains(program: FusibleProgram) -> StepFusion:
    """Chains; those compiled already, if compiling is not allowed, or if this thread does not wait for it.

    Where there is no compiler, others are computed in the parts that are compiled, which an archive has.
    """
    has_any = any(getattr(step.kernel, "element_operation", None) is not None for step in program.steps.values())
    if not has_any or not libraries.compiled_kernels().is_usable:
        return StepFusion()
    from .groups import groups_of

    chosen: list[Group] = []
    missing: list[Group] = []
    for group in groups_of(program):
        if _gains(group, program):
            (chosen if _is_at_hand(group, may_compile=program.may_compile) else missing).append(group)
    is_complete = not missing or not libraries.numba().is_usable
    if is_complete:
        chosen += _compiled_parts(missing, program)
    return StepFusion([_fused(group, program) for group in chosen], is_complete=is_complete)


def _gains(group: Group, program: FusibleProgram) -> bool:
    return not (program.shapes_vary and group.is_small_step)


def _compiled_parts(groups: Sequence[Group], program: FusibleProgram) -> list[Group]:
    """Groups whose chains are compiled, of the steps of groups whose chains are not and cannot be."""
    from .compile import is_compiled
    from .groups import groups_of

    steps = {position: program.steps[position] for group in groups for position in group.positions}
    parts = groups_of(replace(program, steps=dict(sorted(steps.items()))), is_compiled) if steps else []
    return [part for part in parts if _gains(part, program)]


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
