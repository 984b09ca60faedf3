"""The provider's answer when a program is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ort_sdk.api import FusedSteps, FusibleProgram, StepFusion
from ort_sdk_cpu.fusion.elementwise.chains import fused_chains
from ort_sdk_cpu.platform import libraries

__all__ = ["fuse"]

PRODUCTS = frozenset({"FusedGemm", "FusedMatMul", "FusedMatMulActivation", "Gemm", "MatMul", "MatMulNBits"})
"""Operators that may be products of rows with a constant matrix."""


def fuse(program: FusibleProgram) -> StepFusion:
    """Make one kernel of each convolution and what can be its post-ops, and of each chain of other element-wise steps.

    Where shapes vary, attention and views become one step each, too, and so do a transformer's layers.
    """
    first = _fused_convolutions(program)
    left = _without(program, first)
    if program.shapes_vary:
        varying = _fused_varying(left)
        return replace(varying, fused=[*first, *varying.fused])
    sums = [*_quantized_sums(left), *_float_convolutions(left)]
    first, left = [*first, *sums], _without(left, sums)
    chains = fused_chains(left)
    return StepFusion([*first, *chains.fused], chains.is_complete)


def _fused_varying(program: FusibleProgram) -> StepFusion:
    """Views, attention and layers, scalar steps as generated code, and chains of the other steps."""
    from ort_sdk_cpu.fusion.shapes.expressions import Expressions
    from ort_sdk_cpu.fusion.shapes.scalar_steps import ScalarSteps
    from ort_sdk_cpu.fusion.shapes.views import fused_views

    expressions = Expressions(program)
    scalars = ScalarSteps(program, expressions)
    products = [step for step in program.steps.values() if step.op_type in PRODUCTS]
    has_rows = any(hasattr(step.kernel, name) for step in products for name in ("call", "gemv", "row_gemm"))
    views, readers = fused_views(program, expressions, scalars, has_rows=has_rows and libraries.compiled_kernels().is_usable)
    left = replace(_without(program, views, readers), readers=readers)
    loops = fused_chains(replace(left, steps={own: step for own, step in left.steps.items() if scalars.is_computed(own)}))
    lines = list(scalars.fused([own for own in left.steps if own in scalars.positions], loops.fused, readers))
    chains = fused_chains(replace(left, steps={own: step for own, step in left.steps.items() if own not in scalars.positions}))
    is_complete = all(getattr(fused.kernel, "is_complete", True) for fused in views)
    return StepFusion([*views, *lines, *chains.fused], is_complete and loops.is_complete and chains.is_complete)


def _without(
    program: FusibleProgram, answers: Sequence[FusedSteps], readers: Mapping[int, Sequence[int]] | None = None
) -> FusibleProgram:
    """What is left of a program, and of steps whose work is repeated those that others read, too."""
    taken = {position for fused in answers for position in fused.positions}
    for position in {position for fused in answers for position in fused.repeated}:
        if readers is None or not any(index in readers for index in program.steps[position].outputs):
            taken.add(position)
    return replace(program, steps={position: step for position, step in program.steps.items() if position not in taken})


def _fused_convolutions(program: FusibleProgram) -> list[FusedSteps]:
    if not any(hasattr(step.kernel, "followed_by") for step in program.steps.values()):
        return []
    from ort_sdk_cpu.fusion.conv.convolutions import fused_convolutions

    return list(fused_convolutions(program))


def _quantized_sums(program: FusibleProgram) -> list[FusedSteps]:
    if (
        not any(hasattr(step.kernel, "can_fuse_add") for step in program.steps.values())
        or not libraries.compiled_kernels().is_usable
    ):
        return []
    from ort_sdk_cpu.fusion.conv.quantized_sums import quantized_sums

    return list(quantized_sums(program))


def _float_convolutions(program: FusibleProgram) -> list[FusedSteps]:
    if (
        not any(hasattr(step.kernel, "dequantized_convolution") for step in program.steps.values())
        or not libraries.compiled_kernels().is_usable
    ):
        return []
    from ort_sdk_cpu.fusion.conv.dequantized import float_convolutions

    return list(float_convolutions(program))
