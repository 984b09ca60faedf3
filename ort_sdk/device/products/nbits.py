"""Products with a weight of 4 or 8 bits in blocks with a scale each, in ONNX Runtime's layout."""

from __future__ import annotations

import math
from functools import partial

from ort_sdk.api import TensorElementType
from ort_sdk.api.data_classes import dataclass
from ort_sdk.device.context import DeviceContext
from ort_sdk.device.element_types import HALF_TYPES, STORAGE
from ort_sdk.device.expressions.nodes import Deferred, Node, Strided
from ort_sdk.device.expressions.parameters import Parameters
from ort_sdk.device.launches import KernelSource, Launch

from .deferred import DeferredRows
from .epilogue import Epilogue
from .fastest import Forms, submit_fastest
from .nbits_texts import DEQUANTIZE, DEQUANTIZE_PANELS, MULTIPLY, MULTIPLY_WORDS, PREPARE, PREPARE_WORDS, REST
from .operands import Matrices, index_defines, parameters_for
from .panels import PANEL, PanelForm, multiply_panels, packed_rows, row_block, stored_row
from .tiles import multiply_tiles
from .tuning_key import size_bucket

__all__ = ["BlockProduct", "Blocks"]

FLOAT, UINT32 = TensorElementType.FLOAT, TensorElementType.UINT32
MOST_VECTOR_ROWS, MOST_COMPARED_ROWS = 8, 32
"""Rows up to which the weight is dequantized in registers; with more, once for all of them. And those up to which tuning looks at
both."""
ROWS_AT_ONCE = 4
WORDS_AT_ONCE = 16
"""32-bit words of codes in a vector."""
PANEL_BYTES, MATRIX_BYTES = 1 << 21, 1 << 26
"""Of a dequantized part of a weight: what stays in a processor's cache, and what a graphics processor has room for."""


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """A weight (n, blocks of a row, bytes of a block), lowest bits first, all dense in memory."""

    codes: Strided
    scales: Strided
    """(n, blocks), floating-point."""
    zeros: Strided | None
    """Bytes (n, ceil(blocks * bits / 8)), or (n, blocks) floating-point numbers; None for half the range."""
    bits: int
    size: int
    """Elements of a block."""
    n: int
    k: int

    @property
    def count(self) -> int:
        """Blocks of a row."""
        return -(-self.k // self.size)

    def macros(self, parameters: Parameters) -> dict[str, str | int]:
        """What the kernels' texts look at; adds the memories to the parameters."""
        scales, zeros = self.scales, self.zeros
        macros: dict[str, str | int] = {
            "CODES": parameters.memory(self.codes.held, UINT32),
            "BITS": self.bits,
            "BLOCK": self.size,
            "WORDS": self.size * self.bits // 32,
            "BLOCKS": parameters.index(self.count, folds=False),
            "N": parameters.index(self.n, folds=False),
            "K": parameters.index(self.k, folds=False),
            "SCALE(row, block)": _loaded(parameters, scales),
            "ZERO(row, block)": f"{1 << (self.bits - 1)}.0f",
        }
        if zeros is not None and zeros.element_type is TensorElementType.UINT8:
            memory, per_byte = parameters.memory(zeros.held, zeros.element_type), 8 // self.bits
            byte = f"{memory}[(row) * ((BLOCKS + {per_byte - 1}) / {per_byte}) + (block) / {per_byte}]"
            macros["ZERO(row, block)"] = f"((f32)(({byte} >> ((block) % {per_byte} * {self.bits})) & {(1 << self.bits) - 1}))"
        elif zeros is not None:
            macros["ZERO(row, block)"] = _loaded(parameters, zeros)
        return macros

    @property
    def arrays(self) -> list[Strided]:
        """All that it has in memory."""
        return [self.codes, self.scales, *([] if self.zeros is None else [self.zeros])]


def _loaded(parameters: Parameters, array: Strided) -> str:
    element = f"{parameters.memory(array.held, array.element_type)}[(row) * BLOCKS + (block)]"
    return f"get_{STORAGE[array.element_type]}({element})" if array.element_type in HALF_TYPES else element


_SPREAD = {2: "s0000000011111111", 4: "s0000111122223333", 8: "s0011223344556677"}
"""How the numbers of so many blocks are laid out for the lanes of a vector of words."""


def _vector_macros(weight: Blocks, parameters: Parameters, chunks: int) -> dict[str, str | int]:
    words = weight.size * weight.bits // 32
    blocks = WORDS_AT_ONCE // words if words < WORDS_AT_ONCE else 1
    numbers = {"SCALE": weight.scales, "ZERO": weight.zeros}
    scales_at = f"{_name(parameters, weight.scales)} + (i64)(row) * BLOCKS + (chunk) * {WORDS_AT_ONCE} / {words}"
    scale, zero = (
        f"splat_f32({name}(row, (chunk) * {WORDS_AT_ONCE} / {words}))"
        if blocks == 1
        else f"({_neighbours(parameters, name, array, blocks)}).{_SPREAD[blocks]}"
        for name, array in numbers.items()
    )
    if weight.zeros is None:
        zero = f"splat_f32({1 << (weight.bits - 1)}.0f)"
    return {
        "VW": WORDS_AT_ONCE,
        "PER": 32 // weight.bits,
        "CHUNKS": parameters.index(chunks, folds=False),
        "SCALES(row, chunk)": scale,
        "SCALES_AT(row, chunk)": scales_at,
        "MIDDLES(row, chunk)": f"(1.0f + {zero} * {1.0 / (1 << weight.bits)!r}f)",
        "ROW_OF(i)": "(XS + ((row + (i) < M ? row + (i) : M - 1) * CHUNKS + chunk) * (PER + 1) * VW)",
    }


def _neighbours(parameters: Parameters, name: str, array: Strided | None, blocks: int) -> str:
    """A vector of the numbers of some blocks of a chunk. Loaded one by one they would be gathered, which is slow."""
    start = f"(row) * BLOCKS + (chunk) * {blocks}"
    if array is not None and array.element_type is FLOAT:
        return f"vload{blocks}(0, {_name(parameters, array)} + {start})"
    if array is not None and array.element_type is TensorElementType.FLOAT16:
        return f"vload_half{blocks}(0, (__global const half *)({_name(parameters, array)} + {start}))"
    return f"(float{blocks})({', '.join(f'{name}(row, (chunk) * {blocks} + {block})' for block in range(blocks))})"


def _name(parameters: Parameters, array: Strided) -> str:
    return parameters.memory(array.held, array.element_type)


class BlockProduct(DeferredRows):
    """(..., k) with the transpose of a weight.

    Args:
        context: of the device.
        x: float32 (..., k), dense.
        weight: of n rows of k elements.
    """

    __slots__ = ("_rows", "_weight", "_x")

    def __init__(self, context: DeviceContext, x: Strided, weight: Blocks) -> None:
        super().__init__(context, (*x.shape[:-1], weight.n), FLOAT, weight.n, (x, *weight.arrays))
        self._x, self._weight, self._rows = x, weight, math.prod(x.shape[:-1])

    def launch(self, value: Deferred, output: Strided, root: Node | None) -> None:
        weight, zeros = self._weight, self._weight.zeros
        sizes = (weight.bits, weight.size, size_bucket(self._rows), size_bucket(weight.k), size_bucket(weight.n))
        key = ("MatMulNBits", *sizes, "" if zeros is None else zeros.element_type.name)
        submit_fastest(self.context, key, self._forms(value, output, root), output, [each.held for each in weight.arrays])

    def _forms(self, value: Deferred, output: Strided, root: Node | None) -> Forms:
        parts = {"dequantized": partial(self._multiply_parts, value, output, root)}
        if self._rows > MOST_COMPARED_ROWS:
            return parts
        multiply = partial(self._multiply_codes, value, output, root)
        codes = {f"codes by {lanes} lanes": partial(multiply, lanes) for lanes in self._lanes()}
        if self._rows > MOST_VECTOR_ROWS:
            return {**parts, **codes}
        return codes if self._rows == 1 else {**codes, **parts}

    def _lanes(self) -> list[int]:
        """Lanes that may go through a row of codes together, those that are preferred first."""
        most = self.context.device.most_lanes
        return [1] if self._is_vectors else [min(64, most), *(lanes for lanes in (32, 128, 256) if lanes <= most)]

    @property
    def _is_panels(self) -> bool:
        return self.context.computes_panels

    @property
    def _is_vectors(self) -> bool:
        return self._is_panels and self.context.device.vector_width == WORDS_AT_ONCE

    def _multiply_codes(self, value: Deferred, output: Strided, root: Node | None, lanes: int) -> None:
        context, weight, is_vectors = self.context, self._weight, self._is_vectors
        words = weight.count * weight.size * weight.bits // 32
        chunks = words // WORDS_AT_ONCE if is_vectors else 0
        memories: dict[str, Strided] = {}
        if chunks * WORDS_AT_ONCE < words:
            memories["X"] = self._prepared(PREPARE, weight.count * weight.size, 1, 0)
        if chunks:
            per_word = 32 // weight.bits
            memories["XS"] = self._prepared(PREPARE_WORDS, chunks * WORDS_AT_ONCE, per_word + 1, chunks)
        parameters = parameters_for([*memories.values(), *weight.arrays, output, *Epilogue.leaves(root)])
        rows = min(self._rows, ROWS_AT_ONCE)
        row_groups = -(-self._rows // rows)
        macros = {**weight.macros(parameters), "ROWS": rows, "M": parameters.index(self._rows, folds=False)}
        macros |= {name: parameters.memory(memory.held, FLOAT) for name, memory in memories.items()}
        macros.setdefault("XS", macros.get("X", ""))
        macros["ROW_GROUPS"] = parameters.index(row_groups, folds=False)
        epilogue = Epilogue(value, root, output, weight.n, parameters)
        if is_vectors:
            macros |= _vector_macros(weight, parameters, chunks)
            macros |= {"COLUMNS": 4 if rows == 1 else 2}
            store = [*epilogue.row("row + i"), *stored_row(epilogue, "values + i * VW", "column", "count")]
            text = MULTIPLY_WORDS.replace("/*REST*/", REST if "X" in memories else "")
            column_groups = -(-weight.n // WORDS_AT_ONCE)
        else:
            store = [*epilogue.row("row + i"), *epilogue.element("column", "total")]
            text, column_groups = MULTIPLY, weight.n
        macros |= {"LANES": lanes, "PARAMETERS": parameters.text}
        text = text.replace("/*STORE*/", "\n".join(store))
        source = KernelSource("multiply", text, (*macros.items(), *index_defines(parameters)))
        groups = (column_groups * row_groups,)
        context.submit(Launch(source, groups, (lanes,), tuple(parameters.arguments), tuple(parameters.writes)))

    def _prepared(self, text: str, items: int, numbers: int, chunks: int) -> Strided:
        """The rows without subnormal numbers, which are slow to multiply, and with zeros up to the end of the last block.

        Args:
            text: of the kernel that makes them.
            items: of a row, each of which a lane makes.
            numbers: that a lane writes.
            chunks: vectors of words of a row.
        """
        context, weight = self.context, self._weight
        target = context.new((self._rows, items * numbers), FLOAT)
        parameters = parameters_for([self._x, target])
        lanes = context.device.lanes
        macros: dict[str, str | int] = {
            "X": parameters.memory(self._x.held, FLOAT),
            "Y": parameters.memory(target.held, FLOAT, written=True),
            "TOTAL": parameters.index(self._rows * items, folds=False),
            "WIDTH": parameters.index(items, folds=False),
            "CHUNKS": parameters.index(chunks, folds=False),
            "K": parameters.index(weight.k, folds=False),
            "LANES": lanes,
            "PER": 32 // weight.bits,
            "VW": WORDS_AT_ONCE,
        }
        macros["PARAMETERS"] = parameters.text
        if context.device.vector_width != WORDS_AT_ONCE:
            del macros["VW"]
        source = KernelSource("prepare", text, (*macros.items(), *index_defines(parameters)))
        groups = (-(-self._rows * items // lanes),)
        context.submit(Launch(source, groups, (lanes,), tuple(parameters.arguments), tuple(parameters.writes)))
        return target

    def _multiply_parts(self, value: Deferred, output: Strided, root: Node | None) -> None:
        """Dequantize the weight some columns of the product at a time, and multiply by them."""
        context, weight = self.context, self._weight
        row_bytes = 4 * weight.k
        limit = PANEL_BYTES if self._is_panels else MATRIX_BYTES
        step = min(max(PANEL, limit // row_bytes // PANEL * PANEL), -(-weight.n // PANEL) * PANEL)
        part = context.new((step * weight.k,), FLOAT)
        x = self._x.view((1, 1, self._rows, weight.k), (0, 0, weight.k, 1), self._x.offset)
        form = PanelForm(row_block(self._rows), packs_rows=True)
        own_rows = packed_rows(context, x, form.rows) if self._is_panels else None
        for first in range(0, weight.n, step):
            count = min(step, weight.n - first)
            self._dequantize(part, first, count)
            b = part.view((1, 1, weight.k, count), (0, 0, 1, weight.k), 0)
            matrices = Matrices(x, b, first_column=first, all_columns=weight.n, is_packed=self._is_panels)
            if own_rows is None:
                multiply_tiles(context, value, matrices, output, root)
            else:
                multiply_panels(context, value, matrices, output, root, form, own_rows)

    def _dequantize(self, target: Strided, first: int, count: int) -> None:
        context, weight = self.context, self._weight
        parameters = parameters_for([*weight.arrays, target])
        macros = {**weight.macros(parameters), "Y": parameters.memory(target.held, FLOAT, written=True)}
        macros |= {"FIRST": parameters.index(first, folds=False), "COUNT": parameters.index(count, folds=False)}
        if self._is_panels:
            text, lanes, groups = DEQUANTIZE_PANELS, 1, -(-count // PANEL) * weight.count
            macros |= {"VW": context.device.vector_width, "PANEL": PANEL}
        else:
            text, lanes = DEQUANTIZE, context.device.lanes
            groups = -(-count * weight.count * (weight.size * weight.bits // 32) // lanes)
        macros |= {"LANES": lanes, "PARAMETERS": parameters.text}
        source = KernelSource("dequantize", text, (*macros.items(), *index_defines(parameters)))
        context.submit(Launch(source, (groups,), (lanes,), tuple(parameters.arguments), tuple(parameters.writes)))
