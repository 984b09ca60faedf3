"""Code generation: the Python source of a program, one line per step or call, and the function compiled of it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType, FunctionType
from typing import Any, NamedTuple

import numpy as np

from ort_sdk.api import EPFail, ExecutionProvider
from ort_sdk.api.data_classes import dataclass, field
from ort_sdk.api.foreign_errors import raise_foreign
from ort_sdk.run.executor import halt, raise_step_error
from ort_sdk.run.program.guards import Guard, SideExit
from ort_sdk.run.program.slots import ValueSlot
from ort_sdk.run.program.specialisation import ProgramStep, Specialisation

from .buffers import BoundSteps
from .device_views import RESHAPING

__all__ = ["GeneratedCode", "ProgramCode", "generate_code"]

STEPS_BETWEEN_CHECKS = 16
"""Steps after which a replay checks the stop flag again."""


def generate_code(specialisation: Specialisation, bound: BoundSteps) -> GeneratedCode:
    """The source of a program; providers join calls that follow each other."""
    text = _Writer(specialisation, bound).text()
    text.join(bound)
    return text


@dataclass(frozen=True, slots=True)
class ProgramCode:
    """A compiled program.

    Args:
        function: ``function(feeds, stop, targets)``.
        filename: the file name of its code.
        steps: line number → whose line it is.
    """

    function: FunctionType
    filename: str
    steps: dict[int, _Line]

    def __del__(self) -> None:
        """Let go of kernels and constants, which are the function's defaults: frames of errors that are kept hold it."""
        self.function.__defaults__ = None

    def locate(self, error: Exception) -> None:
        """Name the step whose line raised.

        Raises:
            OrtSdkError: the error with its step, if one raised it.
        """
        traceback = error.__traceback__
        while traceback is not None:
            if traceback.tb_frame.f_code.co_filename == self.filename:
                line = self.steps.get(traceback.tb_lineno)
                if line is not None:
                    launched = line.failed_step()
                    raise_step_error(error, launched.step, _values(traceback.tb_frame, launched.inputs))
            traceback = traceback.tb_next


def _values(frame: FrameType, indices: Sequence[int]) -> list[Any]:
    """Values of a program that were there when it failed; the frame keeps no copy of them, which clearing it would not drop."""
    found = frame.f_locals
    values = [found.get(f"v{index}") for index in indices]
    if isinstance(found, dict):  # up to Python 3.12
        found.clear()
    return values


class _Line(NamedTuple):
    """The owner of a line: one step, or several steps that one call runs."""

    steps: tuple[ProgramStep, ...]
    call: Any = None

    def failed_step(self) -> ProgramStep:
        return self.steps[getattr(self.call, "failed", 0)]


@dataclass(frozen=True, slots=True)
class GeneratedCode:
    """A program's source by lines, and what they name.

    Args:
        lines: statements, without the last.
        result: expression of what is returned.
        names: constants, kernels and functions, given as arguments with defaults, so that all are locals.
        steps: position of a line → the step it belongs to.
        ends: position of a step's last line → the step.
        calls: position of a line that is nothing but the call of a bound step → the step's position in the program.
        checks: positions of lines that look whether the run shall stop.
        side_exits: position of a line that is a condition → what is returned if it holds.
        joined: position of the first of some lines → the position after the last, and the name of the call that does them all.
    """

    lines: list[str]
    result: str
    names: dict[str, Any]
    steps: dict[int, ProgramStep]
    ends: dict[int, ProgramStep]
    calls: dict[int, int]
    checks: frozenset[int] = frozenset()
    side_exits: Mapping[int, str] = field(default_factory=dict)
    joined: dict[int, tuple[int, str]] = field(default_factory=dict)

    def join(self, bound: BoundSteps) -> None:
        """Let providers join consecutive calls, or put another one in a call's place; it checks the stop flag itself."""
        for lines in self._neighbours(bound):
            calls = [bound.calls[self.calls[line]] for line in lines]
            first = 0
            for count, call in _joined(bound.providers[self.calls[lines[0]]], calls):
                if count > 1 or call is not calls[first]:
                    start, last = lines[first], lines[first + count - 1]
                    self.names[f"j{start}"] = call
                    self.joined[start] = (last + 1, f"j{start}")
                first += count

    def _neighbours(self, bound: BoundSteps) -> Iterator[list[int]]:
        """Lines of consecutive calls of one provider, with nothing between them but checks of the stop flag."""
        group: list[int] = []
        for line, position in self.calls.items():
            if group:
                is_next = self.checks.issuperset(range(group[-1] + 1, line))
                if not is_next or bound.providers[position] is not bound.providers[self.calls[group[-1]]]:
                    yield group
                    group = []
            group.append(line)
        if group:
            yield group

    @property
    def launch_count(self) -> int:
        """Calls that a run makes."""
        inside = {line for start, (end, _) in self.joined.items() for line in range(start, end)}
        return len(self.joined) + len(self.ends.keys() - inside)

    def timed_steps(self) -> list[ProgramStep]:
        """The steps whose ends are timed, in order."""
        return list(self.ends.values())

    def code(self, *, is_timed: bool = False) -> ProgramCode:
        """Compile.

        Args:
            is_timed: also return the time at the start and at the end of each step, so that no time between is lost.
        """
        names = {**self.names, "clock": time.perf_counter_ns} if is_timed else self.names
        filename = f"<ort_sdk {'timed ' if is_timed else ''}program {id(self):x}>"
        written = [f"def program(feeds, stop, targets, {', '.join(f'{name}={name}' for name in names)}):"]
        owners: dict[int, _Line] = {}
        for line, owner in self._timed_lines() if is_timed else self._joined_lines():
            written.append(f"    {line}")
            if owner is not None:
                owners[len(written)] = owner
        written.append(f"    return {self.result}{', t' if is_timed else ''}")
        namespace = dict(names)
        exec(compile("\n".join(written) + "\n", filename, "exec"), namespace)  # noqa: S102 - the text is made of numbers only
        function = namespace["program"]
        # Its own globals: with itself in them, all that a program has would wait for the garbage collector.
        namespace.clear()
        return ProgramCode(function, filename, owners)

    def _timed_lines(self) -> Iterator[tuple[str, _Line | None]]:
        yield "t = [clock()]", None
        for position, line in enumerate(self.lines):
            left = self.side_exits.get(position)
            yield line if left is None else f"{line} return {left}, t", self._owner(position)
            if position in self.ends:
                yield "t.append(clock())", None

    def _joined_lines(self) -> Iterator[tuple[str, _Line | None]]:
        position = 0
        while position < len(self.lines):
            joined = self.joined.get(position)
            if joined is None:
                left = self.side_exits.get(position)
                yield self.lines[position] + ("" if left is None else f" return {left}"), self._owner(position)
                position += 1
                continue
            end, name = joined
            yield (
                f"{name}()",
                _Line(tuple(self.steps[line] for line in range(position, end) if line in self.calls), self.names[name]),
            )
            position = end

    def _owner(self, position: int) -> _Line | None:
        step = self.steps.get(position)
        return None if step is None else _Line((step,))


class _Writer:
    """Writes the function: one line per step."""

    def __init__(self, specialisation: Specialisation, bound: BoundSteps) -> None:
        self._specialisation = specialisation
        self._bound = bound
        self._names: dict[str, Any] = {"asarray": np.asarray, "generic": np.generic, "halt": halt}
        self._lines: list[str] = []
        self._steps: dict[int, ProgramStep] = {}
        self._ends: dict[int, ProgramStep] = {}
        self._calls: dict[int, int] = {}
        self._checks: set[int] = set()
        self._side_exits: dict[int, str] = {}
        self._checked = specialisation.checked

    def text(self) -> GeneratedCode:
        """What the function does."""
        specialisation = self._specialisation
        for index, value in specialisation.constants.items():
            self._names[f"v{index}"] = value
        for index, array in self._bound.buffers.items():
            self._names[f"v{index}"] = array
        self._feeds()
        self._fresh()
        frees = self._frees()
        for position, launched in enumerate(specialisation.steps):
            if position % STEPS_BETWEEN_CHECKS == 0:
                self._checks.add(len(self._lines))
                self._lines.append("if stop.terminate: halt()")
            if launched.guard is not None:
                self._guard(position, launched, launched.guard)
            elif position not in self._bound.views:
                self._step(position, launched)
                self._ends[len(self._lines) - 1] = launched
            if frees[position]:
                self._lines.append(" = ".join(f"v{index}" for index in frees[position]) + " = None")
        result = self._result()
        checks = frozenset(self._checks)
        return GeneratedCode(self._lines, result, self._names, self._steps, self._ends, self._calls, checks, self._side_exits)

    def _result(self) -> str:
        position = len(self._specialisation.steps) - 1
        last = self._specialisation.steps[position] if position >= 0 else None
        if last is not None and last.guard is not None and last.guard.always_exits:
            return self._side_exit(position, last, last.guard)
        self._release_slots()
        return f"[{', '.join(itertools.starmap(self._fetched, enumerate(self._specialisation.fetches)))}]"

    def _fetched(self, position: int, index: int) -> str:
        """What the user gets of a value, the fetch at a position."""
        if index in self._bound.copied:
            return f"v{index}.copy()"
        copy = self._bound.device_fetches.get(index)
        if copy is None:
            return f"v{index}"
        self._names[f"o{index}"] = copy
        return f"o{index}(v{index}, targets[{position}])"

    def _guard(self, position: int, launched: ProgramStep, guard: Guard) -> None:
        if guard.always_exits:
            return
        conditions = []
        for index in guard.checked:
            value = self._specialisation.values[index]
            self._names[f"d{index}"] = value.dtype
            conditions.append(f"v{index}.shape != {tuple(map(int, value.shape))} or v{index}.dtype != d{index}")
        if guard.bounded is not None:
            index, least, most = guard.bounded
            conditions.append(f"not {least} <= v{index}.item() <= {most}")
        self._side_exits[len(self._lines)] = self._side_exit(position, launched, guard)
        self._lines.append(f"if {' or '.join(conditions)}:")
        for index in guard.checked:
            self._fill_slot(index)

    def _side_exit(self, position: int, launched: ProgramStep, guard: Guard) -> str:
        """What is returned where a guard fails."""
        self._names[f"g{position}"] = SideExit(guard, self._bound.slots.values(), self._bound.memory)
        return f"g{position}([{', '.join(f'v{index}' for index in launched.inputs)}])"

    def _feeds(self) -> None:
        for position, feed in enumerate(self._specialisation.plan.feeds):
            if feed.index in self._bound.feeds:
                self._lines.append(f"v{feed.index}[...] = feeds[{position}]")
            elif feed.index in self._bound.device_feeds:
                self._names[f"c{feed.index}"] = self._bound.device_feeds[feed.index]
                self._lines.append(f"c{feed.index}(feeds[{position}])")
            elif feed.index not in self._specialisation.constants:
                self._lines.append(f"v{feed.index} = feeds[{position}]")
                self._fill_slot(feed.index)

    def _fresh(self) -> None:
        """Allocate what the user gets before the first step: between two calls it would keep them from being joined."""
        for position, launched in enumerate(self._specialisation.steps):
            if position not in self._bound.calls:
                continue
            for index in launched.outputs:
                make = self._bound.fresh.get(index)
                if make is not None:
                    self._names[f"a{index}"], self._names[f"s{index}"] = make, self._bound.slots[index]
                    self._line(f"v{index} = s{index}.array = a{index}()", launched)

    def _fill_slot(self, index: int) -> None:
        slot, staged = self._bound.slots.get(index), self._bound.staging.get(index)
        if staged is not None:
            self._names[f"w{index}"] = staged
            self._lines.append(f"w{index}[...] = v{index}")
        elif slot is not None and not slot.is_fixed:
            self._names[f"s{index}"] = slot
            self._lines.append(f"s{index}.array = v{index}")

    def _release_slots(self) -> None:
        """Clear what changes from run to run: feeds are the caller's, and a fetch must be the caller's alone."""
        slots = [name for name, value in self._names.items() if isinstance(value, ValueSlot)]
        if slots:
            self._lines.append(" = ".join(f"{name}.array" for name in slots) + " = None")

    def _step(self, position: int, launched: ProgramStep) -> None:
        call = self._bound.calls.get(position)
        if call is not None:
            self._bound_step(position, launched, call)
            return
        if _only_reshapes(launched, self._specialisation):
            (target,) = launched.outputs
            self._line(f"v{target} = v{launched.inputs[0]}.reshape({self._specialisation.values[target].shape})", launched)
            self._fill_slot(target)
            return
        kernel = f"k{position}"
        self._names[kernel] = launched.step.compute
        invocation = f"{kernel}({', '.join(f'v{index}' for index in launched.inputs)})"
        outputs = [(number, index) for number, index in enumerate(launched.outputs) if launched.step.outputs[number]]
        if not outputs:
            self._line(invocation, launched)
        elif not launched.returns_tuple:
            self._line(f"v{outputs[0][1]} = {invocation}", launched)
        else:
            self._line(f"r = {invocation}", launched)
            for number, index in outputs:
                self._line(f"v{index} = r[{number}]", launched)
        for _, index in outputs:
            if launched.may_return_scalar:
                self._lines.append(f"if isinstance(v{index}, generic): v{index} = asarray(v{index})")
            if index not in self._checked:
                self._fill_slot(index)

    def _bound_step(self, position: int, launched: ProgramStep, call: Callable[[], None]) -> None:
        self._names[f"b{position}"] = call
        self._calls[len(self._lines)] = position
        self._line(f"b{position}()", launched)

    def _line(self, text: str, launched: ProgramStep) -> None:
        self._steps[len(self._lines)] = launched
        self._lines.append(text)

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
            launched = specialisation.steps[position]
            goes_on = launched.guard is not None and not launched.guard.always_exits
            if index in made and index not in kept and (launched.step.outputs or goes_on):
                frees[position].append(index)
        return frees


def _joined(
    execution_provider: ExecutionProvider, calls: Sequence[Callable[[], None]]
) -> Sequence[tuple[int, Callable[[], None]]]:
    try:
        joined = execution_provider.join_calls(calls)
        count = sum(number for number, _ in joined)
    except Exception as error:  # noqa: BLE001 - a provider may raise anything
        raise_foreign(error, f"raised in join_calls of {execution_provider.name}, or made by it")
    if count != len(calls):
        raise EPFail(f"{execution_provider.name}: join_calls gave calls for {count} of {len(calls)} calls")
    return joined


def _only_reshapes(launched: ProgramStep, specialisation: Specialisation) -> bool:
    """Whether a step gives a host array another shape, which is known: that takes no kernel."""
    step = launched.step
    is_reshaping = step.op_type in RESHAPING and step.domain == "" and step.device.is_cpu and step.outputs != (0,)
    arrays = [specialisation.values[index] for index in (launched.inputs[0], *launched.outputs)] if is_reshaping else [None]
    return launched.outputs_known and len(arrays) == 2 and all(isinstance(array, np.ndarray) for array in arrays)
