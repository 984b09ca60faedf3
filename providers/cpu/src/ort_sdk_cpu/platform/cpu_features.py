"""Instruction sets that kernels are compiled for."""

from __future__ import annotations

from .targets import ISA_VARIABLE, InstructionSet, current_target, machine_target

__all__ = [
    "ISA_VARIABLE",
    "InstructionSet",
    "has_amx",
    "has_float16_conversions",
    "has_fma",
    "has_vbmi",
    "has_vnni",
    "instruction_set",
    "machine_instruction_set",
]


def machine_instruction_set() -> InstructionSet:
    """The highest level of this machine."""
    return machine_target().instruction_set


def instruction_set() -> InstructionSet:
    """The level that kernels are compiled for: the machine's, or the lower one that ``ORT_SDK_CPU_ISA`` forces.

    Raises:
        InvalidArgument: the variable does not name a level, or names one that the machine does not have.
    """
    return current_target().instruction_set


def has_vnni() -> bool:
    """Whether the target has AVX-512's int8 dot products (VNNI)."""
    return current_target().has_vnni


def has_amx() -> bool:
    """Whether the target has AMX."""
    return current_target().has_amx


def has_vbmi() -> bool:
    """Whether the target has AVX-512's byte permutations (VBMI)."""
    return current_target().has_vbmi


def has_fma() -> bool:
    """Whether the target multiplies and adds float32 in one instruction, rounding once."""
    return current_target().has_fma


def has_float16_conversions() -> bool:
    """Whether the target converts float16 to float32, and back, by instructions."""
    return current_target().has_float16_conversions
