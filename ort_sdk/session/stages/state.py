"""``SessionState``: the products of all stages, frozen."""

from __future__ import annotations

from ort_sdk.api.data_classes import dataclass
from ort_sdk.graph import Model
from ort_sdk.memory import DataTransferManager, Prepacker
from ort_sdk.partition import Assignment, ValueDevices
from ort_sdk.plan import ExecutionPlan
from ort_sdk.run import ProgramMemory
from ort_sdk.session.providers.opened import SessionProvider

__all__ = ["SessionState"]


@dataclass(frozen=True, slots=True)
class SessionState:
    """The products of all stages, frozen."""

    model: Model
    """After optimization, with copies inserted."""
    providers: tuple[SessionProvider, ...]
    assignment: Assignment
    devices: ValueDevices
    transfers: DataTransferManager
    plan: ExecutionPlan
    prepacker: Prepacker | None
    """Holds what the kernels share with other sessions."""
    program_memory: ProgramMemory
    """Bounds what programs of the graph and its bodies hold."""
