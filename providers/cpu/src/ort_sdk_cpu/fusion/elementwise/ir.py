"""A chain of element-wise operators as LLVM IR: one function for all sizes, broadcasts and layouts.

The function is ``chain(results, second, record, thread, threads)``, called like a task. Its record holds, as words of 8 bytes,
``HEADER_WORDS`` sizes and then for each input and output ``OPERAND_WORDS``: its address, its strides in bytes along the outer
dimensions, and along the inner one, which is the size of an element, or 0 where it is broadcast.
"""

from __future__ import annotations

from collections.abc import Sequence

from ort_sdk.api.data_classes import dataclass
from ort_sdk_cpu.kernel.element_operation import ElementOperation
from ort_sdk_cpu.memory.strides import OUTER_DIMENSIONS

from .rules import rule_of
from .rules_float import BOOL, FLOAT, FunctionBody
from .types import ELEMENTS, LANES

__all__ = ["HEADER_WORDS", "OPERAND_WORDS", "Chain", "ChainStep", "emit"]

HEADER_WORDS = 3 + OUTER_DIMENSIONS
"""Rows, elements of a row, elements of a block, blocks of a row, and the sizes of the outer dimensions but the first."""
OPERAND_WORDS = 2 + OUTER_DIMENSIONS

MAX_UNMASKED = 48
"""Steps up to which whole vectors have code of their own, without masks: longer chains have one body, with
masks, which compiles in half the time."""

_LANE_NUMBERS = "<16 x i64> <" + ", ".join(f"i64 {lane}" for lane in range(LANES)) + ">"


@dataclass(frozen=True, slots=True)
class ChainStep:
    """One operation on values by number: the inputs, then the results of the steps."""

    operation: ElementOperation
    """Under the name of its rule."""
    operands: tuple[int, ...]
    """-1 for an absent one."""


@dataclass(frozen=True, slots=True)
class Chain:
    """Operations on elements, the key of compiled code."""

    inputs: str
    """Code of each input's type; see ``types``."""
    steps: tuple[ChainStep, ...]
    outputs: tuple[int, ...]
    """Numbers of the values written."""

    @property
    def output_types(self) -> str:
        """Type of each output."""
        return "".join(self.type_of(value) for value in self.outputs)

    def type_of(self, value: int) -> str:
        """Type of a value."""
        count = len(self.inputs)
        return self.inputs[value] if value < count else rule_of(self.steps[value - count].operation.op_type).output


def emit(chain: Chain) -> tuple[str, set[str]]:
    """The IR, with ``SYMBOL`` for the function's name, and the vector functions that it calls."""
    writer = _Writer(chain)
    writer.write()
    body = writer.body
    declared = [f"declare {FLOAT} @vector_{name}({FLOAT})" for name in sorted(body.functions)]
    declared += [f"declare {result} @{name}({types})" for result, name, types in sorted(body.intrinsics)]
    lines = "\n  ".join(body.lines)
    text = f"""{chr(10).join(declared)}
{_MASKED_DECLARATIONS}
define i32 @SYMBOL(ptr %results, ptr %second, i64 %record, i64 %thread, i64 %threads) #0 {{
entry:
  {lines}
}}
attributes #0 = {{ nounwind "min-legal-vector-width"="512" }}
"""
    return text, body.functions


_MASKED_DECLARATIONS = "\n".join(
    f"declare {vector} @llvm.masked.load.{suffix}.p0(ptr, i32, {BOOL}, {vector})\n"
    f"declare void @llvm.masked.store.{suffix}.p0({vector}, ptr, i32, {BOOL})"
    for vector, suffix in sorted({(element.stored, element.suffix) for element in ELEMENTS.values()})
)


class _Writer:
    def __init__(self, chain: Chain) -> None:
        self.body = FunctionBody()
        self._chain = chain
        self._types = chain.inputs + chain.output_types
        self._bases: list[str] = []
        self._masks: list[str] = []

    def write(self) -> None:
        value, line = self.body.value, self.body.line
        buffers = [value(f"alloca {ELEMENTS[kind].stored}, align 64") for kind in self._chain.inputs]
        line("%words = inttoptr i64 %record to ptr")
        rows, inner, block, blocks, *sizes = (self._word(position) for position in range(HEADER_WORDS))
        units = value(f"mul i64 {rows}, {blocks}")
        start = value(f"sdiv i64 {value(f'mul i64 {units}, %thread')}, %threads")
        line("%next_thread = add i64 %thread, 1")
        stop = value(f"sdiv i64 {value(f'mul i64 {units}, %next_thread')}, %threads")
        line("br label %head")
        line("head:")
        line(f"%unit = phi i64 [ {start}, %entry ], [ %next_unit, %done ]")
        line(f"br i1 {value(f'icmp slt i64 %unit, {stop}')}, label %unit_body, label %exit")
        line("unit_body:")
        row = value(f"sdiv i64 %unit, {blocks}")
        begin = value(f"mul i64 {value(f'srem i64 %unit, {blocks}')}, {block}")
        left = value(f"sub i64 {inner}, {begin}")
        count = value(f"select i1 {value(f'icmp slt i64 {left}, {block}')}, i64 {left}, i64 {block}")
        indices: list[str] = []
        for size in reversed(sizes):
            indices.insert(0, value(f"srem i64 {row}, {size}"))
            row = value(f"sdiv i64 {row}, {size}")
        indices.insert(0, row)
        for operand in range(len(self._types)):
            self._point(operand, indices, begin, buffers)
        self._loops(count)
        line("done:")
        line("%next_unit = add i64 %unit, 1")
        line("br label %head")
        line("exit:")
        line("ret i32 0")

    def _word(self, position: int, type_: str = "i64") -> str:
        address = self.body.value(f"getelementptr i8, ptr %words, i64 {8 * position}")
        return self.body.value(f"load {type_}, ptr {address}")

    def _point(self, operand: int, indices: Sequence[str], begin: str, buffers: Sequence[str]) -> None:
        """Where an operand's elements of this block begin; a broadcast one is repeated in a vector that the whole row reads."""
        value = self.body.value
        first = HEADER_WORDS + OPERAND_WORDS * operand
        step = self._word(first + OPERAND_WORDS - 1)
        offset = value(f"mul i64 {begin}, {step}")
        for dimension, index in enumerate(indices):
            stride = self._word(first + 1 + dimension)
            offset = value(f"add i64 {offset}, {value(f'mul i64 {index}, {stride}')}")
        base = value(f"getelementptr i8, ptr {self._word(first, 'ptr')}, i64 {offset}")
        if operand >= len(self._chain.inputs):
            self._bases.append(base)
            self._masks.append("")
            return
        kind = ELEMENTS[self._types[operand]]
        element, vector = kind.scalar, kind.stored
        single = value(f"load {element}, ptr {base}, align 1")
        inserted = value(f"insertelement {vector} poison, {element} {single}, i32 0")
        spread = value(f"shufflevector {vector} {inserted}, {vector} poison, <16 x i32> zeroinitializer")
        self.body.line(f"store {vector} {spread}, ptr {buffers[operand]}, align 64")
        is_single = value(f"icmp eq i64 {step}, 0")
        self._bases.append(value(f"select i1 {is_single}, ptr {buffers[operand]}, ptr {base}"))
        self._masks.append(value(f"select i1 {is_single}, i64 0, i64 -1"))

    def _loops(self, count: str) -> None:
        value, line = self.body.value, self.body.line
        whole = value(f"and i64 {count}, -{LANES}") if len(self._chain.steps) <= MAX_UNMASKED else "0"
        line("br label %whole")
        line("whole:")
        line("%index = phi i64 [ 0, %unit_body ], [ %next_index, %whole_body ]")
        line(f"br i1 {value(f'icmp slt i64 %index, {whole}')}, label %whole_body, label %tail")
        line("whole_body:")
        self._vector("%index", "")
        line(f"%next_index = add i64 %index, {LANES}")
        line("br label %whole")
        line("tail:")
        line(f"%tail_index = phi i64 [ {whole}, %whole ], [ %next_tail, %tail_body ]")
        line(f"br i1 {value(f'icmp slt i64 %tail_index, {count}')}, label %tail_body, label %done")
        line("tail_body:")
        left = value(f"sub i64 {count}, %tail_index")
        inserted = value(f"insertelement <16 x i64> poison, i64 {left}, i32 0")
        spread = value(f"shufflevector <16 x i64> {inserted}, <16 x i64> poison, <16 x i32> zeroinitializer")
        self._vector("%tail_index", value(f"icmp slt {_LANE_NUMBERS}, {spread}"))
        line(f"%next_tail = add i64 %tail_index, {LANES}")
        line("br label %tail")

    def _vector(self, index: str, mask: str) -> None:
        """One vector of every operand."""
        chain, value = self._chain, self.body.value
        sizes = sorted({ELEMENTS[kind].size for kind in self._types})
        offsets = {size: value(f"mul i64 {index}, {size}") for size in sizes}
        values = [self._load(operand, offsets, mask) for operand in range(len(chain.inputs))]
        for step in chain.steps:
            rule = rule_of(step.operation.op_type)
            names = ["" if operand < 0 else values[operand] for operand in step.operands]
            values.append(rule.emit(self.body, step.operation.attributes, names))
        for position, number in enumerate(chain.outputs):
            self._store(len(chain.inputs) + position, values[number], offsets, mask)

    def _load(self, operand: int, offsets: dict[int, str], mask: str) -> str:
        value, kind = self.body.value, ELEMENTS[self._types[operand]]
        offset = value(f"and i64 {offsets[kind.size]}, {self._masks[operand]}")
        address = value(f"getelementptr i8, ptr {self._bases[operand]}, i64 {offset}")
        if mask:
            arguments = f"ptr {address}, i32 1, {BOOL} {mask}, {kind.stored} zeroinitializer"
            loaded = value(f"call {kind.stored} @llvm.masked.load.{kind.suffix}.p0({arguments})")
        else:
            loaded = value(f"load {kind.stored}, ptr {address}, align 1")
        return loaded if kind.vector == kind.stored else value(f"icmp ne {kind.stored} {loaded}, zeroinitializer")

    def _store(self, operand: int, result: str, offsets: dict[int, str], mask: str) -> None:
        value, kind = self.body.value, ELEMENTS[self._types[operand]]
        address = value(f"getelementptr i8, ptr {self._bases[operand]}, i64 {offsets[kind.size]}")
        stored = result if kind.vector == kind.stored else value(f"zext {kind.vector} {result} to {kind.stored}")
        if mask:
            arguments = f"{kind.stored} {stored}, ptr {address}, i32 1, {BOOL} {mask}"
            self.body.line(f"call void @llvm.masked.store.{kind.suffix}.p0({arguments})")
        else:
            self.body.line(f"store {kind.stored} {stored}, ptr {address}, align 1")
