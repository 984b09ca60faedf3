"""What the code of chains touches. It is made at run time, and so is what it declares; there is no class of arguments."""

from __future__ import annotations

import functools
import math
from typing import Any

from ort_sdk_cpu.jit.extents.declaration import Declaration, Extent, accesses

from .ir import HEADER_WORDS, OPERAND_WORDS, Chain
from .types import ELEMENTS

__all__ = ["declaration_of_chain"]

_ROWS, _INNER_SIZE, _OUTER_SIZES = 0, 1, 4
"""Positions in a record: rows, elements of a row, and the sizes of the outer dimensions but the first."""


def declaration_of_chain(chain: Chain) -> Declaration:
    """What a chain's code touches with the sizes and strides of a record; see ``ir``."""
    return _declaration_of(chain.inputs, chain.output_types)


@functools.lru_cache(maxsize=1024)
def _declaration_of(input_types: str, output_types: str) -> Declaration:
    inputs = len(input_types)
    itemsizes = [ELEMENTS[code].dtype.itemsize for code in input_types + output_types]
    pointers = [HEADER_WORDS + OPERAND_WORDS * operand for operand in range(len(itemsizes))]

    def extents(*words: Any) -> list[Extent]:
        outer = words[_OUTER_SIZES:HEADER_WORDS]
        first = -(-words[_ROWS] // math.prod(outer)) if math.prod(outer) else 0
        sizes = (first, *outer, words[_INNER_SIZE])
        return [
            accesses(at, sizes, words[at + 1 : at + OPERAND_WORDS], itemsize, is_written=operand >= inputs)
            for operand, (at, itemsize) in enumerate(zip(pointers, itemsizes, strict=True))
        ]

    return Declaration("fusion.chain", _names(inputs, len(output_types)), pointers, extents, has_tail=True)


def _names(inputs: int, outputs: int) -> list[str]:
    """Of the words of a record."""
    names = ["rows", "inner size", "block size", "blocks", *(f"outer size {axis}" for axis in range(1, HEADER_WORDS - 3))]
    for operand in (*(f"input {number}" for number in range(inputs)), *(f"output {number}" for number in range(outputs))):
        strides = (*(f"outer stride {axis}" for axis in range(OPERAND_WORDS - 2)), "inner stride")
        names += [operand, *(f"{operand}, {stride}" for stride in strides)]
    return names
