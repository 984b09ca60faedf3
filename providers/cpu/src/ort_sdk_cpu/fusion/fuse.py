"""The provider's answer when a program is made."""

from __future__ import annotations

import math

from ort_sdk.api import FusedSteps, FusibleProgram, StepFusion
from ort_sdk_cpu import libraries
from ort_sdk_cpu.kernels.task_writer import threads_for

from .groups import Group, groups_of

__all__ = ["fuse_chains"]


def fuse_chains(program: FusibleProgram) -> StepFusion:
    """Make one kernel of each chain of element-wise steps; of those compiled already, if compiling is not allowed."""
    if not libraries.numba().is_usable:
        return StepFusion()
    groups = list(groups_of(program))
    if not groups:
        return StepFusion()
    chosen = [group for group in groups if program.may_compile or _is_compiled(group)]
    return StepFusion([_fused(group, program) for group in chosen], is_complete=len(chosen) == len(groups))


def _is_compiled(group: Group) -> bool:
    from .code import is_compiled

    return is_compiled(group.chain)


def _fused(group: Group, program: FusibleProgram) -> FusedSteps:
    from .kernel import ChainKernel

    threads = threads_for(math.prod(group.shape) * group.cost // 2)
    kernel = ChainKernel(group, [program.values[index].shape for index in group.inputs], threads)
    return FusedSteps(group.positions, kernel, group.inputs, group.outputs)
