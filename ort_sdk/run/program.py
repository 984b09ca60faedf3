"""Programs: a plan specialised for one input signature, as straight-line code with no dictionary, name or hook in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import Array

from .binding import BoundSteps
from .executor import RunControl, RunScope, halt, raise_step_error
from .fusing import Fused
from .slots import ValueSlot
from .specialise import ProgramStep, Specialisation

__all__ = ["Program"]


STEPS_BETWEEN_CHECKS = 16
"""Steps after which a replay looks again whether it shall stop."""


class _Never:
    """Stands for a run that nothing stops."""

    terminate = False


_NEVER = _Never()


class Program:
    """Replays a plan for one signature.

    Args:
        specialisation: what is left to do.
        fused: the same, some of it fused.
        bound: steps that run on buffers of their own; they make the program usable by one run at a time.
    """

    __slots__ = ("_filename", "_function", "_lines", "bound_count", "fused", "operators")

    def __init__(self, specialisation: Specialisation, fused: Fused, bound: BoundSteps) -> None:
        self.operators = tuple(launched.step.op_type for launched in specialisation.steps)
        """Operators that are still run, in order."""
        self.fused = fused.groups
        """Operators of each fused step."""
        self.bound_count = len(bound.calls) + sum(len(group) - 1 for group in fused.groups)
        """How many of the operators run on buffers of the program's own."""
        writer = _Writer(fused.specialisation, bound)
        self._function, self._lines, self._filename = writer.function()

    def run(self, feeds: Sequence[Array], control: RunControl) -> list[Array]:
        """Replay. Arguments and result as for ``execute``; an observer sees nothing of it."""
        try:
            with RunScope(control):
                return self._function(feeds, control.terminate or _NEVER)
        except Exception as error:
            self._locate(error)
            raise

    def _locate(self, error: Exception) -> None:
        """Name the step whose line raised."""
        traceback = error.__traceback__
        while traceback is not None:
            if traceback.tb_frame.f_code.co_filename == self._filename:
                launched = self._lines.get(traceback.tb_lineno)
                if launched is not None:
                    found = traceback.tb_frame.f_locals
                    raise_step_error(error, launched.step, [found.get(f"v{index}") for index in launched.inputs])
            traceback = traceback.tb_next


class _Writer:
    """Writes the function: one line per step, constants and kernels as arguments with defaults, so that all are locals."""

    def __init__(self, specialisation: Specialisation, bound: BoundSteps) -> None:
        self._specialisation = specialisation
        self._bound = bound
        self._names: dict[str, Any] = {"asarray": np.asarray, "generic": np.generic, "halt": halt}
        self._lines: list[str] = []
        self._steps: dict[int, ProgramStep] = {}

    def function(self) -> tuple[Callable[[Sequence[Array], Any], list[Array]], dict[int, ProgramStep], str]:
        """The compiled function, its line table and the name its code goes by."""
        specialisation = self._specialisation
        for index, value in specialisation.constants.items():
            self._names[f"v{index}"] = value
        for index, array in self._bound.buffers.items():
            self._names[f"v{index}"] = array
        self._feeds()
        frees = self._frees()
        for position, launched in enumerate(specialisation.steps):
            if position % STEPS_BETWEEN_CHECKS == 0:
                self._lines.append("if stop.terminate: halt()")
            if position not in self._bound.views:
                self._step(position, launched)
            if frees[position]:
                self._lines.append(" = ".join(f"v{index}" for index in frees[position]) + " = None")
        self._release_slots()
        for index, allocate in self._bound.copied.items():
            self._names[f"a{index}"] = allocate
            self._names["copyto"] = np.copyto
            self._lines.append(f"r{index} = a{index}()")
            self._lines.append(f"copyto(r{index}, v{index})")
        copied = self._bound.copied
        fetched = (f"r{index}" if index in copied else f"v{index}" for index in specialisation.fetches)
        self._lines.append(f"return [{', '.join(fetched)}]")
        return self._compiled()

    def _feeds(self) -> None:
        for position, feed in enumerate(self._specialisation.plan.feeds):
            if feed.index not in self._specialisation.constants:
                self._lines.append(f"v{feed.index} = feeds[{position}]")
                self._fill_slot(feed.index)

    def _fill_slot(self, index: int) -> None:
        slot = self._bound.slots.get(index)
        if slot is not None and not slot.is_fixed:
            self._names[f"s{index}"] = slot
            self._lines.append(f"s{index}.array = v{index}")

    def _release_slots(self) -> None:
        """Let go of what changes from run to run: feeds are the caller's, and a fetch must be nobody's but the caller's."""
        slots = [name for name, value in self._names.items() if isinstance(value, ValueSlot)]
        if slots:
            self._lines.append(" = ".join(f"{name}.array" for name in slots) + " = None")

    def _step(self, position: int, launched: ProgramStep) -> None:
        call = self._bound.calls.get(position)
        if call is not None:
            self._bound_step(position, launched, call)
            return
        kernel = f"k{position}"
        self._names[kernel] = launched.step.compute
        invocation = f"{kernel}({', '.join(f'v{index}' for index in launched.inputs)})"
        outputs = [(place, index) for place, index in enumerate(launched.outputs) if launched.step.outputs[place]]
        if not outputs:
            self._line(invocation, launched)
        elif not launched.returns_tuple:
            self._line(f"v{outputs[0][1]} = {invocation}", launched)
        else:
            self._line(f"r = {invocation}", launched)
            for place, index in outputs:
                self._line(f"v{index} = r[{place}]", launched)
        for _, index in outputs:
            if launched.may_return_scalar:
                self._lines.append(f"if isinstance(v{index}, generic): v{index} = asarray(v{index})")
            self._fill_slot(index)

    def _bound_step(self, position: int, launched: ProgramStep, call: Callable[[], None]) -> None:
        self._names[f"b{position}"] = call
        fresh = [index for index in launched.outputs if index in self._bound.fresh]
        for index in fresh:
            self._names[f"a{index}"] = self._bound.fresh[index]
            self._names[f"s{index}"] = self._bound.slots[index]
            self._line(f"v{index} = s{index}.array = a{index}()", launched)
        self._line(f"b{position}()", launched)

    def _line(self, text: str, launched: ProgramStep) -> None:
        self._lines.append(text)
        self._steps[len(self._lines) + 1] = launched

    def _frees(self) -> list[list[int]]:
        """Values to forget after each step: made here, read no more, and not fixed."""
        specialisation = self._specialisation
        last: dict[int, int] = {}
        for position, launched in enumerate(specialisation.steps):
            for index in (*launched.outputs, *launched.inputs):
                last[index] = position
        kept = {*specialisation.fetches, *specialisation.constants, *self._bound.buffers, *self._bound.slots}
        made = {index for launched in specialisation.steps for index in launched.outputs}
        frees: list[list[int]] = [[] for _ in specialisation.steps]
        for index, position in last.items():
            if index in made and index not in kept and specialisation.steps[position].step.outputs:
                frees[position].append(index)
        return frees

    def _compiled(self) -> tuple[Callable[[Sequence[Array], Any], list[Array]], dict[int, ProgramStep], str]:
        filename = f"<ort_sdk program {id(self):x}>"
        parameters = ", ".join(f"{name}={name}" for name in self._names)
        source = f"def program(feeds, stop, {parameters}):\n" + "".join(f"    {line}\n" for line in self._lines)
        namespace = dict(self._names)
        exec(compile(source, filename, "exec"), namespace)  # noqa: S102 - the text is made of numbers only
        return namespace["program"], self._steps, filename
