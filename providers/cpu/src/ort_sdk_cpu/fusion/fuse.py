"""The provider's answer when a program is made."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING

from ort_sdk.api import FusedSteps, FusibleProgram, StepFusion
from ort_sdk_cpu import libraries

if TYPE_CHECKING:
    from .groups import Group

__all__ = ["fuse_chains"]


def fuse_chains(program: FusibleProgram) -> StepFusion:
    """Make one kernel of each chain of element-wise steps; of those compiled already, if compiling is not allowed."""
    has_any = any(getattr(step.kernel, "element_operation", None) is not None for step in program.steps.values())
    if not has_any or not libraries.numba().is_usable:
        return StepFusion()
    # Even reading compiled code takes the compiler's library, which takes as long to load as a chain to compile.
    if not program.may_compile and "llvmlite.binding" not in sys.modules:
        return StepFusion(is_complete=False)
    from .code import is_compiled
    from .groups import groups_of

    groups = list(groups_of(program))
    chosen = [group for group in groups if program.may_compile or is_compiled(group.chain)]
    return StepFusion([_fused(group, program) for group in chosen], is_complete=len(chosen) == len(groups))


def _fused(group: Group, program: FusibleProgram) -> FusedSteps:
    from ort_sdk_cpu.kernels.task_writer import threads_for

    from .kernel import ChainKernel

    threads = threads_for(math.prod(group.shape) * group.cost // 2)
    kernel = ChainKernel(group, [program.values[index].shape for index in group.inputs], threads)
    return FusedSteps(group.positions, kernel, group.inputs, group.outputs)
