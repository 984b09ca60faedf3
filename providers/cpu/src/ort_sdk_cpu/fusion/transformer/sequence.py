"""A sequence of tasks on rows: their words for each number of rows, and what a run adds to them."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

from ort_sdk.api import FusibleProgram, HostArray
from ort_sdk.api.data_classes import dataclass
from ort_sdk_cpu.gemm.plan import partition_gemm, plan_gemm
from ort_sdk_cpu.gemm.select import FEW_ROWS, BLayout, GemmAlgorithm
from ort_sdk_cpu.jit.task import WORD, task_address
from ort_sdk_cpu.jit.task_sequence import HEAD_WORDS, STEP_WORDS, RecordSequence, run_sequence
from ort_sdk_cpu.memory.result_pool import ResultMemory
from ort_sdk_cpu.memory.strides import strides_over
from ort_sdk_cpu.memory.workspace import Scratch
from ort_sdk_cpu.platform import libraries
from ort_sdk_cpu.platform.addresses import address_of

from .bounds import LaunchedTask, Span, check_tasks, spans_of
from .buffers import RowLayout
from .decode import CacheWords
from .nbits import behind_arranged
from .steps import AddedScores, RowStep

__all__ = ["RowSequence"]

MOST_SHAPES = 8
"""Shapes whose words are kept."""
MOST_CHECKED = 4096
"""Shapes that are known to be right: texts of any length come again and again, and checking takes as long as making words."""
DIMENSIONS = 3
"""Of rows, if nothing but (batch, tokens) places of them is given."""
WORKING_MEMORY = "sequence"
NUMBERS_WORTH_WAKING = 1 << 19
"""Of all second operands, for each thread, that few rows are multiplied by: a thread that sleeps takes long to wake."""


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
        steps = behind_arranged(steps)
        self._steps, self._scratch = steps, scratch
        widths = {index: width for step in steps for index, width in step.widths.items()}
        ranks = {index: len(program.values[index].shape) for index in widths if index in program.values}
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
        self._numbers = sum(step.product.k * step.product.n for step in steps if step.product is not None)
        """Of all second operands of products of float32."""
        self._packed_numbers = sum(step.numbers for step in steps)
        self._most_rows = min((step.most_rows for step in steps if step.most_rows), default=0)
        self._has_attention = any(not step.goes_by_rows for step in steps)
        self._waits: dict[tuple[frozenset[BLayout], frozenset[BLayout]], list[bool]] = {}
        """By products whose rows are split among the threads, and products of whose second operands each has some rows."""
        self._shaped: OrderedDict[tuple[int, ...], _Shaped] = OrderedDict()
        self._checked: set[tuple[tuple[int, ...], int, int]] = set()
        """Leading shape, threads and bytes of working memory with which all tasks were checked."""

    def compute(self, *inputs: HostArray) -> Any:
        """New outputs; ``NotImplemented`` for no rows, for too many, and where those of an input are others or lie apart."""
        lead = inputs[self._given[0][0]].shape[:-1] if self._given else inputs[self._leads[0]].shape
        rows = math.prod(lead)
        if not rows or 0 < self._most_rows < rows or (self._needs_batch and len(lead) != 2) or not self._fit(inputs, lead, rows):
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
        products = {sizes: plan_gemm(sizes.problem(rows), most).partition for sizes in self._products}
        threads = max((partition.threads for partition in products.values()), default=1)
        together = self._packed_numbers + (self._numbers if rows <= FEW_ROWS else 0)
        # A team that is there anyway reads all second operands together.
        threads = max(threads, min(most, together // NUMBERS_WORTH_WAKING))
        if rows <= FEW_ROWS:
            products = {sizes: partition_gemm(sizes.problem(rows), threads) for sizes in self._products}
        work = max([each.workspace_bytes // each.threads for each in products.values()] + [step.work for step in self._steps])
        work = -(-work // 64) * 64
        values = -(-(self._layout.row_bytes * rows + self._layout.offset) // 64) * 64
        base = self._scratch.address(WORKING_MEMORY, values + work * threads)
        numbers: dict[Any, int] = {"rows": rows, "base": base, "one": 1, "work": base + values, "work bytes": work}
        if self._has_attention:
            numbers |= {"batch": lead[0], "length": lead[1]}
        for sizes, partition in products.items():
            *parts, _, mc = partition.words
            numbers |= {(sizes, position): number for position, number in enumerate((*parts, mc))}
        by_rows = frozenset(sizes for sizes, partition in products.items() if partition.words[:2] == (threads, 1))
        shared = frozenset(sizes for sizes, partition in products.items() if partition.algorithm is GemmAlgorithm.SPLIT_K)
        if (by_rows, shared) not in self._waits:
            self._waits[by_rows, shared] = self._waits_with(by_rows, shared)
        words = self._sequence.filled(numbers, threads, self._waits[by_rows, shared])
        names = [
            (step.task.module, step.task.name if step.product is None else products[step.product].task.name)
            for step in self._steps
        ]
        for index, (step, name) in enumerate(zip(self._steps, names, strict=True)):
            if step.product is not None:
                words[_record_of(words, index)] = task_address(*name)
        return _Shaped(words, threads, values + work * threads, base, tuple(names), lead)

    def _waits_with(self, by_rows: frozenset[BLayout], shared: frozenset[BLayout]) -> list[bool]:
        """For each step, whether it has to wait for all threads: it needs what others wrote, or writes where others read.

        What follows a shared product always has: threads read each other's working memory to the end of it.
        """
        waits, since, follows = [], _Since(), False
        for step in self._steps:
            is_local = step.goes_by_rows and not step.by_columns and (step.product is None or step.product in by_rows)
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
