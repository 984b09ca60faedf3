"""Pattern matcher: attention written as single operators, perhaps over a cache that it lengthens, in runs whose shapes vary.

It starts from each Softmax, and follows scores back to QK^T through scales and masks, weights on to PV, and keys and values back
to a Concat with a past, through what repeats heads (grouped-query attention) and reshapes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ort_sdk.api import FusedSteps, FusibleProgram, FusibleStep, TensorElementType
from ort_sdk_cpu.attention.recognized_decode import RecognizedAttention
from ort_sdk_cpu.fusion.shapes.expressions import OPEN, Expression, Expressions, function_of

__all__ = ["AttentionGroup", "attention_groups"]

MICROSOFT = "com.microsoft"
MATMULS = {("", "MatMul"), (MICROSOFT, "FusedMatMul")}
SOFTMAX = {("", "Softmax"), (MICROSOFT, "BiasSoftmax")}
SCORES_AT = {"Div": 0, "Mul": 0, "Where": 1}
"""Operator between QK^T and the mask that is added → its input that may be scores."""
MAX_SCALAR_RANK = 3
"""Of a constant of one element, which broadcasts to scores without more dimensions."""


@dataclass(frozen=True, slots=True)
class _Operand:
    """Keys or values, or the cache they go to."""

    expression: Expression
    """Of rows of keys or values; of new ones where there is a cache."""
    past: int = 0
    present: int = 0
    position: int = -1
    """Of the Concat."""
    target: Expression | None = None
    """Shape that a cache is given before it is attended."""
    steps: frozenset[int] = frozenset()
    """Of the views of the cache."""
    shared: int = 1
    """Heads of queries that a head of the cache is repeated for."""
    batch: str = "1"
    """What the batch has to be where heads are repeated, or 1."""


@dataclass(frozen=True, slots=True)
class AttentionGroup:
    """Steps that are one attention."""

    positions: tuple[int, ...]
    query: Expression
    key: _Operand
    value: _Operand
    scale: float
    condition: int
    """Value that says which scores are kept; 0 for all."""
    filter_value: float
    """What the others are."""
    added: int
    """Value added to the scores; 0 for none."""
    output: int
    query_value: int = 0
    new: tuple[int, int] = (0, 0)
    """Values of new keys and values where there is a cache, of all where there is none; 0 for what is no value."""
    masks_nan: bool = False
    """Whether weights that are NaN become 0."""
    uncached: AttentionGroup | None = None
    """The same without the steps that lengthen a cache."""

    def masking_nan(self) -> AttentionGroup:
        """The same with 0 for weights that are NaN."""
        uncached = None if self.uncached is None else replace(self.uncached, masks_nan=True)
        return replace(self, masks_nan=True, uncached=uncached)

    @property
    def present(self) -> tuple[int, ...]:
        """Values that are the lengthened cache."""
        return tuple(operand.present for operand in (self.key, self.value) if operand.present)

    @property
    def reads(self) -> tuple[int, ...]:
        """Values that the kernel is given."""
        return tuple(sorted(self._values))

    @property
    def _values(self) -> frozenset[int]:
        others = {value for value in (self.key.past, self.value.past, self.condition, self.added) if value}
        return frozenset().union(others, *(expression.values for expression in self._expressions))

    @property
    def _expressions(self) -> list[Expression]:
        targets = [operand.target for operand in (self.key, self.value) if operand.target is not None]
        return [self.query, self.key.expression, self.value.expression, *targets]

    def fused(self, expressions: Expressions) -> FusedSteps:
        """The steps as one."""
        repeated = frozenset().union(self.key.steps, self.value.steps, *(each.steps for each in self._expressions))
        positions = frozenset(self.positions)
        outputs = (*self.present, self.output)
        return FusedSteps(self.positions, self._kernel(expressions), self.reads, outputs, tuple(sorted(repeated - positions)))

    def _kernel(self, expressions: Expressions) -> RecognizedAttention:
        names = [f"v{value}" if value else "None" for value in (self.key.past, self.value.past, self.condition, self.added)]
        targets = ["None" if operand.target is None else operand.target.text for operand in (self.key, self.value)]
        arrays = [self.query.text, self.key.expression.text, self.value.expression.text]
        arguments = function_of(
            {value: expressions.rank(value) for value in self.reads},
            ", ".join(["", *arrays, *targets])[2:],
            sorted(frozenset().union(*(each.reshaped for each in self._expressions))),
            result="q, k, v, key_target, value_target",
            returned=f"(q, k, v, {', '.join(names)}, key_target, value_target)",
        )
        return RecognizedAttention(arguments, self.scale, self.filter_value, masks_nan=self.masks_nan)


def attention_groups(program: FusibleProgram, expressions: Expressions) -> Iterator[AttentionGroup]:
    """All of a program, with their caches where steps lengthen them.

    Args:
        program: whose shapes vary.
        expressions: its expressions.
    """
    finder = _Finder(program, expressions)
    for position, step in program.steps.items():
        if (step.domain, step.op_type) in SOFTMAX:
            group = finder.group(position, step)
            if group is not None:
                yield group


@dataclass(slots=True)
class _Scores:
    """A softmax's input, followed back to QK^T."""

    positions: list[int]
    matmul: FusibleStep | None = None
    scale: float = 1.0
    condition: int = 0
    filter_value: float = 0.0
    added: int = 0


@dataclass(frozen=True, slots=True)
class _Repeat:
    """A cache each of whose heads is repeated."""

    shared: int
    batch: str
    value: int
    steps: frozenset[int]


class _Finder:
    def __init__(self, program: FusibleProgram, expressions: Expressions) -> None:
        self._program, self._expressions = program, expressions

    def group(self, position: int, softmax: FusibleStep) -> AttentionGroup | None:
        program, weights = self._program, softmax.outputs[0]
        if weights not in program.values or not self._is_float(weights) or self._expressions.rank(weights) not in (3, 4):
            return None
        if softmax.attributes.get("axis") not in (-1, self._expressions.rank(weights) - 1):
            return None
        scores, nan_steps = self._scores(*softmax.inputs), self._without_nan(weights)
        weights = program.steps[nan_steps[-1]].outputs[0] if nan_steps else weights
        matmul = self._reader(weights)
        if scores is None or scores.matmul is None or matmul is None:
            return None
        step = program.steps[matmul]
        if not self._is_plain_matmul(step) or step.inputs[0] != weights:
            return None
        members = (*scores.positions, position, *nan_steps, matmul)
        found = self._with_operands(scores, scores.matmul, step, members)
        return found if found is None or not nan_steps else found.masking_nan()

    def _without_nan(self, weights: int) -> tuple[int, ...]:
        """Positions of steps that replace weights that are NaN by 0; none if there are none."""
        readers = self._program.readers.get(weights, ())
        steps = [self._program.steps.get(position) for position in readers]
        if [step and step.op_type for step in steps] != ["IsNaN", "Where"] or steps[0] is None or steps[1] is None:
            return ()
        number = self._number(steps[1].inputs[1])
        is_hidden = steps[1].inputs[0] == steps[0].outputs[0] and steps[1].inputs[2] == weights and number == 0
        return tuple(readers) if is_hidden and self._reader(steps[0].outputs[0]) is not None else ()

    def _key_rows(self, matmul: FusibleStep) -> int:
        """Value that keys are, in rows; 0 if they are none."""
        keys = matmul.inputs[1]
        if matmul.attributes.get("transB", 0):
            return keys
        reshaped = self._made_by("Reshape", keys)
        back = None if reshaped is None else self._before_transpose(*reshaped)
        if back is not None:
            return back[0]
        made = self._made_by("Transpose", keys)
        return made[1].inputs[0] if made is not None and _swaps_last(made[1].attributes.get("perm", ())) else 0

    def _with_operands(
        self, scores: _Scores, first: FusibleStep, matmul: FusibleStep, members: Sequence[int]
    ) -> AttentionGroup | None:
        expressions, (query, keys) = self._expressions, first.inputs
        key, value = self._plain_key(first), _Operand(expressions.array(matmul.inputs[1]))
        plain = AttentionGroup(
            tuple(sorted(members)),
            expressions.array(query),
            key,
            value,
            scores.scale,
            scores.condition,
            scores.filter_value,
            scores.added,
            matmul.outputs[0],
            query,
            (self._key_rows(first), matmul.inputs[1]),
        )
        operands = (query, keys, matmul.inputs[1])
        if not all(map(self._is_known, plain.reads)) or not all(map(self._is_float, operands)):
            return None
        lengthened, values = (
            self._cached(keys, is_transposed=not first.attributes.get("transB", 0)),
            self._cached(matmul.inputs[1]),
        )
        if lengthened is None or values is None or lengthened.present == values.present:
            return plain
        if lengthened.shared != values.shared or not self._are_alike(query, lengthened, values):
            return plain
        positions = tuple(sorted({*members, lengthened.position, values.position}))
        key_rows, value_rows = (self._program.steps[each.position].inputs[1] for each in (lengthened, values))
        return replace(plain, positions=positions, key=lengthened, value=values, new=(key_rows, value_rows), uncached=plain)

    def _are_alike(self, query: int, keys: _Operand, values: _Operand) -> bool:
        """Whether caches have heads, or are those of a single one, and queries, too."""
        ranks = {self._expressions.rank(each.present) for each in (keys, values)}
        return ranks == {4} or ranks == {self._expressions.rank(query)}

    def _plain_key(self, matmul: FusibleStep) -> _Operand:
        """Rows of keys as they are."""
        keys = self._expressions.array(matmul.inputs[1])
        is_transposed = not matmul.attributes.get("transB", 0)
        return _Operand(replace(keys, text=f"{keys.text}.swapaxes(-1, -2)") if is_transposed else keys)

    def _scores(self, value: int, added: int = 0) -> _Scores | None:
        """A softmax's input as scaled and masked QK^T; ``added`` is the bias that BiasSoftmax adds."""
        if added and not (
            self._is_known(added) and self._is_float(added) and self._expressions.rank(added) == self._expressions.rank(value)
        ):
            return None
        positions: list[int] = []
        scores = _Scores(positions, added=added)
        while True:
            position = self._expressions.makers.get(value)
            if position is None or self._reader(value) is None:
                return None
            step = self._program.steps[position]
            positions.append(position)
            if (step.domain, step.op_type) in MATMULS:
                scores.matmul = step
                scores.scale *= float(step.attributes.get("alpha", 1.0))
                return scores if self._is_scores_matmul(step) else None
            before = self._before(step, scores)
            if before is None:
                return None
            value = before

    def _before(self, step: FusibleStep, scores: _Scores) -> int | None:
        """What a step scales or masks, which is noted."""
        if step.domain or scores.scale != 1.0:
            return None
        if step.op_type == "Where" and not scores.condition:
            number = self._number(step.inputs[2])
            scores.condition, scores.filter_value = step.inputs[0], number or 0.0
            return None if number is None else step.inputs[1]
        if step.op_type == "Add" and not scores.condition and not scores.added:
            return self._before_mask(step, scores)
        if step.op_type in {"Mul", "Div"}:
            number = self._number(step.inputs[1])
            if number:
                scores.scale = number if step.op_type == "Mul" else 1 / number
                return step.inputs[0]
        return None

    def _before_mask(self, step: FusibleStep, scores: _Scores) -> int | None:
        """The operand of an Add that QK^T may be behind; the other one is the mask."""
        for own, mask in (step.inputs, step.inputs[::-1]):
            if self._is_matmul(own) and self._is_known(mask) and self._is_float(mask):
                scores.added = mask
                return own
        return None

    def _is_matmul(self, value: int) -> bool:
        """Whether a value is a MatMul's, perhaps scaled or masked."""
        while True:
            position = self._expressions.makers.get(value)
            step = None if position is None else self._program.steps[position]
            if step is None or (step.domain, step.op_type) in MATMULS:
                return step is not None
            if step.op_type not in SCORES_AT:
                return False
            value = step.inputs[SCORES_AT[step.op_type]]

    def _cached(self, value: int, *, is_transposed: bool = False) -> _Operand | None:
        """Keys or values as a cache that a Concat lengthens; ``is_transposed`` if rows are columns here."""
        expressions, target = self._expressions, None
        repeat: _Repeat | None = None
        steps: set[int] = set()
        while True:
            position = expressions.makers.get(value)
            step = None if position is None else self._program.steps[position]
            if step is None or position is None or step.domain:
                return None
            if step.op_type == "Concat":
                found = None if is_transposed else self._lengthened(position, step, target, frozenset(steps))
                return found if found is None or repeat is None else replace(found, shared=repeat.shared, batch=repeat.batch)
            untransposed = self._before_transpose(position, step) if is_transposed else None
            if untransposed is not None:
                is_transposed, value = False, untransposed[0]
                steps |= untransposed[1]
                continue
            found_repeat = self._repeated(position, step) if not (is_transposed or target or repeat) else None
            if found_repeat is not None:
                repeat, value = found_repeat, found_repeat.value
                steps |= repeat.steps
                continue
            steps.add(position)
            if step.op_type == "Transpose" and is_transposed and _swaps_last(step.attributes.get("perm", ())):
                is_transposed = False
            elif step.op_type == "Reshape" and target is None and not is_transposed:
                target = self._target(step)
                if target is None:
                    return None
            else:
                return None
            value = step.inputs[0]

    def _repeated(self, position: int, reshape: FusibleStep) -> _Repeat | None:
        """A Reshape of (batch, heads, 1, rows, size) that is expanded along the third axis, to heads that share."""
        expand = self._made_by("Expand", reshape.inputs[0])
        unsqueeze = None if expand is None else self._made_by("Unsqueeze", expand[1].inputs[0])
        if reshape.op_type != "Reshape" or expand is None or unsqueeze is None:
            return None
        value = unsqueeze[1].inputs[0]
        if len(self._shape(value)) != 4:
            return None
        shapes = [self._shape(index) for index in (reshape.outputs[0], reshape.inputs[0], expand[1].inputs[0], value)]
        result, wide, narrow, (batch, heads, *rest) = shapes
        shared = wide[2] if len(wide) == 5 else 0
        if narrow != (batch, heads, 1, *rest) or wide != (batch, heads, shared, *rest) or len(rest) != 2:
            return None
        target, whole = self._expressions.integers(expand[1].inputs[1]), self._expressions.target(reshape)
        dims = self._expressions.dims(value).texts
        if target is None or whole is None or result != (batch, heads * shared, *rest) or whole.texts[1] != str(heads * shared):
            return None
        asked, _, times, _, size = target.texts if len(target.texts) == 5 else [""] * 5
        if times != str(shared) or size not in {"1", dims[3], str(rest[1])}:
            return None
        steps = self._on_shapes(target.steps | whole.steps) | {position, expand[0], unsqueeze[0]}
        return _Repeat(shared, asked, value, frozenset(steps))

    def _before_transpose(self, position: int, reshape: FusibleStep) -> tuple[int, set[int]] | None:
        """Rows (batch, heads, rows, size) that are made columns as (matrices, rows, size), and the steps."""
        transpose = self._made_by("Transpose", reshape.inputs[0])
        merge = None if transpose is None else self._made_by("Reshape", transpose[1].inputs[0])
        if reshape.op_type != "Reshape" or transpose is None or merge is None or len(self._shape(merge[1].inputs[0])) != 4:
            return None
        if [len(self._shape(step.outputs[0])) for step in (merge[1], reshape)] != [3, 4]:
            return None
        value = merge[1].inputs[0]
        dims, targets = self._expressions.dims(value).texts, [self._expressions.target(step) for step in (merge[1], reshape)]
        if tuple(transpose[1].attributes.get("perm", ())) != (0, 2, 1) or targets[0] is None or targets[1] is None:
            return None
        # A cache's heads and their size are looked at in each run.
        _, heads, _, size = [{own, str(length)} for own, length in zip(dims, self._shape(value), strict=True)]
        matrices = {dims[0]} if "1" in heads else set[str]()
        merged = {self._expressions.dims(merge[1].outputs[0]).texts[0]} if targets[0].texts[0] in matrices else set[str]()
        asked = (matrices, {dims[2]}, size), ({dims[0], *merged}, heads, size, {dims[2]})
        if not all(_asks_for(target.texts, texts) for target, texts in zip(targets, asked, strict=True) if target is not None):
            return None
        return value, {position, transpose[0], merge[0], *self._on_shapes(targets[0].steps | targets[1].steps)}

    def _on_shapes(self, steps: frozenset[int]) -> frozenset[int]:
        """Those of some steps that compute shapes, not values whose shapes are asked for."""
        return frozenset(own for own in steps if not self._is_float(self._program.steps[own].outputs[0]))

    def _made_by(self, op_type: str, value: int) -> tuple[int, FusibleStep] | None:
        position = self._expressions.makers.get(value)
        step = None if position is None else self._program.steps[position]
        return None if position is None or step is None or step.domain or step.op_type != op_type else (position, step)

    def _shape(self, value: int) -> tuple[int, ...]:
        return tuple(self._program.values[value].shape) if value in self._program.values else ()

    def _target(self, reshape: FusibleStep) -> Expression | None:
        numbers = self._expressions.target(reshape)
        if numbers is None or len(numbers.texts) != 3:
            return None
        return Expression(f"({', '.join(numbers.texts)})", numbers.values, numbers.steps)

    def _lengthened(
        self, position: int, concat: FusibleStep, target: Expression | None, steps: frozenset[int]
    ) -> _Operand | None:
        present = concat.outputs[0]
        rank = self._expressions.rank(present)
        if len(concat.inputs) != 2 or rank not in (3, 4) or concat.attributes["axis"] not in (rank - 2, -2):
            return None
        if rank == 3 and target is not None:
            return None
        past, new = concat.inputs
        if past == new or not all(self._is_known(index) and self._is_float(index) for index in (past, new, present)):
            return None
        return _Operand(self._expressions.array(new), past, present, position, target, steps)

    def _reader(self, value: int) -> int | None:
        """The only step that reads a value."""
        readers = self._program.readers.get(value, ())
        return readers[0] if len(readers) == 1 and readers[0] in self._program.steps else None

    def _number(self, value: int) -> float | None:
        shown = self._program.values.get(value)
        constant: Any = None if shown is None else shown.constant
        is_number = constant is not None and constant.size == 1 and constant.ndim <= MAX_SCALAR_RANK
        return float(constant.reshape(())[()]) if is_number else None

    def _is_known(self, value: int) -> bool:
        return value in self._program.values

    def _is_float(self, value: int) -> bool:
        return self._program.values[value].element_type is TensorElementType.FLOAT

    def _is_plain_matmul(self, step: FusibleStep) -> bool:
        is_transposed = any(step.attributes.get(name, 0) for name in ("transA", "transB", "transBatchA", "transBatchB"))
        return (step.domain, step.op_type) in MATMULS and not is_transposed and step.attributes.get("alpha", 1.0) == 1.0

    def _is_scores_matmul(self, step: FusibleStep) -> bool:
        return not any(step.attributes.get(name, 0) for name in ("transA", "transBatchA", "transBatchB"))


def _asks_for(target: Sequence[str], wanted: Sequence[set[str]]) -> bool:
    """Whether a Reshape asks for certain sizes, each written in one of several ways; one may be left open (-1)."""
    return target.count(OPEN) < 2 and all(own in {OPEN, *texts} for own, texts in zip(target, wanted, strict=True))


def _swaps_last(perm: Sequence[int]) -> bool:
    rank = len(perm)
    return rank > 1 and tuple(perm) == (*range(rank - 2), rank - 1, rank - 2)
