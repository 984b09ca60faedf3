"""Attention over a cache in programs: tasks are bound once, but for addresses of arrays that change in each run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ort_sdk.api import HostArray, Slot
from ort_sdk.api.data_classes import dataclass, field
from ort_sdk_cpu.jit.native_call import NativeCall
from ort_sdk_cpu.jit.task import TaskCall
from ort_sdk_cpu.memory.workspace import Workspace, shared_workspace
from ort_sdk_cpu.platform.addresses import address_of

from .arguments.decode import CachedTokens
from .decode import CachedAttention, Launch
from .masks import mask_bias_task

__all__ = ["BoundTasks", "NodeTasks", "Placeholders", "cache_slots", "key_mask_bias"]

FLOAT = np.dtype(np.float32)
MAX_OWN_BYTES = 1 << 14
"""Workspace up to which a node has its own, in place of asking for the thread's in each run."""
ALIGNMENT_BYTES = 64


class _Operand(NamedTuple):
    """An argument that is an address in some memory."""

    call: TaskCall
    position: int
    offset: int
    """Bytes from the memory's first byte."""


class Placeholders:
    """Arrays in place of those of slots whose arrays change, while tasks are made: afterwards their addresses are looked for.

    Args:
        workspace: workspace of the thread that runs.
    """

    def __init__(self, workspace: Workspace | None = None) -> None:
        self.workspace = workspace or shared_workspace()
        self.slots: list[tuple[Slot, HostArray]] = []
        """Those whose arrays change, and their placeholders."""
        self.work: list[tuple[str, int, int]] = []
        """Parts of the thread's workspace: name, bytes, and the address now."""
        self.kept: list[HostArray] = []
        """What the tasks need to stay alive."""

    def array(self, slot: Slot | None, dtype: np.dtype[Any] = FLOAT) -> HostArray | None:
        """A slot's array, or a placeholder; None for an absent value.

        Raises:
            LookupError: the shape is not known.
        """
        if slot is None or slot.is_fixed:
            return None if slot is None else slot.array
        if slot.shape is None:
            raise LookupError
        made = np.empty(slot.shape, dtype)
        self.slots.append((slot, made))
        return made

    def own(self, shape: tuple[int, ...], dtype: np.dtype[Any] = FLOAT) -> HostArray:
        """Memory of the tasks' own."""
        made = np.zeros(shape, dtype)
        self.kept.append(made)
        return made

    def memory(self, name: str, nbytes: int) -> HostArray:
        """Workspace, as ``CachedAttention.launches`` takes it."""
        if nbytes > MAX_OWN_BYTES:
            room = self.workspace.buffer(name, nbytes)
            self.work.append((name, nbytes, address_of(room)))
            return room
        own = self.own((nbytes + ALIGNMENT_BYTES,), np.dtype(np.uint8))
        return own[-address_of(own) % ALIGNMENT_BYTES :]


@dataclass(slots=True)
class NodeTasks:
    """The tasks of a node."""

    checks: list[TaskCall] = field(default_factory=list)
    """They set their first arguments where inputs contradict each other."""
    before: list[TaskCall] = field(default_factory=list)
    """Make what the attention reads."""
    attention: CachedAttention | None = None
    launches: list[Launch] = field(default_factory=list)
    """Further tasks."""


def cache_slots(inputs: Sequence[Slot], outputs: Sequence[Slot], pairs: Sequence[tuple[int, int]]) -> list[tuple[Slot, Slot]]:
    """Slots of past and present keys and values that may be one array: all of them, or none."""
    found = [(inputs[source], outputs[target]) for source, target in pairs if source < len(inputs) and target < len(outputs)]
    are_alike = all(past.shape == present.shape and not past.is_fixed and not present.is_fixed for past, present in found)
    return found if are_alike and len(found) == len(pairs) else []


def key_mask_bias(mask: HostArray, filter_value: float, placeholders: Placeholders) -> tuple[HostArray, TaskCall]:
    """Numbers to add to scores, (batch, 1, 1, keys), and the task that makes them of a mask int32 (batch, keys)."""
    numbers = placeholders.own((mask.shape[0], 1, 1, mask.shape[1]))
    return numbers, mask_bias_task(mask, numbers, filter_value)


class BoundTasks:
    """The tasks of a node as a call without arguments. For one thread at a time.

    Args:
        tasks: what to do.
        placeholders: of changing arrays, when they were made.
        fallback: does the work where a check fails, or raises the error.
        caches: slots of past and present that may be one array.
    """

    def __init__(
        self, tasks: NodeTasks, placeholders: Placeholders, fallback: Callable[[], Any], caches: Sequence[tuple[Slot, Slot]] = ()
    ) -> None:
        launches = list(tasks.launches)
        if tasks.attention is not None:
            launches += tasks.attention.launches(placeholders.memory)
        made = [(TaskCall(launch.module, launch.name, launch.arguments, launch.threads), launch) for launch in launches]
        self._checks, self._calls = tasks.checks, [*tasks.before, *(call for call, _ in made)]
        self._fallback, self._caches, self._workspace = fallback, caches, placeholders.workspace
        self._filling = [call for call, launch in made if isinstance(launch.arguments, CachedTokens)]
        self._copies: list[HostArray] = []
        every = [*tasks.checks, *self._calls]
        self._moving = [(slot, _operands_in(every, address_of(array), array.nbytes)) for slot, array in placeholders.slots]
        self._work = [(name, nbytes, _operands_in(every, start, nbytes)) for name, nbytes, start in placeholders.work]
        self._kept = (tasks, placeholders.kept)

    @property
    def native(self) -> NativeCall:
        """The tasks without Python. It holds this object, so it is not kept here."""
        rows = (*(check.checked_row for check in self._checks), *(call.row for call in self._calls))
        return NativeCall(rows, self._prepare if self._moving or self._work else None)

    def _prepare(self) -> None:
        """Point at what has changed since the run before."""
        self._copies.clear()
        if self._caches:
            self._overwrite()
        for slot, operands in self._moving:
            array = slot.array
            if not array.flags.c_contiguous:
                array = np.ascontiguousarray(array)
                self._copies.append(array)
            for call, position, offset in operands:
                call.point(position, array, offset)
        for name, nbytes, operands in self._work:
            room = self._workspace.buffer(name, nbytes)
            for call, position, offset in operands:
                call.point(position, room, offset)

    def _overwrite(self) -> None:
        """Fill the past's memory where the caller of the run wants the present there, keys and values both."""
        shared = [present for past, present in self._caches if past.array is present.array]
        is_in_place = len(shared) == len(self._caches)
        for call in self._filling:
            call.set(CachedTokens.is_in_place, int(is_in_place))
            call.check()
        if shared and not is_in_place:
            for past, present in self._caches:
                if past.array is present.array:
                    past.array = past.array.copy()

    def __call__(self) -> None:
        """Write the outputs."""
        self._prepare()
        for check in self._checks:
            check.run()
            if check.has_failed:
                self._fallback()
                return
        for call in self._calls:
            call.run()


def _operands_in(calls: Sequence[TaskCall], start: int, nbytes: int) -> list[_Operand]:
    """Arguments of tasks that are addresses in some memory: no size is as large a number as an address."""
    return [
        _Operand(call, position, word - start)
        for call in calls
        for position, word in call.words()
        if start <= word < start + max(nbytes, 1)
    ]
