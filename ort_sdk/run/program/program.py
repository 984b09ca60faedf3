"""Programs: a plan compiled for one input signature, as straight-line code with no dictionary, name or hook in it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from ort_sdk.api import Array
from ort_sdk.run.executor import RunControl, StepObserver, current
from ort_sdk.run.types import Targets

from .guards import Exited
from .lowering.buffers import BoundSteps
from .lowering.codegen import ProgramCode, generate_code
from .lowering.fusion import Fused
from .specialisation import Specialisation

__all__ = ["Program"]


class _Never:
    """A stop flag that is never set."""

    terminate = False


_NEVER = _Never()


class Program:
    """Replays a plan for one signature.

    Args:
        specialisation: what is left to do.
        fused: the same, some of it fused.
        bound: steps that run on buffers of their own; they make the program usable by one run at a time.
    """

    __slots__ = (
        *("_blocks", "_charges", "_code", "_copied", "_is_limited", "_nowhere", "_steps", "_text", "_timed"),
        *("bound_count", "device_bytes", "fused", "layout_copies", "operators"),
    )

    def __init__(self, specialisation: Specialisation, fused: Fused, bound: BoundSteps) -> None:
        self.operators = tuple(launched.step.op_type for launched in specialisation.steps if launched.guard is None)
        """Operators that are still run, in order."""
        self.fused = fused.groups
        """Operators of each fused step."""
        self.bound_count = len(bound.calls) + sum(len(group) - 1 for group in fused.groups)
        """How many of the operators run on buffers of the program's own."""
        self.layout_copies = sum(getattr(call, "copy_count", 0) for call in bound.calls.values())
        """Values that are copied into another layout in each run, where neighbours want different ones."""
        self.device_bytes = sum(block.nbytes for block in bound.blocks)
        """Bytes of the blocks on devices that its buffers are in, which other programs may share."""
        self._blocks, self._charges = tuple(bound.blocks), tuple(bound.charges)
        self._is_limited = any(charge.is_limited for charge in bound.charges)
        fetches = fused.specialisation.fetches
        self._nowhere: list[Array | None] = [None] * len(fetches)
        copied = [bound.buffers[index] if index in bound.device_fetches else None for index in fetches]
        self._copied = tuple(None if buffer is None else (buffer.shape, buffer.dtype) for buffer in copied)
        """Shape and type of results that are copied on a device for the user."""
        self._steps = fused.specialisation.steps
        self._text = generate_code(fused.specialisation, bound)
        self._code = self._text.code()
        self._timed: ProgramCode | None = None

    @property
    def is_outdated(self) -> bool:
        """Whether its memory on a device was replaced by a larger block."""
        return any(block.is_replaced for block in self._blocks)

    @property
    def launch_count(self) -> int:
        """Calls that a run makes: of kernels, or of several at once."""
        return self._text.launch_count

    def algorithms(self) -> dict[str, str | None]:
        """Node → name of the algorithm that it is computed with, if its kernel names one; several where its runs differ."""
        found: dict[str, dict[str, None]] = {}
        for launched in self._steps:
            if launched.guard is not None:
                continue
            algorithm = launched.step.algorithm
            for member in launched.members or (launched.step,):
                found.setdefault(member.node, {}).update({} if algorithm is None else {algorithm: None})
        return {node: ", ".join(names) or None for node, names in found.items()}

    def run(self, feeds: Sequence[Array], control: RunControl, targets: Targets | None = None) -> list[Array] | Exited:
        """Replay. Arguments and result as for ``PlanRunner.run``; or the side exit it took.

        ``control.program_observer`` is called for the steps afterwards.
        """
        given = self._nowhere if targets is None else targets.fitting(self._nowhere, self._copied)
        if self._charges:
            if self._is_limited:
                return self._run_charged(feeds, control, given)
            for charge in self._charges:
                charge.note()
        observer = control.program_observer
        if observer is not None:
            return self._run_timed(feeds, control, given, observer)
        fetched: list[Array] | Exited = _call(self._code, feeds, control, given)
        return fetched

    def _run_charged(self, feeds: Sequence[Array], control: RunControl, targets: Sequence[Array | None]) -> list[Array] | Exited:
        """The same, with feeds and results on devices counted meanwhile."""
        observer, taken = control.program_observer, []
        try:
            for charge in self._charges:
                charge.take()
                taken.append(charge)
            if observer is not None:
                return self._run_timed(feeds, control, targets, observer)
            fetched: list[Array] | Exited = _call(self._code, feeds, control, targets)
            return fetched
        finally:
            for charge in taken:
                charge.give_back()

    def _run_timed(
        self, feeds: Sequence[Array], control: RunControl, targets: Sequence[Array | None], observer: StepObserver
    ) -> list[Array] | Exited:
        code = self._timed = self._timed or self._text.code(is_timed=True)
        fetched: list[Array] | Exited
        fetched, stamps = _call(code, feeds, control, targets)
        # A run that took a side exit has fewer steps.
        for launched, (start, end) in zip(self._text.timed_steps(), pairwise(stamps), strict=False):
            observer(launched.step, start, end - start)
        return fetched


def _call(code: ProgramCode, feeds: Sequence[Array], control: RunControl, targets: Sequence[Array | None]) -> Any:
    """What ``RunScope`` does, too: in a small model making one takes as long as a step."""
    previous = current.control
    current.control = control
    try:
        return code.function(feeds, control.terminate or _NEVER, targets)
    except Exception as error:
        code.locate(error)
        raise
    finally:
        current.control = previous
