"""Sizes that compiled code has for the instruction set it is made for."""

from __future__ import annotations

import functools

from ort_sdk_cpu.platform.cpu_features import InstructionSet, instruction_set

__all__ = ["FLOAT", "INT64", "LANES", "VECTOR", "float_tile", "panel_bytes", "panel_width", "panels_of", "whole"]

FLOAT, INT64 = 4, 8
VECTOR, LANES = 64, 16
"""Bytes and float32 numbers of a vector."""


@functools.cache
def float_tile() -> tuple[int, int]:
    """Rows of a tile of float32 sums, and vectors of one."""
    return (12, 2) if instruction_set() >= InstructionSet.AVX512 else (6, 1)


@functools.cache
def panel_width() -> int:
    """Columns of a panel of float32 weights."""
    return LANES * float_tile()[1]


@functools.cache
def panel_bytes() -> int:
    """Of a row of a panel."""
    return panel_width() * FLOAT


def panels_of(columns: int) -> int:
    """How many panels hold so many columns."""
    return -(-columns // panel_width())


def whole(count: int, unit: int = LANES) -> int:
    """The least multiple of a unit that is not below a count."""
    return -(-count // unit) * unit
