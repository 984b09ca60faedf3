"""Targets: the levels of instruction sets that machine code is made for.

Code depends on its target only, not on the processor that it is made on or runs on, so that code made elsewhere serves every
machine of the level. Each target of x86-64 has all features of those before it. LLVM's models of whole processors are not taken:
they have features that other processors of the level lack.
"""

from __future__ import annotations

import enum
import functools
import os
import platform
from collections.abc import Callable, Iterator

from ort_sdk.api import InvalidArgument
from ort_sdk.api.data_classes import dataclass

from .processor import has_features, may_use_amx

__all__ = [
    "ISA_VARIABLE",
    "TARGETS",
    "TARGET_VARIABLE",
    "InstructionSet",
    "Target",
    "current_target",
    "is_for_building",
    "machine_target",
]

ISA_VARIABLE = "ORT_SDK_CPU_ISA"
"""Environment variable that forces a target or a level that the machine has."""
TARGET_VARIABLE = "ORT_SDK_CPU_TARGET"
"""Environment variable of processes that make code for other machines, and run none: the target, whatever this machine has."""

_AVX512_TUNING = "+prfchw,-prefer-256-bit"
"""All processors with AVX-512 prefetch for writing. LLVM's tuning for the first of them, whose clocks 512-bit vectors lowered,
would have loops that it vectorizes use half of each register."""
_VNNI = f"{_AVX512_TUNING},+avx512vnni"
_ICL = f"{_VNNI},+avx512ifma,+avx512vbmi,+avx512vbmi2,+avx512bitalg,+avx512vpopcntdq"


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


@dataclass(frozen=True, slots=True)
class Target:
    """What machine code is made for.

    Args:
        name: as files and variables name it.
        instruction_set: its level.
        cpu: LLVM's name of the processor to make code for; empty for the one that the code is made on.
        features: what it has beside, as LLVM takes it.
        has_fma: whether it multiplies and adds float32 in one instruction, rounding once.
        has_float16_conversions: whether it converts float16 to float32, and back.
        has_vnni: whether it has AVX-512's int8 dot products.
        has_vbmi: whether it has AVX-512's byte permutations.
    """

    name: str
    instruction_set: InstructionSet
    cpu: str
    features: str
    has_fma: bool = True
    has_float16_conversions: bool = True
    has_vnni: bool = False
    has_vbmi: bool = False

    @property
    def has_amx(self) -> bool:
        """Whether it has AMX."""
        return self.instruction_set >= InstructionSet.AMX


NATIVE = Target("native", InstructionSet.PORTABLE, "", "")
"""Other architectures, and x86 before SSE4.2: code for the processor that it is made on."""

TARGETS = (
    Target("portable", InstructionSet.PORTABLE, "x86-64-v2", "", has_fma=False, has_float16_conversions=False),
    Target("avx2", InstructionSet.AVX2, "x86-64-v3", ""),
    Target("avx512_skx", InstructionSet.AVX512, "x86-64-v4", _AVX512_TUNING),
    Target("avx512_vnni", InstructionSet.AVX512, "x86-64-v4", _VNNI, has_vnni=True),
    Target("avx512_icl", InstructionSet.AVX512, "x86-64-v4", _ICL, has_vnni=True, has_vbmi=True),
    Target(
        "amx",
        InstructionSet.AMX,
        "x86-64-v4",
        f"{_ICL},+avx512bf16,+amx-tile,+amx-int8,+amx-bf16",
        has_vnni=True,
        has_vbmi=True,
    ),
)
"""Those of x86-64, each with all features of those before it."""

_DETECTED: tuple[Callable[[], bool], ...] = (
    lambda: has_features("X86_V2", "SSSE3", "SSE41", "POPCNT", "SSE42"),
    lambda: has_features("X86_V3", "AVX2", "FMA3", "F16C"),
    lambda: has_features("X86_V4", "AVX512_SKX"),
    lambda: has_features("AVX512VNNI"),
    lambda: has_features("AVX512_ICL"),
    may_use_amx,
)
"""Whether the machine has a target's features, given that it has those of the targets before."""


@functools.cache
def machine_targets() -> tuple[Target, ...]:
    """The targets whose code this machine runs, the best last."""
    return tuple(_detected()) or (NATIVE,)


def _detected() -> Iterator[Target]:
    if platform.machine().lower() not in {"x86_64", "amd64"}:
        return
    for target, is_there in zip(TARGETS, _DETECTED, strict=True):
        if not is_there():
            return
        yield target


def machine_target() -> Target:
    """The best target of this machine."""
    return machine_targets()[-1]


def is_for_building() -> bool:
    """Whether this process makes code for other machines, and must not run it."""
    return bool(os.environ.get(TARGET_VARIABLE))


@functools.cache
def current_target() -> Target:
    """The target that this process makes and runs code for: the machine's best one, unless a variable names another.

    Raises:
        InvalidArgument: the variable does not name a target or level, or names one that the machine does not have.
    """
    built = os.environ.get(TARGET_VARIABLE, "").strip().lower()
    if built:
        return _chosen(TARGET_VARIABLE, built, {target.name: target for target in TARGETS}, "targets are")
    forced = os.environ.get(ISA_VARIABLE, "").strip().lower()
    if not forced:
        return machine_target()
    levels = {target.instruction_set.name.lower(): target for target in machine_targets()}
    return _chosen(ISA_VARIABLE, forced, levels | {target.name: target for target in machine_targets()}, "this machine allows")


def _chosen(variable: str, name: str, allowed: dict[str, Target], phrase: str) -> Target:
    if name not in allowed:
        raise InvalidArgument(f"{variable} is {name!r}; {phrase} {', '.join(allowed)}")
    return allowed[name]
