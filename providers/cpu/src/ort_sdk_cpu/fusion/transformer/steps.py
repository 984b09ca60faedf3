"""Steps that map rows to rows, a row for each token, as tasks whose arguments follow from how many rows there are.

They are the parts of a sequence (``sequence.RowSequence``). A task's arguments are ``Terms`` where they depend on a run: sums of
named numbers, such as the number of rows or the address of a value, times constants.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ort_sdk.api import FusedSteps, FusibleProgram, FusibleStep, HostArray, TensorElementType
from ort_sdk.api.data_classes import dataclass
from ort_sdk_cpu.attention.arguments.flash import MODULE as FLASH
from ort_sdk_cpu.attention.arguments.flash import FlashAttention, thread_workspace_bytes
from ort_sdk_cpu.attention.arguments.operands import NO_BIAS
from ort_sdk_cpu.elementwise.arguments.functions import MODULE as FUNCTIONS
from ort_sdk_cpu.elementwise.arguments.functions import BiasActivation, BinaryRows, QuickGeluRows
from ort_sdk_cpu.gemm.arguments.sgemm import Gemm
from ort_sdk_cpu.gemm.constant_b import ConstantBGemm, RowGemm
from ort_sdk_cpu.gemm.plan import task_of
from ort_sdk_cpu.gemm.select import BLayout
from ort_sdk_cpu.gemm.small import SmallGemm
from ort_sdk_cpu.jit.task_sequence import TaskWords, Terms, Word
from ort_sdk_cpu.kernel.activation import ActivationKind
from ort_sdk_cpu.normalization.arguments.rows import MODULE as NORMALIZATION
from ort_sdk_cpu.normalization.arguments.rows import Normalization
from ort_sdk_cpu.platform.addresses import address_of

from .decode import BATCH, LENGTH, WORK, WORK_BYTES, RunBinder, group_query_attention, multi_head_over_cache, rotary_embedding

if TYPE_CHECKING:
    from .views import RowViews

__all__ = ["AddedScores", "RowStep", "followed_product", "only_reader", "renamed", "row_step"]

MICROSOFT = "com.microsoft"
FLOAT_BYTES = 4
SOME_ROWS = 64
"""Any number that is not few: another task is put in the place of a product's for those."""
ROWS: Any = (("rows", 1),)


def _value(index: int) -> Terms:
    """Address of a value."""
    return ((("value", index), 1),)


def _split(sizes: BLayout, position: int) -> Any:
    """One of ``m_parts``, ``n_parts`` and ``mc``."""
    return (((sizes, position), 1),)


@dataclass(frozen=True, slots=True)
class AddedScores:
    """Numbers added to scores."""

    index: int
    heads: int

    def terms(self, position: int) -> Terms:
        """The address, or the bytes from one to the next along one of four axes."""
        return (((self, position), 1),)


@dataclass(frozen=True, slots=True)
class RowStep:
    """A step of a program, or several, as a task."""

    task: TaskWords
    widths: dict[int, int]
    """Value that it reads or writes → elements of a row."""
    reads: tuple[int, ...]
    """Values whose rows it reads."""
    writes: tuple[int, ...]
    """Values whose rows it makes."""
    is_row_parallel: bool = True
    """Whether each thread makes some rows, of the same rows of what is read; a GEMM does where its rows are split."""
    product: BLayout | None = None
    added: AddedScores | None = None
    kept: tuple[Any, ...] = ()
    """Arrays that addresses are of."""
    work: int = 0
    """Bytes of working memory of a thread, beside a product's."""
    cache: RunBinder | None = None
    """What is known of its arguments in a run only."""
    batch_shape_of: int = 0
    """Value whose shape is (batch, tokens); 0 for none."""
    may_fail: bool = False
    """Whether it sets its first argument where it could not do its work."""
    repeated: frozenset[int] = frozenset()
    """Positions of further steps whose work it does: those that only reshape rows, or work out shapes."""
    required: frozenset[tuple[int, int, int]] = frozenset()
    """(value, axis, axis of (batch, tokens)): that must be as long in a run as this."""
    rearranged: frozenset[int] = frozenset()
    """Values whose layout is not the program's: only other tasks can read them."""
    masks_nan: bool = False
    """Whether the steps put 0 for NaN, and the task does not: a run with NaN goes to the steps."""
    arranged: RowStep | None = None
    """Task that quantizes or rearranges what it reads, whose values have numbers below 0; readers of the same share it."""
    by_columns: bool = False
    """Whether each thread makes some columns of all rows."""
    numbers: int = 0
    """Elements of a weight that is not ``product``'s."""
    most_rows: int = 0
    """Rows up to which the task is the right one; 0 for any number."""
    unfused: FusedSteps | None = None
    """Its main steps as one fused step outside of sequences, where it is several."""

    @property
    def outputs(self) -> tuple[int, ...]:
        """All values that it makes."""
        return self.writes if self.cache is None else (*self.writes, *self.cache.outputs)

    @property
    def needs(self) -> frozenset[int]:
        """All values that it has to be given."""
        others = () if self.cache is None else self.cache.inputs
        scores = () if self.added is None else (self.added.index,)
        return frozenset((*self.reads, *others, *scores))

    def over(self, views: RowViews) -> RowStep:
        """The same, reading rows of the values that reshapes are views of."""
        found = {index: views.rows(index) for index in self.reads}
        if all(own.value == index for index, own in found.items()):
            return self
        names = {index: own.value for index, own in found.items()}
        steps = frozenset().union(self.repeated, *(own.steps for own in found.values()))
        required = frozenset().union(self.required, *(own.required for own in found.values()))
        return replace(
            self,
            task=renamed(self.task, names),
            widths={names.get(index, index): width for index, width in self.widths.items()},
            reads=tuple(names[index] for index in self.reads),
            repeated=steps,
            required=required,
            arranged=None if self.arranged is None else self.arranged.over(views),
        )


def renamed(task: TaskWords, names: Mapping[int, int]) -> TaskWords:
    """The task with values by their names."""
    return TaskWords(task.module, task.name, tuple(_renamed(word, names) for word in task.words))


def _renamed(word: Word, names: Mapping[int, int]) -> Word:
    """The word with values by their names."""
    if not isinstance(word, tuple):
        return word
    return tuple(
        (("value", names.get(name[1], name[1])) if isinstance(name, tuple) and name[0] == "value" else name, factor)
        for name, factor in word
    )


def row_step(step: FusibleStep, program: FusibleProgram) -> RowStep | None:
    """The step as a task; None if it is none, or may meet rows that are not like those of its other values."""
    make = _MAKERS.get((step.domain, step.op_type))
    if make is None or not _are_floats(step, program):
        return None
    return make(step, program)


def _are_floats(step: FusibleStep, program: FusibleProgram) -> bool:
    shown = [program.values.get(index) for index in (step.inputs[0], *step.outputs) if index]
    return all(each is not None and each.element_type is TensorElementType.FLOAT and len(each.shape) > 1 for each in shown)


def _width(program: FusibleProgram, index: int) -> int:
    return program.values[index].shape[-1]


def _given(step: FusibleStep, position: int) -> int:
    return step.inputs[position] if position < len(step.inputs) else 0


def _vector(step: FusibleStep, position: int, width: int, program: FusibleProgram) -> HostArray | None:
    """An input that is a constant vector of float32, in one piece; None for any other."""
    shown = program.values.get(_given(step, position))
    array: Any = None if shown is None else shown.constant
    if array is None or array.shape != (width,) or array.dtype != np.float32:
        return None
    return np.ascontiguousarray(array)


def _row_product(step: FusibleStep, program: FusibleProgram) -> RowGemm | None:
    """A step as a product of rows and a constant matrix."""
    if isinstance(step.kernel, ConstantBGemm):
        return step.kernel.row_gemm
    call = getattr(step.kernel, "call", None)
    if not isinstance(call, SmallGemm) or len(program.values[step.inputs[0]].shape) < 2:
        return None
    constants: list[Any] = [program.values[index].constant if index in program.values else None for index in step.inputs[1:3]]
    if constants[0] is None or constants[0].ndim != 2:
        return None
    if _given(step, 2) and constants[1] is None:
        return call.row_gemm(constants[0], None, beta=1.0)
    return call.row_gemm(constants[0], constants[1] if _given(step, 2) else None)


def _product(step: FusibleStep, program: FusibleProgram) -> RowStep | None:
    product, x, out = _row_product(step, program), step.inputs[0], step.outputs[0]
    if product is None:
        return None
    if not product.beta:
        return _product_task(product, x, out, product.bias, product.epilogue_words)
    activation, alpha, _, slope = product.epilogue_words
    if _shape(program, step.inputs[2]) != _shape(program, out) or program.values[step.inputs[2]].constant is not None:
        return None
    return _product_task(product, x, out, None, (activation, alpha, product.beta, slope), step.inputs[2])


def _product_task(
    product: RowGemm, x: int, out: int, vector: HostArray | None, epilogue: tuple[int | float, ...], rows: int = 0
) -> RowStep:
    """A product to which a vector is added, or rows, if there are any."""
    sizes, some = product.sizes, product.sizes.problem(SOME_ROWS)
    bias: Word = _value(rows) if rows else 0 if vector is None else address_of(vector)
    a_row, c_row = sizes.k * FLOAT_BYTES, sizes.n * FLOAT_BYTES
    activation, alpha, beta, slope = epilogue
    task, arguments = (
        task_of(some),
        Gemm(
            a=_value(x),
            b=address_of(product.weight),
            c=_value(out),
            d=bias,
            workspace=WORK,
            m=ROWS,
            n=sizes.n,
            k=sizes.k,
            lda=a_row,
            ldb=some.ldb,
            ldc=c_row,
            a_stride=0,
            b_stride=0,
            c_stride=0,
            ldd=c_row if rows else 0,
            batch=1,
            activation=int(activation),
            alpha=alpha,
            beta=beta,
            slope=slope,
            m_parts=_split(sizes, 0),
            n_parts=_split(sizes, 1),
            workspace_stride=WORK_BYTES,
            mc=_split(sizes, 2),
        ),
    )
    return RowStep(
        TaskWords(task.module, task.name, arguments.words),
        {x: sizes.k, out: sizes.n} | ({rows: sizes.n} if rows else {}),
        (x, rows) if rows else (x,),
        (out,),
        product=sizes,
        kept=(product.weight, vector),
    )


def followed_product(position: int, program: FusibleProgram) -> tuple[tuple[int, ...], RowStep] | None:
    """A product and a constant vector added to its rows, perhaps times a constant number, or followed by Relu, as one task.

    Returns:
        Positions and task; None if the step at ``position`` is no product that is followed so.
    """
    step = program.steps[position]
    product = _row_product(step, program)
    if product is None or product.epilogue_words[0] or product.beta or not _are_floats(step, program):
        return None
    positions: tuple[int, ...] = (position,)
    out, vector, words = step.outputs[0], product.bias, product.epilogue_words
    added = None if vector is not None else _sole_reader(out, "Add", program)
    other = None if added is None else _other_vector(added, out, product.sizes.n, program)
    if added is not None and other is not None:
        positions, out, vector = (*positions, added), program.steps[added].outputs[0], other
        scaled = _sole_reader(out, "Mul", program)
        number = None if scaled is None else _other_number(scaled, out, program)
        if scaled is not None and number is not None:
            positions, out, vector = (*positions, scaled), program.steps[scaled].outputs[0], vector * np.float32(number)
            words = (words[0], float(words[1]) * number, *words[2:])
    bounded = _sole_reader(out, "Relu", program, inputs=1)
    if bounded is not None:
        positions, out, words = (
            (*positions, bounded),
            program.steps[bounded].outputs[0],
            (int(ActivationKind.LEAKY_RELU), *words[1:3], 0.0),
        )
    return None if len(positions) == 1 else (positions, _product_task(product, step.inputs[0], out, vector, words))


def _sole_reader(index: int, op_type: str, program: FusibleProgram, inputs: int = 2) -> int | None:
    """The only step that reads a value, if it is of an operator of so many inputs and keeps the shape."""
    position = only_reader(index, op_type, program)
    if position is None or len(program.steps[position].inputs) != inputs:
        return None
    return position if _shape(program, program.steps[position].outputs[0]) == _shape(program, index) is not None else None


def _other(position: int, index: int, program: FusibleProgram) -> Any:
    """The constant that a step of two inputs takes beside a value; None for none."""
    others = [own for own in program.steps[position].inputs if own != index]
    shown = program.values.get(others[0]) if len(others) == 1 else None
    return None if shown is None or shown.element_type is not TensorElementType.FLOAT else shown.constant


def _other_vector(position: int, index: int, width: int, program: FusibleProgram) -> HostArray | None:
    array = _other(position, index, program)
    return None if array is None or array.shape != (width,) else np.ascontiguousarray(array)


def _other_number(position: int, index: int, program: FusibleProgram) -> float | None:
    array = _other(position, index, program)
    return None if array is None or array.size != 1 or array.ndim > 1 else float(array.reshape(())[()])


def _normalization(step: FusibleStep, program: FusibleProgram) -> RowStep | None:
    x, out = step.inputs[0], step.outputs[0]
    width = _width(program, x)
    scale, shift = _vector(step, 1, width, program), _vector(step, 2, width, program)
    axis = step.attributes.get("axis", -1)
    if scale is None or (_given(step, 2) and shift is None) or any(step.outputs[1:]):
        return None
    if axis not in (-1, len(program.values[x].shape) - 1):
        return None
    epsilon = float(step.attributes.get("epsilon", 1e-5))
    vectors = (address_of(scale), 0 if shift is None else address_of(shift))
    name = "layer_normalization" if step.op_type == "LayerNormalization" else "rms_normalization"
    arguments = Normalization(_value(x), 0, 0, 0, _value(out), *vectors, ROWS, width, epsilon)
    task = TaskWords(NORMALIZATION, name, arguments.words)
    return RowStep(task, {x: width, out: width}, (x,), (out,), kept=(scale, shift))


def _skip_normalization(step: FusibleStep, program: FusibleProgram) -> RowStep | None:
    x, skip, *vectors = step.inputs
    out, *others = step.outputs
    width = _width(program, x)
    has_shift = step.op_type == "SkipLayerNormalization"
    arrays = [_vector(step, 2 + index, width, program) for index in range(len(vectors))]
    if any(index and array is None for index, array in zip(vectors, arrays, strict=True)) or any(others[:2]):
        return None
    scale, shift, bias = (*arrays, None, None)[:3] if has_shift else (*arrays[:1], None, *arrays[1:], None)[:3]
    if scale is None or _shape(program, skip) != _shape(program, x):
        return None
    written = (out, *(total for total in others[2:] if total))
    bias_at, scale_at, shift_at = (0 if array is None else address_of(array) for array in (bias, scale, shift))
    name = "layer_normalization" if has_shift else "rms_normalization"
    epsilon = float(step.attributes.get("epsilon", 1e-12))
    arguments = Normalization(
        _value(x), _value(skip), bias_at, _value(written[-1]), _value(out), scale_at, shift_at, ROWS, width, epsilon
    )
    task = TaskWords(NORMALIZATION, name, arguments.words)
    return RowStep(task, dict.fromkeys((x, skip, *written), width), (x, skip), written, kept=(scale, shift, bias))


def _shape(program: FusibleProgram, index: int) -> tuple[int, ...] | None:
    shown = program.values.get(index)
    return None if shown is None or shown.element_type is not TensorElementType.FLOAT else shown.shape


def _activation(name: str) -> Callable[[FusibleStep, FusibleProgram], RowStep | None]:
    """A function of each number, after adding a vector to each row."""

    def make(step: FusibleStep, program: FusibleProgram) -> RowStep | None:
        x, out = step.inputs[0], step.outputs[0]
        width = _width(program, x)
        bias = _vector(step, 1, width, program) if _given(step, 1) else np.zeros(width, np.float32)
        chosen = "fast_gelu" if step.attributes.get("approximate") == "tanh" else name
        if bias is None:
            return None
        arguments = BiasActivation(_value(x), address_of(bias), _value(out), ROWS, width)
        task = TaskWords(FUNCTIONS, f"bias_{chosen}", arguments.words)
        return RowStep(task, {x: width, out: width}, (x,), (out,), kept=(bias,))

    return make


def _attention(step: FusibleStep, program: FusibleProgram) -> RowStep | None:
    """Of queries, keys and values of the same rows, without a cache."""
    query, key, values = (_given(step, position) for position in range(3))
    shape = _shape(program, query)
    if shape is None or len(shape) != 3 or not key or not values or _shape(program, key) != shape:
        return None
    shapes, heads = _shape(program, values), int(step.attributes["num_heads"])
    has_more = any(_given(step, position) for position in (4, *range(6, len(step.inputs)))) or any(step.outputs[1:])
    if has_more or shapes is None or shapes[:2] != shape[:2] or step.attributes.get("unidirectional", 0):
        return None
    width, value_width = shape[2], shapes[2]
    bias = _vector(step, 3, 2 * width + value_width, program)
    scores = AddedScores(step.inputs[5], heads) if _given(step, 5) else None
    if (_given(step, 3) and bias is None) or (scores is not None and len(_shape(program, scores.index) or ()) != 4):
        return None
    return _attention_task(step, (query, key, values), (heads, width, value_width), bias, scores)


def _attention_task(
    step: FusibleStep,
    read: tuple[int, int, int],
    sizes: tuple[int, int, int],
    bias: HostArray | None,
    scores: AddedScores | None,
) -> RowStep:
    out, (heads, width, value_width) = step.outputs[0], sizes
    size, value_size = width // heads, value_width // heads
    widths = [*zip(read, (width, width, value_width), strict=True), (out, value_width)]
    operands = [_rows_of(index, own, heads) for index, own in widths]
    mask = NO_BIAS if scores is None else [scores.terms(position) for position in range(len(NO_BIAS))]
    start = 0 if bias is None else address_of(bias)
    biases = (start, start + 2 * width * FLOAT_BYTES if start else 0)
    scale = float(step.attributes.get("scale", 0.0)) or 1 / math.sqrt(size)
    sizes_words = (BATCH, heads, LENGTH, LENGTH, size, value_size, scale)
    arguments = FlashAttention.of(operands, sizes_words, (WORK, WORK_BYTES), mask, biases)
    task = TaskWords(FLASH, "flash_attention", arguments.words)
    work = thread_workspace_bytes(size, value_size)
    return RowStep(task, dict(widths), read, (out,), False, added=scores, kept=(bias,), work=work)


def only_reader(index: int, op_type: str, program: FusibleProgram) -> int | None:
    """The only step that reads a value but for its shape, if it is of an operator."""
    readers = [position for position in program.readers.get(index, ()) if not _is_of_shapes(position, program)]
    step = program.steps.get(readers[0]) if len(readers) == 1 else None
    return readers[0] if step is not None and step.op_type == op_type and not step.domain else None


def _is_of_shapes(position: int, program: FusibleProgram) -> bool:
    """Whether a step gives a shape, or reshapes what nothing but a shape is asked of."""
    step = program.steps.get(position)
    if step is None or step.domain or step.op_type not in {"Shape", "Reshape"}:
        return False
    return step.op_type == "Shape" or all(_is_of_shapes(own, program) for own in program.readers.get(step.outputs[0], ()))


def _over_cache(find: Callable[[FusibleStep, FusibleProgram], Any]) -> Callable[[FusibleStep, FusibleProgram], RowStep | None]:
    """A step whose arguments are known in a run only."""

    def make(step: FusibleStep, program: FusibleProgram) -> RowStep | None:
        found = find(step, program)
        if found is None:
            return None
        cache, task, widths, reads, kept = found
        return RowStep(task, widths, reads, step.outputs[:1], False, kept=kept, work=getattr(cache, "work", 0), cache=cache)

    return make


def _multi_head(step: FusibleStep, program: FusibleProgram) -> RowStep | None:
    return _attention(step, program) or _over_cache(multi_head_over_cache)(step, program)


def _quick_gelu(step: FusibleStep, program: FusibleProgram) -> RowStep | None:
    x, out = step.inputs[0], step.outputs[0]
    width = _width(program, x)
    arguments = QuickGeluRows(_value(x), _value(out), ROWS, width, float(step.attributes.get("alpha", 1.702)))
    return RowStep(TaskWords(FUNCTIONS, "quick_gelu_rows", arguments.words), {x: width, out: width}, (x,), (out,))


def _of_both(name: str) -> Callable[[FusibleStep, FusibleProgram], RowStep | None]:
    """A function of rows and rows."""

    def make(step: FusibleStep, program: FusibleProgram) -> RowStep | None:
        x, y = step.inputs
        out, width = step.outputs[0], _width(program, x)
        are_rows = _shape(program, x) == _shape(program, y) == _shape(program, out)
        if not are_rows or any(program.values[index].constant is not None for index in (x, y)):
            return None
        arguments = BinaryRows(_value(x), _value(y), _value(out), ROWS, width)
        return RowStep(TaskWords(FUNCTIONS, name, arguments.words), {x: width, y: width, out: width}, (x, y), (out,))

    return make


def _rows_of(index: int, width: int, heads: int) -> tuple[Any, ...]:
    """Address, and the bytes from one to the next of batch, heads and rows."""
    row = width * FLOAT_BYTES
    return _value(index), (("length", row),), row // heads, row


_MAKERS: dict[tuple[str, str], Callable[[FusibleStep, FusibleProgram], RowStep | None]] = {
    **dict.fromkeys((("", "MatMul"), ("", "Gemm")), _product),
    **dict.fromkeys(((MICROSOFT, "FusedGemm"), (MICROSOFT, "FusedMatMul"), (MICROSOFT, "FusedMatMulActivation")), _product),
    **dict.fromkeys((("", "LayerNormalization"), ("", "RMSNormalization"), ("", "SimplifiedLayerNormalization")), _normalization),
    (MICROSOFT, "SkipLayerNormalization"): _skip_normalization,
    (MICROSOFT, "SkipSimplifiedLayerNormalization"): _skip_normalization,
    **dict.fromkeys((("", "Gelu"), (MICROSOFT, "Gelu"), (MICROSOFT, "BiasGelu")), _activation("gelu")),
    (MICROSOFT, "FastGelu"): _activation("fast_gelu"),
    (MICROSOFT, "MultiHeadAttention"): _multi_head,
    (MICROSOFT, "GroupQueryAttention"): _over_cache(group_query_attention),
    (MICROSOFT, "RotaryEmbedding"): _over_cache(rotary_embedding),
    (MICROSOFT, "QuickGelu"): _quick_gelu,
    ("", "Add"): _of_both("add_rows"),
    ("", "Mul"): _of_both("multiply_rows"),
}
"""(domain, operator) → makes the task of a step."""
