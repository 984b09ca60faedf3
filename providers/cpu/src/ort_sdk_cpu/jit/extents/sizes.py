"""Sizes of elements, vectors, register tiles and panels of compiled code, which depend on the instruction set."""

from __future__ import annotations

import functools

from ort_sdk_cpu.platform.cpu_features import InstructionSet, instruction_set

__all__ = ["FLOAT", "INT64", "LANES", "VECTOR", "panel_bytes", "panel_count", "panel_width", "register_tile", "round_up"]

FLOAT, INT64 = 4, 8
"""Bytes of an element."""
VECTOR, LANES = 64, 16
"""Bytes of a vector, and its float32 elements."""


@functools.cache
def register_tile() -> tuple[int, int]:
    """(rows, vectors per row) of the register tile of float32 accumulators: 24 of 32 registers, or 12 of 16 with 256-bit ones."""
    return (12, 2) if instruction_set() >= InstructionSet.AVX512 else (6, 1)


@functools.cache
def panel_width() -> int:
    """Columns of a packed panel of float32 weights."""
    return LANES * register_tile()[1]


@functools.cache
def panel_bytes() -> int:
    """Bytes of a row of a packed panel of float32 weights."""
    return panel_width() * FLOAT


def panel_count(columns: int) -> int:
    """Number of panels that a number of columns needs."""
    return -(-columns // panel_width())


def round_up(count: int, unit: int = LANES) -> int:
    """``count`` rounded up to a multiple of ``unit``."""
    return -(-count // unit) * unit
