"""Instruction sets that kernels are made for."""

from __future__ import annotations

import ctypes
import enum
import functools
import importlib
import itertools
import os
import platform
import sys
from pathlib import Path

from ort_sdk.api import InvalidArgument

__all__ = [
    "ISA_VARIABLE",
    "InstructionSet",
    "has_matrix_unit",
    "has_vbmi",
    "has_vnni",
    "instruction_set",
    "machine_instruction_set",
    "processor",
]

ISA_VARIABLE = "ORT_SDK_CPU_ISA"
"""Environment variable that forces a level the machine has."""

_features: dict[str, bool] = getattr(importlib.import_module("numpy._core._multiarray_umath"), "__cpu_features__", {})
"""What NumPy found this processor to have: names as ``numpy.show_runtime`` prints them."""

_DESCRIPTION = Path("/proc/cpuinfo")
_NAMING = (
    *("vendor_id", "cpu family", "model", "stepping", "flags"),
    *("CPU implementer", "CPU architecture", "CPU variant", "CPU part", "CPU revision", "Features"),
)
"""Its fields that say what code a processor runs: on x86, on ARM."""


_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA = 158, 0x1023, 18
"""Linux's call on x86-64 that lets a process use what has a large state in each thread: the matrix unit's tiles."""


class InstructionSet(enum.IntEnum):
    """Levels, each including those below."""

    PORTABLE = 0
    """Whatever the compiler makes of plain vector operations."""
    AVX2 = 1
    """x86 with AVX2 and FMA: 256-bit vectors."""
    AVX512 = 2
    """x86 with AVX-512 F, BW, CD, DQ and VL: 512-bit vectors."""
    AMX = 3
    """The same with VNNI, VBMI, and a matrix unit for 8-bit integers and bfloat16 that Linux lets the process use."""


@functools.cache
def machine_instruction_set() -> InstructionSet:
    """The highest level of this machine, as NumPy sees it."""
    if _features.get("AVX512_ICL") and _has_matrix_unit():
        return InstructionSet.AMX
    if _features.get("AVX512_SKX"):
        return InstructionSet.AVX512
    if _features.get("AVX2") and _features.get("FMA3"):
        return InstructionSet.AVX2
    return InstructionSet.PORTABLE


def _has_matrix_unit() -> bool:
    """Whether the processor has AMX and rounds to bfloat16, and the system lets this process use it, if it is asked."""
    flags = _described_fields().get("flags", "").split()
    if sys.platform != "linux" or not {"amx_tile", "amx_int8", "amx_bf16", "avx512_bf16"} <= set(flags):
        return False
    refused: int = ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA)
    return refused == 0


@functools.cache
def instruction_set() -> InstructionSet:
    """The level kernels are made for: the machine's, or the one ``ORT_SDK_CPU_ISA`` forces.

    Raises:
        InvalidArgument: the variable names no level, or one the machine does not have.
    """
    machine, forced = machine_instruction_set(), os.environ.get(ISA_VARIABLE, "").strip().upper()
    if not forced:
        return machine
    allowed = {level.name: level for level in InstructionSet if level <= machine}
    if forced not in allowed:
        names = ", ".join(name.lower() for name in allowed)
        raise InvalidArgument(f"{ISA_VARIABLE} is {forced.lower()!r}; this machine allows {names}")
    return allowed[forced]


def has_vnni() -> bool:
    """Whether the level used includes AVX-512's products of 8-bit integers (VNNI)."""
    return instruction_set() >= InstructionSet.AVX512 and bool(_features.get("AVX512VNNI"))


def has_matrix_unit() -> bool:
    """Whether the level used includes products of tiles (AMX)."""
    return instruction_set() >= InstructionSet.AMX


def has_vbmi() -> bool:
    """Whether the level used includes AVX-512's permutations of bytes (VBMI)."""
    return instruction_set() >= InstructionSet.AVX512 and bool(_features.get("AVX512_ICL"))


@functools.cache
def processor() -> str:
    """What tells this machine's processor from others that code may be made for: model and features."""
    found = " ".join(sorted(name for name, is_there in _features.items() if is_there))
    return f"{platform.machine()} {_described()} {found}"


@functools.cache
def _described_fields() -> dict[str, str]:
    """What Linux tells of the first processor: names as in ``_NAMING``."""
    try:
        with _DESCRIPTION.open(encoding="utf-8", errors="replace") as file:
            fields = [line.partition(":") for line in itertools.takewhile(str.strip, file)]
    except OSError:
        return {}
    return {name.strip(): value.strip() for name, _, value in fields if name.strip() in _NAMING}


def _described() -> str:
    """Model and features as Linux tells them, else as the compiler's library does."""
    found = _described_fields()
    if found:
        return " ".join(found.values())
    llvm = importlib.import_module("llvmlite.binding")
    return f"{llvm.get_host_cpu_name()} {llvm.get_host_cpu_features().flatten()}"
