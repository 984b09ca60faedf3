"""If."""

from __future__ import annotations

from typing import Any

from ort_sdk.api import Array, Compute, HostArray, KernelInfo
from ort_sdk.opset.definition import operator

from .bodies import is_true, owned


@operator("If", host_inputs=(0,), shape_inputs=None, deterministic=False, any_type=True)
def if_(info: KernelInfo, xp: Any) -> Compute:
    """Outputs of the branch that the condition chooses; both see the same captured values."""
    then_branch, else_branch = info.subgraph("then_branch"), info.subgraph("else_branch")

    def compute(condition: HostArray, *captured: Array) -> tuple[Array, ...]:
        branch = then_branch if is_true(info, xp, condition) else else_branch
        return tuple(owned(xp, branch, branch((), captured)))

    return compute
