"""If."""

from __future__ import annotations

from typing import Any

from ort_sdk.api import Array, HostArray, KernelInfo, OpKernel, Subgraph
from ort_sdk.opset.definition import operator

from .bodies import is_true, owned


@operator("If", host_inputs=(0,), shape_inputs=None, deterministic=False, any_type=True, host_only=True)
class If(OpKernel):
    """Outputs of the branch that the condition chooses; both see the same captured values."""

    def __init__(self, info: KernelInfo, xp: Any) -> None:
        self._info = info
        self._xp = xp
        self._branches = (info.subgraph("else_branch"), info.subgraph("then_branch"))

    def compute(self, condition: HostArray, *captured: Array) -> tuple[Array, ...]:
        branch = self.select_body(condition)
        return tuple(owned(self._xp, branch, branch((), captured)))

    def select_body(self, condition: HostArray) -> Subgraph:
        """The branch a condition chooses, for the host to run in place of this kernel when the condition never changes."""
        return self._branches[is_true(self._info, self._xp, condition)]
