"""What the processor of this machine has: its features, as NumPy and Linux tell them."""

from __future__ import annotations

import ctypes
import functools
import importlib
import itertools
import platform
import sys
from pathlib import Path

__all__ = ["has_features", "may_use_amx", "processor_id"]

_features: dict[str, bool] = getattr(importlib.import_module("numpy._core._multiarray_umath"), "__cpu_features__", {})
"""Features of this processor as NumPy detected them, by the names that ``numpy.show_runtime`` prints."""

_CPUINFO = Path("/proc/cpuinfo")
_IDENTIFYING_FIELDS = (
    *("vendor_id", "cpu family", "model", "stepping", "flags"),
    *("CPU implementer", "CPU architecture", "CPU variant", "CPU part", "CPU revision", "Features"),
)
"""Fields of ``/proc/cpuinfo`` that decide what code a processor runs: on x86, on ARM."""

_AMX_FLAGS = frozenset({"amx_tile", "amx_int8", "amx_bf16", "avx512_bf16"})
_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA = 158, 0x1023, 18
"""System call ``arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)``: on Linux a process has to ask before it uses AMX tiles."""


def has_features(group: str, *members: str) -> bool:
    """Whether the processor has a group of features.

    Args:
        group: NumPy's name of the group, which versions of NumPy before 2.4 may not have.
        members: its features, which are asked for in its place then.
    """
    return _features.get(group, bool(members) and all(_features.get(name) for name in members))


@functools.cache
def may_use_amx() -> bool:
    """Whether the processor has AMX and AVX512_BF16, and the system allows this process to use tiles; asks it to."""
    if sys.platform != "linux" or not set(_cpuinfo().get("flags", "").split()) >= _AMX_FLAGS:
        return False
    refused: int = ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA)
    return refused == 0


@functools.cache
def processor_id() -> str:
    """Identity of this processor: architecture, model and features."""
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
