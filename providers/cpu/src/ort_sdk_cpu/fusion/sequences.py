"""Steps that make rows of rows, one after the other, as one step where shapes vary: a transformer's layers are one call.

The team of threads starts once for all of them. Values between them lie in working memory, and each thread goes through its own
rows from task to task: it waits for the others only where it needs theirs.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ort_sdk.api import FusedSteps, FusibleProgram, FusibleStep, HostArray
from ort_sdk.api.data_classes import dataclass
from ort_sdk_cpu import libraries
from ort_sdk_cpu.addresses import address_of
from ort_sdk_cpu.kernels.compiled_product import FEW_ROWS, parts_of, planned
from ort_sdk_cpu.kernels.recycled import ResultMemory
from ort_sdk_cpu.kernels.scratch import Scratch, shared_scratch
from ort_sdk_cpu.machine_code import WORD, task_address
from ort_sdk_cpu.task_sequence import HEAD_WORDS, STEP_WORDS, RecordSequence, TaskWords, Word, run_sequence

from .cached_steps import CacheWords
from .loops import strides_over
from .row_steps import AddedScores, ProductSizes, RowStep, followed_product, row_step

__all__ = ["RowSequence", "fused_sequences"]

LEAST_STEPS = 3
"""Steps from which a sequence takes less time than they do one by one."""
MOST_SHAPES = 8
"""Shapes whose words are kept."""
APART_BYTES = 320
"""Between values: rows of the same number do not lie at the same place of a page."""
WORKING_MEMORY = "sequence"
NUMBERS_WORTH_WAKING = 1 << 19
"""Of all second operands, for each thread, that few rows are multiplied by: a thread that sleeps takes long to wake."""


def fused_sequences(program: FusibleProgram) -> Iterator[FusedSteps]:
    """All of a program whose shapes vary."""
    scratch = shared_scratch()
    for members in _segments(program):
        if sum(map(len, members)) >= LEAST_STEPS:
            yield _fused(members, program, scratch)


def _segments(program: FusibleProgram) -> Iterator[dict[tuple[int, ...], RowStep]]:
    """Positions and tasks of steps that follow each other, with nothing between that needs what one of them makes."""
    tasks = _tasks(program)
    covered = {position for positions in tasks for position in positions}
    members: dict[tuple[int, ...], RowStep] = {}
    values: set[int] = set()
    end = math.inf
    for positions, made in tasks.items():
        if positions[-1] > end or values.isdisjoint(made.reads):
            yield members
            members, values, end = {}, set(), math.inf
        members[positions] = made
        values.update(made.widths)
        others = [reader for index in made.outputs for reader in program.readers.get(index, ()) if reader not in covered]
        end = min([end, *others])
    yield members


def _tasks(program: FusibleProgram) -> dict[tuple[int, ...], RowStep]:
    """Positions of steps → the task that they are, in the order of their last."""
    tasks: dict[tuple[int, ...], RowStep] = {}
    for position, step in program.steps.items():
        followed = followed_product(position, program)
        made = row_step(step, program) if followed is None else None
        if followed is not None:
            tasks[followed[0]] = followed[1]
        elif made is not None:
            tasks[position,] = made
    return dict(sorted(tasks.items(), key=lambda row: row[0][-1]))


def _fused(members: Mapping[tuple[int, ...], RowStep], program: FusibleProgram, scratch: Scratch) -> FusedSteps:
    whole = _part(members, program, scratch)
    if all(step.cache is None for step in members.values()):
        return whole
    return FusedSteps(whole.positions, _WithCaches(whole, list(_parts(members, program, scratch))), whole.inputs, whole.outputs)


def _part(members: Mapping[tuple[int, ...], RowStep], program: FusibleProgram, scratch: Scratch) -> FusedSteps:
    """Some steps as one sequence."""
    positions = tuple(sorted(position for own in members for position in own))
    written = {index for step in members.values() for index in step.outputs}
    made = {index for position in positions for index in program.steps[position].outputs}
    inputs = tuple(sorted({index for position in positions for index in program.steps[position].inputs if index} - made))
    outputs = tuple(sorted(index for index in written if not set(positions) >= set(program.readers.get(index, ()))))
    return FusedSteps(positions, RowSequence(list(members.values()), inputs, outputs, scratch), inputs, outputs)


def _parts(
    members: Mapping[tuple[int, ...], RowStep], program: FusibleProgram, scratch: Scratch
) -> Iterator[FusedSteps | FusibleStep]:
    """Steps that attend a cache, as they are, and what lies between them."""
    group: dict[tuple[int, ...], RowStep] = {}
    for positions, step in members.items():
        if step.cache is None:
            group[positions] = step
            continue
        if group:
            yield _part(group, program, scratch)
        group = {}
        yield program.steps[positions[0]]
    if group:
        yield _part(group, program, scratch)


class _WithCaches:
    """Steps among which some attend caches: all at once where queries are few, else in parts.

    Args:
        whole: all of them.
        parts: in order.
    """

    def __init__(self, whole: FusedSteps, parts: Sequence[FusedSteps | FusibleStep]) -> None:
        self._whole, self._parts = whole, parts

    def compute(self, *inputs: HostArray) -> Any:
        """New outputs; ``NotImplemented`` for what a part cannot."""
        result = self._whole.kernel.compute(*inputs)
        if result is not NotImplemented:
            return result
        values: dict[int, Any] = {0: None, **dict(zip(self._whole.inputs, inputs, strict=True))}
        for part in self._parts:
            made = part.kernel.compute(*[values[index] for index in part.inputs])
            if made is NotImplemented:
                return NotImplemented
            values.update(zip(part.outputs, made if isinstance(made, tuple) else (made,), strict=False))
            values[0] = None
        results = tuple(values[index] for index in self._whole.outputs)
        return results if len(results) > 1 else results[0]


@dataclass(frozen=True, slots=True)
class _Slot:
    """Where a value is in working memory: bytes for each row in front of it, and others."""

    row_bytes: int
    offset: int


class _Layout:
    """Places of the values between steps; one that is not read any more leaves its place to others as wide.

    Args:
        steps: in order.
        outside: values that have memory of their own.
    """

    def __init__(self, steps: Sequence[RowStep], outside: frozenset[int]) -> None:
        self.slots: dict[int, _Slot] = {}
        self.row_bytes = self.offset = 0
        last = {index: position for position, step in enumerate(steps) for index in (*step.writes, *step.reads)}
        free: dict[int, list[_Slot]] = {}
        for position, step in enumerate(steps):
            for index in step.writes:
                if index not in outside:
                    waiting = free.get(step.widths[index])
                    self.slots[index] = waiting.pop() if waiting else self._new(step.widths[index])
            for index in {*step.writes, *step.reads}:
                if last[index] == position and index in self.slots:
                    free.setdefault(step.widths[index], []).append(self.slots[index])

    def _new(self, width: int) -> _Slot:
        slot = _Slot(self.row_bytes, self.offset)
        self.row_bytes += -(-width * 4 // 64) * 64
        self.offset += APART_BYTES
        return slot

    def word(self, word: Word) -> Word:
        """The word with the address of a value between steps as that of the memory and a distance."""
        if not isinstance(word, tuple):
            return word
        terms: list[tuple[Any, int]] = []
        for name, factor in word:
            slot = self.slots.get(name[1]) if isinstance(name, tuple) and name[0] == "value" else None
            if slot is None:
                terms.append((name, factor))
            else:
                terms += [("base", factor), ("rows", slot.row_bytes), ("one", slot.offset)]
        return tuple(terms)

    def placed(self, step: RowStep) -> TaskWords:
        """A step's task with these addresses."""
        return TaskWords(step.task.module, step.task.name, tuple(self.word(word) for word in step.task.words))


@dataclass(frozen=True, slots=True)
class _Shaped:
    """Words for rows of some number."""

    words: HostArray
    threads: int
    bytes: int
    base: int


class RowSequence:
    """Steps that make rows of rows. For one thread at a time.

    Args:
        steps: in order.
        inputs: values that are given.
        outputs: values that are asked for.
        scratch: working memory.
    """

    def __init__(self, steps: Sequence[RowStep], inputs: Sequence[int], outputs: Sequence[int], scratch: Scratch) -> None:
        self._steps, self._scratch = steps, scratch
        widths = {index: width for step in steps for index, width in step.widths.items()}
        self._given = [(place, index, widths[index]) for place, index in enumerate(inputs) if index in widths]
        self._added = {step.added: inputs.index(step.added.index) for step in steps if step.added is not None}
        self._outputs = [(index, widths[index], ResultMemory()) for index in outputs if index in widths]
        self._caches = [step.cache for step in steps if step.cache is not None]
        self._read = [(index, inputs.index(index)) for index in {index for cache in self._caches for index in cache.inputs}]
        self._order = outputs
        self._layout = _Layout(steps, frozenset((*inputs, *outputs)))
        self._sequence = RecordSequence([self._layout.placed(step) for step in steps])
        self._products = sorted({step.product for step in steps if step.product is not None}, key=str)
        self._numbers = sum(step.product.inner * step.product.columns for step in steps if step.product is not None)
        """Of all second operands."""
        self._has_attention = any(not step.goes_by_rows for step in steps)
        self._waits: dict[frozenset[ProductSizes], list[bool]] = {}
        """By products whose rows are split among the threads."""
        self._shaped: OrderedDict[tuple[int, ...], _Shaped] = OrderedDict()

    def compute(self, *inputs: HostArray) -> Any:
        """New outputs; ``NotImplemented`` for no rows, and where those of an input are others or lie apart."""
        lead = inputs[self._given[0][0]].shape[:-1]
        rows = math.prod(lead)
        if not rows or (self._has_attention and len(lead) != 2) or not self._fit(inputs, lead):
            return NotImplemented
        caches = self._cache_words(inputs, lead)
        if caches is None:
            return NotImplemented
        shaped = self._shaped_for(lead, rows)
        words, sequence = shaped.words.copy(), self._sequence
        for place, index, _ in self._given:
            sequence.add(words, ("value", index), address_of(inputs[place]))
        for scores, place in self._added.items():
            self._add_scores(words, scores, inputs[place], lead)
        outputs: dict[int, HostArray] = {}
        for index, width, results in self._outputs:
            out = outputs[index] = results.empty((*lead, width))
            sequence.add(words, ("value", index), address_of(out))
        for found in caches:
            for name, number in found.numbers:
                sequence.add(words, name, number)
            outputs.update(found.outputs)
        run_sequence(words, shaped.threads)
        made = tuple(outputs[index] for index in self._order)
        return made if len(made) > 1 else made[0]

    def _cache_words(self, inputs: Sequence[HostArray], lead: tuple[int, ...]) -> list[CacheWords] | None:
        """What the run has of each cache; None if it has one that tasks do not take."""
        given = {index: inputs[place] for index, place in self._read}
        shared: dict[Any, Any] = {}
        found: list[CacheWords] = []
        for cache in self._caches:
            made = cache.words(given, lead, shared)
            if made is None:
                return None
            found.append(made)
        return found

    def _fit(self, inputs: Sequence[HostArray], lead: tuple[int, ...]) -> bool:
        for place, _, width in self._given:
            array = inputs[place]
            if array.shape != (*lead, width) or not array.flags.c_contiguous:
                return False
        return all(_broadcasts(inputs[place], scores.heads, lead) for scores, place in self._added.items())

    def _add_scores(self, words: HostArray, scores: AddedScores, array: HostArray, lead: tuple[int, ...]) -> None:
        shape = (lead[0], scores.heads, lead[1], lead[1])
        for position, number in enumerate((address_of(array), *strides_over(shape, array.shape, array.strides))):
            self._sequence.add(words, (scores, position), number)

    def _shaped_for(self, lead: tuple[int, ...], rows: int) -> _Shaped:
        found = self._shaped.get(lead)
        if found is not None and found.base == self._scratch.address(WORKING_MEMORY, found.bytes):
            return found
        made = self._made(lead, rows)
        self._shaped[lead] = made
        if len(self._shaped) > MOST_SHAPES:
            self._shaped.popitem(last=False)
        return made

    def _made(self, lead: tuple[int, ...], rows: int) -> _Shaped:
        most = libraries.thread_count()
        plans = {sizes: planned(sizes.of_rows(rows), most) for sizes in self._products}
        threads = max((plan.threads for plan in plans.values()), default=1)
        if rows <= FEW_ROWS:
            threads = max(threads, min(most, self._numbers // NUMBERS_WORTH_WAKING))
        work = max([plan.work_bytes // plan.threads for plan in plans.values()] + [step.work for step in self._steps])
        work = -(-work // 64) * 64
        values = -(-(self._layout.row_bytes * rows + self._layout.offset) // 64) * 64
        base = self._scratch.address(WORKING_MEMORY, values + work * threads)
        numbers: dict[Any, int] = {"rows": rows, "base": base, "one": 1, "work": base + values, "work bytes": work}
        if self._has_attention:
            numbers |= {"batch": lead[0], "length": lead[1]}
        by_rows: frozenset[ProductSizes] = frozenset()
        for sizes, plan in plans.items():
            *parts, _, at_once = plan.rest
            if rows <= FEW_ROWS:
                # A team that is there anyway reads all second operands together.
                parts = list(parts_of(sizes.of_rows(rows), threads))
            numbers |= {(sizes, position): number for position, number in enumerate((*parts, at_once))}
            if tuple(parts) == (threads, 1):
                by_rows |= {sizes}
        if by_rows not in self._waits:
            self._waits[by_rows] = self._waits_with(by_rows)
        words = self._sequence.filled(numbers, threads, self._waits[by_rows])
        for index, step in enumerate(self._steps):
            if step.product is not None:
                place = words[HEAD_WORDS + STEP_WORDS * index] // WORD
                words[place] = task_address(step.task.module, plans[step.product].task)
        return _Shaped(words, threads, values + work * threads, base)

    def _waits_with(self, by_rows: frozenset[ProductSizes]) -> list[bool]:
        """For each step, whether it has to wait for all threads: it needs what others wrote, or writes where others read."""
        waits, since = [], _Since()
        for step in self._steps:
            is_local = step.goes_by_rows and (step.product is None or step.product in by_rows)
            read, written = self._places(step.reads), self._places(step.writes)
            waits.append(since.conflicts(read, written, is_local=is_local))
            if waits[-1]:
                since = _Since()
            since.note(read, written, is_local=is_local)
        return waits

    def _places(self, values: Sequence[int]) -> set[Any]:
        return {self._layout.slots.get(index, index) for index in values}


class _Since:
    """What was read and written since threads waited for each other: by threads in their own rows, and in others."""

    def __init__(self) -> None:
        self._read: dict[bool, set[Any]] = {True: set(), False: set()}
        self._written: dict[bool, set[Any]] = {True: set(), False: set()}

    def conflicts(self, read: set[Any], written: set[Any], *, is_local: bool) -> bool:
        """Whether a step must not start before all others are done."""
        kinds = (False,) if is_local else (True, False)
        return any(
            not (read | written).isdisjoint(self._written[kind]) or not written.isdisjoint(self._read[kind]) for kind in kinds
        )

    def note(self, read: set[Any], written: set[Any], *, is_local: bool) -> None:
        """Take note of a step."""
        self._read[is_local] |= read
        self._written[is_local] |= written


def _broadcasts(array: HostArray, heads: int, lead: tuple[int, ...]) -> bool:
    """Whether an array can be added to scores."""
    scores = (lead[0], heads, lead[1], lead[1])
    return array.ndim == 4 and all(own in {1, whole} for own, whole in zip(array.shape, scores, strict=True))
