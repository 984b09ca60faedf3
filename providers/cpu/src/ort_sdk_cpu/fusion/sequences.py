"""Steps that make rows of rows, one after the other, as one step where shapes vary: a transformer's layers are one call.

The team of threads starts once for all of them. Values between them lie in working memory, and each thread goes through its own
rows from task to task: it waits for the others only where it needs theirs.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

from ort_sdk.api import FusedSteps, FusibleProgram, FusibleStep, HostArray
from ort_sdk.api.data_classes import dataclass
from ort_sdk_cpu import libraries
from ort_sdk_cpu.addresses import address_of
from ort_sdk_cpu.kernels.compiled_product import FEW_ROWS, SHARED_TASK, ProductSizes, divided, planned
from ort_sdk_cpu.kernels.recycled import ResultMemory
from ort_sdk_cpu.kernels.scratch import Scratch
from ort_sdk_cpu.machine_code import WORD, task_address
from ort_sdk_cpu.task_sequence import HEAD_WORDS, STEP_WORDS, RecordSequence, run_sequence

from .attention import AttentionGroup
from .attention_rows import grouped_attention
from .cached_steps import CacheWords
from .expressions import Expressions
from .loops import strides_over
from .normalized_heads import normalization_of_heads
from .rotated_rows import rotation_of_heads
from .row_layout import RowLayout
from .row_places import place_step
from .row_steps import AddedScores, RowStep, followed_product, row_step
from .row_views import RowViews
from .sequence_bounds import LaunchedTask, Span, check_tasks, spans_of

__all__ = ["RowSequence", "Tasks", "fused_sequence", "misplaced", "sequences_of", "tasks_of"]

LEAST_STEPS = 3
"""Steps from which a sequence takes less time than they do one by one."""
MOST_SHAPES = 8
"""Shapes whose words are kept."""
MOST_CHECKED = 4096
"""Shapes that are known to be right: texts of any length come again and again, and checking takes as long as making words."""
DIMENSIONS = 3
"""Of rows, if nothing but (batch, tokens) places of them is given."""
WORKING_MEMORY = "sequence"
NUMBERS_WORTH_WAKING = 1 << 19
"""Of all second operands, for each thread, that few rows are multiplied by: a thread that sleeps takes long to wake."""


Readers = Mapping[int, Sequence[int]]
Tasks = Mapping[tuple[int, ...], RowStep]
"""Positions of steps → the task that they are, in the order of their last."""


def tasks_of(program: FusibleProgram, told: Expressions, groups: Sequence[AttentionGroup]) -> Tasks:
    """All steps of a program whose shapes vary that make rows of rows.

    Args:
        program: the program.
        told: its expressions.
        groups: its attentions of several steps.
    """
    tasks: dict[tuple[int, ...], RowStep] = {}
    views = RowViews(program, told, {group.output: group.query_value for group in groups})
    for position, step in program.steps.items():
        followed = followed_product(position, program)
        made = row_step(step, program) or place_step(step, program) if followed is None else None
        positions, task = followed if followed is not None else ((position,), made)
        if task is not None:
            tasks[positions] = task.over(views)
        if task is not None and task.goes_by_rows:
            for index in task.writes:
                views.keep(index, step.inputs[0])
    several: dict[tuple[int, ...], RowStep] = {}
    for position in program.steps:
        for find in (normalization_of_heads, rotation_of_heads):
            found = find(position, program, views)
            several |= {} if found is None else dict([found])
    several |= dict(filter(None, [grouped_attention(group, program, views, told) for group in groups]))
    taken = {position for positions in several for position in positions}
    tasks = {positions: task for positions, task in tasks.items() if taken.isdisjoint(positions)} | several
    return dict(sorted(tasks.items(), key=lambda row: row[0][-1]))


def sequences_of(tasks: Tasks, program: FusibleProgram, readers: Readers) -> list[Tasks]:
    """Tasks that follow each other, with nothing between that needs what one of them makes; those worth it.

    Args:
        tasks: of the program.
        program: the program.
        readers: value → positions where it is read, if steps whose work the tasks do are left out.
    """
    return [members for members in _segments(tasks, program, readers) if _is_worth_it(members)]


def _is_worth_it(members: Tasks) -> bool:
    """Whether tasks are several, and not all element by element: those may be one loop."""
    return sum(map(len, members)) >= LEAST_STEPS and any(task.task.module != "elementwise" for task in members.values())


def misplaced(members: Tasks, program: FusibleProgram, readers: Readers) -> set[tuple[int, ...]]:
    """Positions of those tasks of a sequence that need to know what it does not read, or in the midst of which others read."""
    inputs, whole = {0, *_given(members, program)}, {position for positions in members for position in positions}
    found = set()
    for positions, task in members.items():
        made = {index for position in positions for index in program.steps[position].outputs if index}.difference(task.outputs)
        read = {reader for index in made for reader in readers.get(index, ())}
        elsewhere = {reader for index in task.rearranged for reader in readers.get(index, ())} - whole
        early = any(reader <= positions[-1] for index in task.outputs for reader in set(readers.get(index, ())) - whole)
        known = {index for index, *_ in task.required}.union(() if task.cache is None else task.cache.inputs)
        if elsewhere or early or not known <= inputs or not read.issubset(positions):
            found.add(positions)
    return found


def _segments(tasks: Tasks, program: FusibleProgram, readers: Readers) -> Iterator[Tasks]:
    covered = {position for positions in tasks for position in positions}
    members: dict[tuple[int, ...], RowStep] = {}
    values: set[int] = set()
    made: set[int] = set()
    end = math.inf
    asked = {index for task in tasks.values() for index, *_ in task.required}
    for positions, task in tasks.items():
        is_unfit = any(index in made for index, *_ in task.required)
        others = [reader for index in task.outputs for reader in readers.get(index, ()) if reader not in covered]
        if task.lead and (others or not asked.isdisjoint(task.outputs)):
            # What asks for their shape would end a sequence that begins with them.
            continue
        if positions[-1] > end or values.isdisjoint(task.reads) or is_unfit:
            yield members
            members, values, made, end = {}, set(), set(), math.inf
        members[positions] = task
        values.update(task.widths)
        made.update(index for position in positions for index in program.steps[position].outputs if index)
        end = min([end, *others])
    yield members


def fused_sequence(members: Tasks, program: FusibleProgram, readers: Readers, scratch: Scratch) -> FusedSteps:
    """A sequence as one step.

    Args:
        members: its tasks.
        program: the program.
        readers: as for ``sequences_of``.
        scratch: working memory.
    """
    positions, repeated = _covered(members)
    inputs = _given(members, program)
    outputs = _outputs(members, positions, readers)
    kernel: Any = RowSequence(list(members.values()), inputs, outputs, program, scratch)
    if any(step.cache is not None for step in members.values()):
        kernel = _WithCaches(kernel, list(_parts(members, program, scratch)), inputs, outputs, program)
    return FusedSteps(positions, kernel, inputs, outputs, repeated)


def _covered(members: Tasks) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Positions of tasks, and of the steps whose work they do beside."""
    positions = sorted(position for own in members for position in own)
    repeated = frozenset().union(*(step.repeated for step in members.values())).difference(positions)
    return tuple(positions), tuple(sorted(repeated))


def _given(members: Tasks, program: FusibleProgram) -> tuple[int, ...]:
    """What the tasks need, and what steps whose work they do would."""
    positions, repeated = ([program.steps[position] for position in own] for own in _covered(members))
    made, again = ({index for step in steps for index in step.outputs} for steps in (positions, repeated))
    read = {index for step in (*positions, *repeated) for index in step.inputs if index and not _is_constant(program, index)}
    needed = frozenset().union(*(task.needs for task in members.values()))
    return tuple(sorted((read - again | needed) - made))


def _is_constant(program: FusibleProgram, index: int) -> bool:
    shown = program.values.get(index)
    return shown is not None and shown.constant is not None


def _outputs(members: Tasks, positions: Sequence[int], readers: Readers) -> tuple[int, ...]:
    written = {index for step in members.values() for index in step.outputs}
    return tuple(sorted(index for index in written if not set(positions) >= set(readers.get(index, ()))))


def _part(members: Tasks, program: FusibleProgram, scratch: Scratch) -> FusedSteps:
    """Some tasks as a sequence of their own, which gives whatever other steps read."""
    positions = tuple(sorted(position for own in members for position in own))
    made = {index for step in members.values() for index in step.outputs}
    known = {index for step in members.values() for index, *_ in step.required if index}
    inputs = tuple(sorted(known.union(*(step.needs for step in members.values())) - made))
    outputs = _outputs(members, positions, program.readers)
    return FusedSteps(positions, RowSequence(list(members.values()), inputs, outputs, program, scratch), inputs, outputs)


def _parts(members: Tasks, program: FusibleProgram, scratch: Scratch) -> Iterator[FusedSteps | FusibleStep]:
    """Steps that attend a cache, or whose results lie otherwise, as they are, and what lies between them."""
    group: dict[tuple[int, ...], RowStep] = {}
    for positions, step in members.items():
        if step.cache is None and not step.rearranged:
            group[positions] = step
            continue
        if group:
            yield _part(group, program, scratch)
        group = {}
        yield from _apart(positions, step, program)
    if group:
        yield _part(group, program, scratch)


def _apart(positions: tuple[int, ...], task: RowStep, program: FusibleProgram) -> Iterator[FusedSteps | FusibleStep]:
    """The steps of a task one by one, but for those that are one."""
    one = () if task.apart is None else task.apart.positions
    for position in sorted(task.repeated.union(positions)):
        if task.apart is not None and position == one[-1]:
            yield task.apart
        elif position not in one:
            yield program.steps[position]


class _WithCaches:
    """Steps among which some attend caches: all at once where queries are few, else in parts.

    Args:
        whole: all of them.
        parts: in order.
        inputs: values that are given.
        outputs: values that are asked for.
        program: the program.
    """

    def __init__(
        self,
        whole: RowSequence,
        parts: Sequence[FusedSteps | FusibleStep],
        inputs: Sequence[int],
        outputs: Sequence[int],
        program: FusibleProgram,
    ) -> None:
        self._whole, self._parts, self._inputs, self._outputs = whole, parts, inputs, outputs
        read = {index for part in parts for index in part.inputs}
        self._constants = {index: program.values[index].constant for index in read if _is_constant(program, index)}

    def compute(self, *inputs: HostArray) -> Any:
        """New outputs; ``NotImplemented`` for what a part cannot."""
        result = self._whole.compute(*inputs)
        if result is not NotImplemented:
            return result
        values: dict[int, Any] = {0: None, **self._constants, **dict(zip(self._inputs, inputs, strict=True))}
        for part in self._parts:
            made = part.kernel.compute(*[values[index] for index in part.inputs])
            if made is NotImplemented:
                return NotImplemented
            values.update(zip(part.outputs, made if isinstance(made, tuple) else (made,), strict=False))
            values[0] = None
        results = tuple(values[index] for index in self._outputs)
        return results if len(results) > 1 else results[0]


@dataclass(slots=True)
class _Shaped:
    """Words for rows of some number."""

    words: HostArray
    threads: int
    bytes: int
    base: int
    tasks: tuple[tuple[str, str], ...]
    """Module and name of each."""
    lead: tuple[int, ...]
    """Shape of the rows' leading dimensions."""


class RowSequence:
    """Steps that make rows of rows. For one thread at a time.

    Args:
        steps: in order.
        inputs: values that are given.
        outputs: values that are asked for.
        program: says of how many dimensions they are.
        scratch: working memory.
    """

    def __init__(
        self,
        steps: Sequence[RowStep],
        inputs: Sequence[int],
        outputs: Sequence[int],
        program: FusibleProgram,
        scratch: Scratch,
    ) -> None:
        self._steps, self._scratch = steps, scratch
        widths = {index: width for step in steps for index, width in step.widths.items()}
        ranks = {index: len(program.values[index].shape) for index in widths}
        given = [(place, index, widths[index]) for place, index in enumerate(inputs) if index in widths]
        self._given = sorted(given, key=lambda row: -ranks[row[1]])
        """Those of most dimensions first."""
        self._leads = [inputs.index(step.lead) for step in steps if step.lead]
        most = ranks[self._given[0][1]] if self._given else DIMENSIONS
        self._flat = {index for index, rank in ranks.items() if rank < most}
        """Values that are a matrix of all rows."""
        required = {own for step in steps for own in step.required}
        self._required = [(inputs.index(index), axis, lead) for index, axis, lead in required if index]
        self._hides_nan = any(step.hides_nan for step in steps)
        self._fixed = [(number, lead) for index, number, lead in required if not index]
        self._needs_batch = any(not step.goes_by_rows for step in steps) or bool(required or self._flat)
        self._added = {step.added: inputs.index(step.added.index) for step in steps if step.added is not None}
        self._outputs = [(index, widths[index], ResultMemory()) for index in outputs if index in widths]
        self._caches = [step.cache for step in steps if step.cache is not None]
        self._read = [(index, inputs.index(index)) for index in {index for cache in self._caches for index in cache.inputs}]
        self._order = outputs
        self._layout = RowLayout(steps, frozenset((*inputs, *outputs)))
        self._sequence = RecordSequence([self._layout.placed(step) for step in steps])
        self._failing = [place for place, step in enumerate(steps) if step.may_fail]
        self._products = sorted({step.product for step in steps if step.product is not None}, key=str)
        self._numbers = sum(step.product.inner * step.product.columns for step in steps if step.product is not None)
        """Of all second operands."""
        self._has_attention = any(not step.goes_by_rows for step in steps)
        self._waits: dict[tuple[frozenset[ProductSizes], frozenset[ProductSizes]], list[bool]] = {}
        """By products whose rows are split among the threads, and products of whose second operands each has some rows."""
        self._shaped: OrderedDict[tuple[int, ...], _Shaped] = OrderedDict()
        self._checked: set[tuple[tuple[int, ...], int, int]] = set()
        """Leading shape, threads and bytes of working memory with which all tasks were checked."""

    def compute(self, *inputs: HostArray) -> Any:
        """New outputs; ``NotImplemented`` for no rows, and where those of an input are others or lie apart."""
        lead = inputs[self._given[0][0]].shape[:-1] if self._given else inputs[self._leads[0]].shape
        rows = math.prod(lead)
        if not rows or (self._needs_batch and len(lead) != 2) or not self._fit(inputs, lead, rows):
            return NotImplemented
        caches = self._cache_words(inputs, lead)
        if caches is None:
            return NotImplemented
        shaped = self._shaped_for(lead, rows)
        numbers: list[tuple[Hashable, int]] = [(("value", index), address_of(inputs[place])) for place, index, _ in self._given]
        for scores, place in self._added.items():
            numbers += _numbers_of_scores(scores, inputs[place], lead)
        outputs: dict[int, HostArray] = {}
        for index, width, results in self._outputs:
            out = outputs[index] = results.empty((rows, width) if index in self._flat else (*lead, width))
            numbers.append((("value", index), address_of(out)))
        for found in caches:
            numbers += found.numbers
            outputs.update(found.outputs)
        words = shaped.words.copy()
        self._sequence.add(words, numbers)
        # What is touched follows from these. Words are kept for fewer shapes.
        key = (shaped.lead, shaped.threads, shaped.bytes)
        if key not in self._checked:
            self._check(words, shaped, (*inputs, *outputs.values(), *(each for found in caches for each in found.kept)))
            if len(self._checked) >= MOST_CHECKED:
                self._checked.clear()
            self._checked.add(key)
        run_sequence(words, shaped.threads)
        if any(words[_record_of(words, place) + 1] for place in self._failing):
            return NotImplemented
        if self._hides_nan and any(math.isnan(outputs[index].sum()) for index, *_ in self._outputs):
            return NotImplemented
        made = tuple(outputs[index] for index in self._order)
        return made if len(made) > 1 else made[0]

    def _check(self, words: HostArray, shaped: _Shaped, arrays: Sequence[Any]) -> None:
        """Look whether all tasks stay within arrays, the steps' own and working memory, in the first run with some rows.

        Raises:
            ExtentError: one would not.
        """
        kept = (each for step in self._steps for each in step.kept)
        spans = [*spans_of(arrays), *spans_of(kept), Span(shaped.base, shaped.base + shaped.bytes, True)]
        records = [_record_of(words, step) + 1 for step in range(len(self._steps))]
        tasks = [
            LaunchedTask(*name, words[first : first + len(step.task.words)].tolist())
            for name, first, step in zip(shaped.tasks, records, self._steps, strict=True)
        ]
        check_tasks(tasks, shaped.threads, spans)

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

    def _fit(self, inputs: Sequence[HostArray], lead: tuple[int, ...], rows: int) -> bool:
        for place, index, width in self._given:
            array = inputs[place]
            shape = (rows, width) if index in self._flat else (*lead, width)
            if array.shape != shape or not array.flags.c_contiguous:
                return False
        if any(inputs[place].shape[axis] != lead[own] for place, axis, own in self._required):
            return False
        if any(lead[own] != number for number, own in self._fixed):
            return False
        return all(_broadcasts(inputs[place], scores.heads, lead) for scores, place in self._added.items())

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
        products = {sizes: planned(sizes.of_rows(rows), most).division for sizes in self._products}
        threads = max((division.threads for division in products.values()), default=1)
        if rows <= FEW_ROWS:
            # A team that is there anyway reads all second operands together.
            threads = max(threads, min(most, self._numbers // NUMBERS_WORTH_WAKING))
            products = {sizes: divided(sizes.of_rows(rows), threads) for sizes in self._products}
        work = max([each.work_bytes // each.threads for each in products.values()] + [step.work for step in self._steps])
        work = -(-work // 64) * 64
        values = -(-(self._layout.row_bytes * rows + self._layout.offset) // 64) * 64
        base = self._scratch.address(WORKING_MEMORY, values + work * threads)
        numbers: dict[Any, int] = {"rows": rows, "base": base, "one": 1, "work": base + values, "work bytes": work}
        if self._has_attention:
            numbers |= {"batch": lead[0], "length": lead[1]}
        for sizes, division in products.items():
            *parts, _, at_once = division.rest
            numbers |= {(sizes, position): number for position, number in enumerate((*parts, at_once))}
        by_rows = frozenset(sizes for sizes, division in products.items() if division.rest[:2] == (threads, 1))
        shared = frozenset(sizes for sizes, division in products.items() if division.task == SHARED_TASK)
        if (by_rows, shared) not in self._waits:
            self._waits[by_rows, shared] = self._waits_with(by_rows, shared)
        words = self._sequence.filled(numbers, threads, self._waits[by_rows, shared])
        names = [
            (step.task.module, step.task.name if step.product is None else products[step.product].task) for step in self._steps
        ]
        for index, (step, name) in enumerate(zip(self._steps, names, strict=True)):
            if step.product is not None:
                words[_record_of(words, index)] = task_address(*name)
        return _Shaped(words, threads, values + work * threads, base, tuple(names), lead)

    def _waits_with(self, by_rows: frozenset[ProductSizes], shared: frozenset[ProductSizes]) -> list[bool]:
        """For each step, whether it has to wait for all threads: it needs what others wrote, or writes where others read.

        What follows a shared product always has: threads read each other's working memory to the end of it.
        """
        waits, since, follows = [], _Since(), False
        for step in self._steps:
            is_local = step.goes_by_rows and (step.product is None or step.product in by_rows)
            read, written = self._places(step.reads), self._places(step.writes)
            waits.append(since.conflicts(read, written, is_local=is_local) or follows)
            follows = step.product in shared
            if waits[-1]:
                since = _Since()
            since.note(read, written, is_local=is_local)
        return waits

    def _places(self, values: Sequence[int]) -> set[Any]:
        return {self._layout.slots.get(index, index) for index in values}


def _record_of(words: HostArray, step: int) -> int:
    """Where the address of a step's task is, in front of its arguments."""
    return int(words[HEAD_WORDS + STEP_WORDS * step]) // WORD


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


def _numbers_of_scores(scores: AddedScores, array: HostArray, lead: tuple[int, ...]) -> Iterator[tuple[Hashable, int]]:
    """Address, and bytes from one to the next along four axes."""
    shape = (lead[0], scores.heads, lead[1], lead[1])
    for position, number in enumerate((address_of(array), *strides_over(shape, array.shape, array.strides))):
        yield (scores, position), number


def _broadcasts(array: HostArray, heads: int, lead: tuple[int, ...]) -> bool:
    """Whether an array can be added to scores."""
    scores = (lead[0], heads, lead[1], lead[1])
    return array.ndim == 4 and all(own in {1, whole} for own, whole in zip(array.shape, scores, strict=True))
