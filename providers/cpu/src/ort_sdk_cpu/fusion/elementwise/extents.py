"""What chains touch."""

from __future__ import annotations

import functools
import math
from typing import Any

from ort_sdk_cpu.jit.extents.declaration import Declaration, Extent, reaches

from .ir import HEADER_WORDS, OPERAND_WORDS, Chain
from .types import ELEMENTS

__all__ = ["declaration_of_chain"]

_INNER, _SIZES = 1, 4
"""Where a record has the elements of a row, and the sizes of the outer dimensions but the first."""


def declaration_of_chain(chain: Chain) -> Declaration:
    """The declaration of a chain's code: its record tells how elements lie."""
    return _declaration_of(chain.inputs, chain.output_types)


@functools.lru_cache(maxsize=1024)
def _declaration_of(input_types: str, output_types: str) -> Declaration:
    inputs = len(input_types)
    itemsizes = [ELEMENTS[kind].dtype.itemsize for kind in input_types + output_types]
    pointers = [HEADER_WORDS + OPERAND_WORDS * operand for operand in range(len(itemsizes))]
    names = ["rows", "inner", "piece", "pieces", *(f"size {axis}" for axis in range(1, HEADER_WORDS - _SIZES + 1))]
    for operand in range(len(itemsizes)):
        own = f"input {operand}" if operand < inputs else f"output {operand - inputs}"
        names += [own, *(f"{own}, step {axis}" for axis in range(OPERAND_WORDS - 1))]

    def extents(*words: Any) -> list[Extent]:
        outer = words[_SIZES:HEADER_WORDS]
        sizes = (-(-words[0] // math.prod(outer)) if math.prod(outer) else 0, *outer, words[_INNER])
        return [
            reaches(at, sizes, words[at + 1 : at + OPERAND_WORDS], itemsize, is_written=operand >= inputs)
            for operand, (at, itemsize) in enumerate(zip(pointers, itemsizes, strict=True))
        ]

    return Declaration("fusion.chain", names, pointers, extents, has_tail=True)
