"""Instruction sets of the processor, and the one that kernels are compiled for."""

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
    "has_amx",
    "has_vbmi",
    "has_vnni",
    "instruction_set",
    "machine_instruction_set",
    "processor_id",
]

ISA_VARIABLE = "ORT_SDK_CPU_ISA"
"""Environment variable that forces a level the machine has."""

_features: dict[str, bool] = getattr(importlib.import_module("numpy._core._multiarray_umath"), "__cpu_features__", {})
"""Features of this processor as NumPy detected them, by the names that ``numpy.show_runtime`` prints."""

_CPUINFO = Path("/proc/cpuinfo")
_IDENTIFYING_FIELDS = (
    *("vendor_id", "cpu family", "model", "stepping", "flags"),
    *("CPU implementer", "CPU architecture", "CPU variant", "CPU part", "CPU revision", "Features"),
)
"""Fields of ``/proc/cpuinfo`` that decide what code a processor runs: on x86, on ARM."""


_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA = 158, 0x1023, 18
"""System call ``arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)``: on Linux a process has to ask before it uses AMX tiles."""


class InstructionSet(enum.IntEnum):
    """Levels of instruction sets, each including those below."""

    PORTABLE = 0
    """Generic vector operations only, on any architecture."""
    AVX2 = 1
    """x86 with AVX2 and FMA: 256-bit vectors."""
    AVX512 = 2
    """x86 with AVX-512 F, BW, CD, DQ and VL: 512-bit vectors."""
    AMX = 3
    """The same with VNNI, VBMI, and AMX for int8 and bfloat16, which Linux allowed this process to use."""


@functools.cache
def machine_instruction_set() -> InstructionSet:
    """The highest level of this machine."""
    if _features.get("AVX512_ICL") and _may_use_amx():
        return InstructionSet.AMX
    if _features.get("AVX512_SKX"):
        return InstructionSet.AVX512
    if _features.get("AVX2") and _features.get("FMA3"):
        return InstructionSet.AVX2
    return InstructionSet.PORTABLE


def _may_use_amx() -> bool:
    """Whether the processor has AMX and AVX512_BF16, and the system allows this process to use tiles; asks it to."""
    flags = _cpuinfo().get("flags", "").split()
    if sys.platform != "linux" or not {"amx_tile", "amx_int8", "amx_bf16", "avx512_bf16"} <= set(flags):
        return False
    refused: int = ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA)
    return refused == 0


@functools.cache
def instruction_set() -> InstructionSet:
    """The level that kernels are compiled for: the machine's, or the lower one that ``ORT_SDK_CPU_ISA`` forces.

    Raises:
        InvalidArgument: the variable does not name a level, or names one that the machine does not have.
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
    """Whether the level used includes AVX-512's int8 dot products (VNNI)."""
    return instruction_set() >= InstructionSet.AVX512 and bool(_features.get("AVX512VNNI"))


def has_amx() -> bool:
    """Whether the level used includes AMX."""
    return instruction_set() >= InstructionSet.AMX


def has_vbmi() -> bool:
    """Whether the level used includes AVX-512's byte permutations (VBMI)."""
    return instruction_set() >= InstructionSet.AVX512 and bool(_features.get("AVX512_ICL"))


@functools.cache
def processor_id() -> str:
    """Identity of this processor in the names of cached code: architecture, model and features."""
    found = " ".join(sorted(name for name, is_there in _features.items() if is_there))
    return f"{platform.machine()} {_model()} {found}"


@functools.cache
def _cpuinfo() -> dict[str, str]:
    """The ``_IDENTIFYING_FIELDS`` of the first processor in Linux's ``/proc/cpuinfo``; empty where there is no such file."""
    try:
        with _CPUINFO.open(encoding="utf-8", errors="replace") as file:
            fields = [line.partition(":") for line in itertools.takewhile(str.strip, file)]
    except OSError:
        return {}
    return {name.strip(): value.strip() for name, _, value in fields if name.strip() in _IDENTIFYING_FIELDS}


def _model() -> str:
    """Model and features from Linux, else from LLVM."""
    found = _cpuinfo()
    if found:
        return " ".join(found.values())
    llvm = importlib.import_module("llvmlite.binding")
    return f"{llvm.get_host_cpu_name()} {llvm.get_host_cpu_features().flatten()}"
