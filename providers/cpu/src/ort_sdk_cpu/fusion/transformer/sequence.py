"""Tasks on rows, a row for each token, as one call: a transformer's layers for any batch and number of tokens.

The records of all tasks are one array. It is filled in two steps: for a shape, with all that follows from batch and tokens, which
is kept for some shapes; and in each run with addresses of its arrays. One team of threads then goes from task to task
(``jit.task_sequence``), and meets only where a task needs rows that other threads made.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

from ort_sdk.api import FusibleProgram, HostArray
from ort_sdk.api.data_classes import dataclass
from ort_sdk_cpu.gemm.plan import Partition, partition_gemm, plan_gemm
from ort_sdk_cpu.gemm.select import FEW_ROWS, BLayout, GemmAlgorithm
from ort_sdk_cpu.jit.extents.sizes import VECTOR, round_up
from ort_sdk_cpu.jit.task_code import WORD_BYTES, task_address
from ort_sdk_cpu.jit.task_sequence import HEADER_WORDS, TASK_WORDS, SequenceTemplate, run_sequence
from ort_sdk_cpu.memory.result_pool import ResultAllocator
from ort_sdk_cpu.memory.strides import broadcast_strides
from ort_sdk_cpu.memory.workspace import Workspace
from ort_sdk_cpu.platform import libraries
from ort_sdk_cpu.platform.addresses import address_of

from .bounds import LaunchedTask, Span, check_tasks, spans_of
from .buffers import RowLayout
from .row_step import RowStep, RunArguments, ScoreBiasOperand
from .steps.nbits import with_activation_tasks

__all__ = ["RowSequence"]

MOST_SHAPES = 8
"""Shapes whose words are kept: some kilobytes each."""
MOST_CHECKED = 4096
"""Shapes that passed the check of extents: texts of any length come again, and checking takes as long as making words."""
ROW_RANK = 3
"""Rank of rows where only token ids (batch, tokens) are given."""
WORKSPACE = "sequence"
WEIGHTS_PER_THREAD = 1 << 19
"""Elements of all weights per thread where few rows are multiplied by them: reading so much (2 MiB of float32) takes longer than
waking a thread up."""


@dataclass(slots=True)
class _ShapedWords:
    """Words for rows of a batch shape."""

    words: HostArray
    """Of all records, as ``RecordSequence`` lays them out."""
    threads: int
    bytes: int
    """Of the workspace."""
    base: int
    """Its address."""
    tasks: tuple[tuple[str, str], ...]
    """Module and name of each."""
    batch_shape: tuple[int, ...]
    """Shape of the rows' leading dimensions: (batch, tokens), or (rows,)."""


class RowSequence:
    """Steps that map rows to rows, as a kernel. For one thread at a time.

    Args:
        steps: in order.
        inputs: values that are given.
        outputs: values that are wanted.
        program: knows their ranks.
        workspace: the workspace.
    """

    algorithm = "task_sequence"

    def __init__(
        self,
        steps: Sequence[RowStep],
        inputs: Sequence[int],
        outputs: Sequence[int],
        program: FusibleProgram,
        workspace: Workspace,
    ) -> None:
        steps = with_activation_tasks(steps)
        self._steps, self._workspace = steps, workspace
        widths = {index: width for step in steps for index, width in step.widths.items()}
        ranks = {index: len(program.values[index].shape) for index in widths if index in program.values}
        given = [(position, index, widths[index]) for position, index in enumerate(inputs) if index in widths]
        self._given = sorted(given, key=lambda row: -ranks[row[1]])
        """(input, value, width), those of the highest rank first."""
        self._shape_inputs = [inputs.index(step.batch_shape_of) for step in steps if step.batch_shape_of]
        most = ranks[self._given[0][1]] if self._given else ROW_RANK
        self._flat = {index for index, rank in ranks.items() if rank < most}
        """Values of shape (rows, width)."""
        required = {own for step in steps for own in step.required}
        self._required = [(inputs.index(index), axis, batch_axis) for index, axis, batch_axis in required if index]
        self._masks_nan = any(step.masks_nan for step in steps)
        self._fixed = [(number, batch_axis) for index, number, batch_axis in required if not index]
        self._needs_batch = any(not step.is_row_parallel for step in steps) or bool(required or self._flat)
        self._added = {step.added: inputs.index(step.added.index) for step in steps if step.added is not None}
        self._outputs = [(index, widths[index], ResultAllocator()) for index in outputs if index in widths]
        self._caches = [step.cache for step in steps if step.cache is not None]
        self._read = [(index, inputs.index(index)) for index in {index for cache in self._caches for index in cache.inputs}]
        self._order = outputs
        self._layout = RowLayout(steps, frozenset((*inputs, *outputs)))
        self._sequence = SequenceTemplate([self._layout.placed(step) for step in steps])
        self._failing = [position for position, step in enumerate(steps) if step.may_fail]
        self._products = sorted({step.product for step in steps if step.product is not None}, key=str)
        self._numbers = sum(step.product.k * step.product.n for step in steps if step.product is not None)
        """Elements of all weights of float32."""
        self._packed_numbers = sum(step.numbers for step in steps)
        self._most_rows = min((step.most_rows for step in steps if step.most_rows), default=0)
        self._has_attention = any(not step.is_row_parallel for step in steps)
        self._barriers: dict[tuple[frozenset[BLayout], frozenset[BLayout]], list[bool]] = {}
        """Whether each step waits for all threads; by GEMMs whose rows threads share, and GEMMs split along K."""
        self._shaped: OrderedDict[tuple[int, ...], _ShapedWords] = OrderedDict()
        self._checked: set[tuple[tuple[int, ...], int, int]] = set()
        """Batch shape, threads and bytes of workspace with which all tasks were checked."""

    def compute(self, *inputs: HostArray) -> Any:
        """New outputs; ``NotImplemented`` for no rows, for too many, and for inputs of other shapes, or not contiguous."""
        batch_shape = inputs[self._given[0][0]].shape[:-1] if self._given else inputs[self._shape_inputs[0]].shape
        rows = math.prod(batch_shape)
        is_fit = rows and not 0 < self._most_rows < rows and (not self._needs_batch or len(batch_shape) == 2)
        if not is_fit or not self._fit(inputs, batch_shape, rows):
            return NotImplemented
        caches = self._cache_words(inputs, batch_shape)
        if caches is None:
            return NotImplemented
        shaped = self._words_for(batch_shape, rows)
        numbers, outputs = self._bound(inputs, batch_shape, rows, caches)
        words = shaped.words.copy()
        self._sequence.add(words, numbers)
        self._check_once(words, shaped, (*inputs, *outputs.values(), *(each for found in caches for each in found.kept)))
        run_sequence(words, shaped.threads)
        if self._has_failed(words, outputs):
            return NotImplemented
        made = tuple(outputs[index] for index in self._order)
        return made if len(made) > 1 else made[0]

    def _bound(
        self, inputs: Sequence[HostArray], batch_shape: tuple[int, ...], rows: int, caches: Sequence[RunArguments]
    ) -> tuple[list[tuple[Hashable, int]], dict[int, HostArray]]:
        """Numbers of a run in the words, and new outputs by value."""
        numbers: list[tuple[Hashable, int]] = [
            (("value", index), address_of(inputs[position])) for position, index, _ in self._given
        ]
        for scores, position in self._added.items():
            numbers += _numbers_of_scores(scores, inputs[position], batch_shape)
        outputs: dict[int, HostArray] = {}
        for index, width, results in self._outputs:
            out = outputs[index] = results.empty((rows, width) if index in self._flat else (*batch_shape, width))
            numbers.append((("value", index), address_of(out)))
        for found in caches:
            numbers += found.numbers
            outputs.update(found.outputs)
        return numbers, outputs

    def _has_failed(self, words: HostArray, outputs: dict[int, HostArray]) -> bool:
        """Whether a task could not do its work, or made NaN where the steps do not."""
        if any(words[_record_of(words, position) + 1] for position in self._failing):
            return True
        return self._masks_nan and any(math.isnan(outputs[index].sum()) for index, *_ in self._outputs)

    def _check_once(self, words: HostArray, shaped: _ShapedWords, arrays: Sequence[Any]) -> None:
        """Check the extents of all tasks in the first run with a shape.

        Raises:
            ExtentError: a task would reach outside of an array.
        """
        # Extents follow from these alone. Words are kept for fewer shapes.
        key = (shaped.batch_shape, shaped.threads, shaped.bytes)
        if key not in self._checked:
            self._check(words, shaped, arrays)
            if len(self._checked) >= MOST_CHECKED:
                self._checked.clear()
            self._checked.add(key)

    def _check(self, words: HostArray, shaped: _ShapedWords, arrays: Sequence[Any]) -> None:
        """Check the extents of all tasks against arrays, constants and workspace.

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

    def _cache_words(self, inputs: Sequence[HostArray], batch_shape: tuple[int, ...]) -> list[RunArguments] | None:
        """What the run gives to each binder; None if one does not take its arrays."""
        given = {index: inputs[position] for index, position in self._read}
        shared: dict[Any, Any] = {}
        found: list[RunArguments] = []
        for cache in self._caches:
            made = cache.bind(given, batch_shape, shared)
            if made is None:
                return None
            found.append(made)
        return found

    def _fit(self, inputs: Sequence[HostArray], batch_shape: tuple[int, ...], rows: int) -> bool:
        for position, index, width in self._given:
            array = inputs[position]
            shape = (rows, width) if index in self._flat else (*batch_shape, width)
            if array.shape != shape or not array.flags.c_contiguous:
                return False
        if any(inputs[position].shape[axis] != batch_shape[own] for position, axis, own in self._required):
            return False
        if any(batch_shape[own] != number for number, own in self._fixed):
            return False
        return all(_broadcasts(inputs[position], scores.heads, batch_shape) for scores, position in self._added.items())

    def _words_for(self, batch_shape: tuple[int, ...], rows: int) -> _ShapedWords:
        found = self._shaped.get(batch_shape)
        if found is not None and found.base == self._workspace.address(WORKSPACE, found.bytes):
            return found
        made = self._made(batch_shape, rows)
        self._shaped[batch_shape] = made
        if len(self._shaped) > MOST_SHAPES:
            self._shaped.popitem(last=False)
        return made

    def _made(self, batch_shape: tuple[int, ...], rows: int) -> _ShapedWords:
        threads, gemms = self._partitioned(rows)
        work = max([each.workspace_bytes // each.threads for each in gemms.values()] + [step.work for step in self._steps])
        work = round_up(work, VECTOR)
        values = round_up(self._layout.row_bytes * rows + self._layout.offset, VECTOR)
        base = self._workspace.address(WORKSPACE, values + work * threads)
        numbers: dict[Any, int] = {"rows": rows, "base": base, "one": 1, "work": base + values, "work bytes": work}
        if self._has_attention:
            numbers |= {"batch": batch_shape[0], "length": batch_shape[1]}
        for sizes, partition in gemms.items():
            *parts, _, mc = partition.words
            numbers |= {(sizes, position): number for position, number in enumerate((*parts, mc))}
        words = self._sequence.filled(numbers, threads, self._barriers_for(gemms, threads))
        return _ShapedWords(words, threads, values + work * threads, base, self._put_tasks(words, gemms), batch_shape)

    def _partitioned(self, rows: int) -> tuple[int, dict[BLayout, Partition]]:
        """Threads, and how they share each GEMM."""
        most = libraries.thread_count()
        gemms = {sizes: plan_gemm(sizes.problem(rows), most).partition for sizes in self._products}
        threads = max((partition.threads for partition in gemms.values()), default=1)
        together = self._packed_numbers + (self._numbers if rows <= FEW_ROWS else 0)
        # A team that is there anyway reads all weights together.
        threads = max(threads, min(most, together // WEIGHTS_PER_THREAD))
        if rows <= FEW_ROWS:
            gemms = {sizes: partition_gemm(sizes.problem(rows), threads) for sizes in self._products}
        return threads, gemms

    def _barriers_for(self, gemms: Mapping[BLayout, Partition], threads: int) -> list[bool]:
        """What ``_barriers_with`` gives, kept for each way in which threads share GEMMs."""
        by_rows = frozenset(sizes for sizes, partition in gemms.items() if partition.words[:2] == (threads, 1))
        shared = frozenset(sizes for sizes, partition in gemms.items() if partition.algorithm is GemmAlgorithm.SPLIT_K)
        if (by_rows, shared) not in self._barriers:
            self._barriers[by_rows, shared] = self._barriers_with(by_rows, shared)
        return self._barriers[by_rows, shared]

    def _put_tasks(self, words: HostArray, gemms: Mapping[BLayout, Partition]) -> tuple[tuple[str, str], ...]:
        """Module and name of each task; those of GEMMs, which depend on their rows, are put into the words."""
        names = [
            (step.task.module, step.task.name if step.product is None else gemms[step.product].task.name) for step in self._steps
        ]
        for index, (step, name) in enumerate(zip(self._steps, names, strict=True)):
            if step.product is not None:
                words[_record_of(words, index)] = task_address(*name)
        return tuple(names)

    def _barriers_with(self, by_rows: frozenset[BLayout], shared: frozenset[BLayout]) -> list[bool]:
        """For each step, whether it has to wait for all threads: it needs what others wrote, or writes where others read.

        What follows a product that is split along K always has: threads read each other's workspace to the end of it.
        """
        barriers, since, follows = [], _Accesses(), False
        for step in self._steps:
            is_local = step.is_row_parallel and not step.by_columns and (step.product is None or step.product in by_rows)
            read, written = self._slots_of(step.reads), self._slots_of(step.writes)
            barriers.append(since.conflicts(read, written, is_local=is_local) or follows)
            follows = step.product in shared
            if barriers[-1]:
                since = _Accesses()
            since.note(read, written, is_local=is_local)
        return barriers

    def _slots_of(self, values: Sequence[int]) -> set[Any]:
        return {self._layout.slots.get(index, index) for index in values}


def _record_of(words: HostArray, step: int) -> int:
    """Index of the word with the address of a step's task, in front of its arguments."""
    return int(words[HEADER_WORDS + TASK_WORDS * step]) // WORD_BYTES


class _Accesses:
    """What was read and written since threads met: by threads in their own rows, and in others' rows."""

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
        """Add a step's accesses."""
        self._read[is_local] |= read
        self._written[is_local] |= written


def _numbers_of_scores(
    scores: ScoreBiasOperand, array: HostArray, batch_shape: tuple[int, ...]
) -> Iterator[tuple[Hashable, int]]:
    """Words of ``ScoreBias``."""
    shape = (batch_shape[0], scores.heads, batch_shape[1], batch_shape[1])
    for position, number in enumerate((address_of(array), *broadcast_strides(shape, array.shape, array.strides))):
        yield (scores, position), number


def _broadcasts(array: HostArray, heads: int, batch_shape: tuple[int, ...]) -> bool:
    """Whether an array broadcasts to the scores."""
    scores = (batch_shape[0], heads, batch_shape[1], batch_shape[1])
    return array.ndim == 4 and all(own in {1, whole} for own, whole in zip(array.shape, scores, strict=True))
