"""Workspaces: memory that bound kernels need while they run, laid out with the values of the program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ort_sdk.api import EPFail
from ort_sdk.api.data_classes import dataclass
from ort_sdk.api.foreign_errors import raise_foreign
from ort_sdk.plan import ABSENT
from ort_sdk.run.program.slots import ValueSlot
from ort_sdk.run.program.specialisation import ProgramStep, Specialisation
from ort_sdk.run.types import BindingProvider

__all__ = ["Workspace", "wanted_workspaces"]


@dataclass(frozen=True, slots=True)
class Workspace:
    """What one step's kernel asks for."""

    position: int
    """Of the step, which alone uses it."""
    nbytes: int
    provider: BindingProvider

    @property
    def is_on_host(self) -> bool:
        """Whether the step runs there."""
        return self.provider.device.is_cpu


def wanted_workspaces(
    candidates: Mapping[int, ProgramStep], specialisation: Specialisation, providers: Mapping[str, BindingProvider]
) -> list[Workspace]:
    """The workspaces of steps that are to be bound.

    Raises:
        EPFail: a kernel raised something, or asked for what is no number of bytes.
    """
    found = []
    for position, launched in candidates.items():
        ask = getattr(launched.step.kernel, "workspace_bytes", None)
        nbytes = 0 if ask is None else _asked(launched, specialisation)
        if nbytes:
            found.append(Workspace(position, nbytes, providers[launched.step.provider]))
    return found


def _asked(launched: ProgramStep, specialisation: Specialisation) -> int:
    step = launched.step
    inputs = [_described_slot(index, specialisation) for index in launched.inputs]
    outputs = [
        ValueSlot() if own == ABSENT else _described_slot(index, specialisation)
        for index, own in zip(launched.outputs, step.outputs, strict=True)
    ]
    where = f"workspace_bytes of {step.provider}'s kernel of {step.op_type} node '{step.node}'"
    try:
        nbytes: Any = step.kernel.workspace_bytes(inputs, outputs)
    except Exception as error:  # noqa: BLE001 - a kernel may raise anything
        raise_foreign(error, f"raised in {where}")
    if type(nbytes) is not int or nbytes < 0:
        raise EPFail(f"{where} must give a number of bytes, an int of at least 0, gave {nbytes!r:.200}")
    return nbytes


def _described_slot(index: int, specialisation: Specialisation) -> ValueSlot:
    """A slot as it is before values have memory: with a shape, and an array only if that is a constant."""
    if index in specialisation.constants:
        return ValueSlot(specialisation.constants[index], is_fixed=True, is_constant=True)
    return ValueSlot(shape=getattr(specialisation.values[index], "shape", None))
