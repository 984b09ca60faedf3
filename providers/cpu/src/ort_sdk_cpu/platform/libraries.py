"""Optional libraries of the provider: which are installed, why one is not used, and what is set in the environment for them.

Nothing is imported or loaded until it is needed: a model without a kernel that uses a library never loads it.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
import platform
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from ort_sdk.api import CompilationPolicy, InvalidArgument, compilation_context
from ort_sdk.api.data_classes import dataclass
from ort_sdk.api.distributions import distributions, version_of

from .archives import archive_name, archives
from .cpu_features import InstructionSet, instruction_set, machine_instruction_set
from .run_settings import current_threads

__all__ = [
    "DISABLED_KERNELS",
    "DISABLE_VARIABLE",
    "Library",
    "compiled_kernels",
    "is_openmp_loaded",
    "limit_spinning",
    "numba",
    "onednn",
    "onednn_path",
    "report",
    "set_environment",
    "thread_count",
    "version_of",
]

DISABLE_VARIABLE = "ORT_SDK_CPU_DISABLE"
"""Environment variable: names of what not to use, separated by commas: libraries, or ``kernels`` for all compiled kernels."""

DISABLED_KERNELS = "kernels"
NAMES = ("onednn", "numba", DISABLED_KERNELS)
LEAST_NUMBA = (0, 62)
"""The first version whose LLVM has opaque pointers, which the kernels' LLVM IR uses."""
ONEDNN_DISTRIBUTION = "onednn-cpu-gomp"
ONEDNN_FILE = "libdnnl.so.3"
ONEDNN_LIMITS = {
    InstructionSet.PORTABLE: "SSE41",
    InstructionSet.AVX2: "AVX2",
    InstructionSet.AVX512: "AVX512_CORE_FP16",
    InstructionSet.AMX: "AVX512_CORE_FP16",
}
"""Highest instruction set that oneDNN may use, by its own names. Not AMX: convolutions of its version 3.2 may crash there."""
OPENMP_FILE = "libgomp.so.1"
OPENMP_REMEDY = "install GCC's OpenMP library (Debian, Ubuntu: apt install libgomp1; Fedora: dnf install libgomp)"

SPIN_COUNT = "8000"
"""Iterations that a waiting OpenMP thread spins before it sleeps: about 200 us, longer than Python takes between two runs where a
model's weights have filled the caches. The default, milliseconds, stalls both programs where another one needs the same core."""
SPINS_PER_MICROSECOND = 40
"""Iterations of a spinning thread: a ``pause`` instruction takes from about 10 to 45 ns."""
SPINNING_KEY = "session.intra_op.allow_spinning"
SPIN_DURATION_KEY = "session.intra_op.spin_duration_us"


@dataclass(frozen=True, slots=True)
class Library:
    """An optional library."""

    name: str
    version: str = ""
    reason: str = ""
    """Why it is not used; empty if it is used."""
    remedy: str = ""
    """What the user can do to have it used."""

    @property
    def is_usable(self) -> bool:
        """Whether kernels may use it."""
        return not self.reason

    def __str__(self) -> str:
        if self.is_usable:
            return f"{self.name} {self.version}"
        return f"{self.name}: not used: {self.reason}{'; ' + self.remedy if self.remedy else ''}"


def compiled_kernels() -> Library:
    """Compiled kernels: usable where an archive brings them or numba compiles them, unless the calling thread avoids them."""
    if compilation_context().policy is CompilationPolicy.AVOID:
        return _AVOIDED
    return _compiled_kernels()


@functools.cache
def _compiled_kernels() -> Library:
    switched_off = _switched_off("compiled kernels", DISABLED_KERNELS)
    if switched_off is not None:
        return switched_off
    brought, compiler = archives(), numba()
    if brought:
        return Library("compiled kernels", ", ".join(f"from {archive.path}" for archive in brought))
    if compiler.is_usable:
        return Library("compiled kernels", f"made on this machine by {compiler}")
    reason = f"no archive {archive_name()} came with the package, and numba cannot compile them: {compiler.reason}"
    return Library("compiled kernels", reason=reason, remedy=compiler.remedy)


_AVOIDED = Library("compiled kernels", reason="this session does without them")


@functools.cache
def numba() -> Library:
    """The compiler of kernels, numba; looked up without importing it. Not needed where no compiled kernels are used."""
    switched_off = _switched_off("numba", DISABLED_KERNELS) or _switched_off("numba", "numba")
    if switched_off is not None:
        return switched_off
    version = version_of("numba")
    if not version or importlib.util.find_spec("numba") is None:
        return Library("numba", reason="not installed", remedy="pip install numba")
    if _first_two(version) < LEAST_NUMBA:
        least = ".".join(map(str, LEAST_NUMBA))
        return Library("numba", reason=f"{version} is installed, {least} is needed", remedy=f"pip install 'numba>={least}'")
    return Library("numba", version)


def _switched_off(library: str, name: str) -> Library | None:
    """A library that is not used because the variable has a name; None if it has not."""
    if name not in disabled():
        return None
    return Library(library, reason=f"disabled by {DISABLE_VARIABLE}", remedy=f"take '{name}' out of {DISABLE_VARIABLE}")


def _first_two(version: str) -> tuple[int, ...]:
    """Major and minor number."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


@functools.cache
def onednn() -> Library:
    """OneDNN with GCC's OpenMP, called through cffi. Looks for their files; loads GCC's OpenMP library only."""
    switched_off = _switched_off("oneDNN", "onednn")
    if switched_off is not None:
        return switched_off
    if sys.platform != "linux" or platform.machine() != "x86_64":
        here = f"{sys.platform} on {platform.machine()}"
        return Library("oneDNN", reason=f"{ONEDNN_DISTRIBUTION} is made for Linux on x86_64, this is {here}")
    missing = [name for name in (ONEDNN_DISTRIBUTION, "cffi") if not version_of(name)]
    if missing:
        return Library("oneDNN", reason=f"{' and '.join(missing)} not installed", remedy=f"pip install {' '.join(missing)}")
    path = onednn_path()
    if path is None:
        remedy = f"pip install --force-reinstall {ONEDNN_DISTRIBUTION}"
        return Library("oneDNN", reason=f"{ONEDNN_DISTRIBUTION} is installed without its {ONEDNN_FILE}", remedy=remedy)
    if not has_openmp():
        return Library("oneDNN", reason=f"{OPENMP_FILE} is missing", remedy=OPENMP_REMEDY)
    return Library("oneDNN", f"({ONEDNN_DISTRIBUTION} {version_of(ONEDNN_DISTRIBUTION)}, cffi {version_of('cffi')})")


@functools.cache
def onednn_path() -> Path | None:
    """Path of the shared library of the installed distribution; None if there is none."""
    for found in distributions(ONEDNN_DISTRIBUTION):
        paths = (path.resolve() for path in found.files() if path.name == ONEDNN_FILE)
        return next((path for path in paths if path.is_file()), None)
    return None


@functools.cache
def disabled() -> frozenset[str]:
    """Names in ``ORT_SDK_CPU_DISABLE``.

    Raises:
        InvalidArgument: a name is none of these.
    """
    names = frozenset(name.strip().lower() for name in os.environ.get(DISABLE_VARIABLE, "").split(",") if name.strip())
    if not names <= set(NAMES):
        unknown = ", ".join(sorted(names - set(NAMES)))
        raise InvalidArgument(f"{DISABLE_VARIABLE} names {unknown}; it takes any of {', '.join(NAMES)}, separated by commas")
    return names


@functools.cache
def has_openmp() -> bool:
    """Load GCC's OpenMP library, which oneDNN and compiled tasks share; False if it cannot be loaded."""
    if sys.platform != "linux":
        return False
    set_environment()
    try:
        ctypes.CDLL(OPENMP_FILE)
    except OSError:
        return False
    return True


def is_openmp_loaded() -> bool:
    """Whether ``has_openmp`` was called; loads nothing."""
    return has_openmp.cache_info().currsize > 0


@functools.cache
def set_environment() -> None:
    """Set the environment variables that the libraries read when they are loaded; what the user has set stays.

    Called before the first of them is loaded.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPIN_COUNT)
    os.environ.setdefault("ONEDNN_MAX_CPU_ISA", ONEDNN_LIMITS[instruction_set()])


def thread_count() -> int:
    """Threads that a kernel may use now."""
    return current_threads()


def limit_spinning(config: Mapping[str, str]) -> None:
    """Limit how long waiting OpenMP threads spin, if a session asks for it before the library is loaded.

    Args:
        config: the session's entries. ``session.intra_op.allow_spinning`` ``0`` lets threads sleep at once,
            ``session.intra_op.spin_duration_us`` after about that many microseconds.

    Raises:
        InvalidArgument: the duration is not a whole number.
    """
    duration = config.get(SPIN_DURATION_KEY, "")
    if duration and not duration.isdigit():
        raise InvalidArgument(f"config entry {SPIN_DURATION_KEY} is {duration!r}; it takes a whole number of microseconds")
    count = "0" if config.get(SPINNING_KEY, "1") == "0" else duration and str(int(duration) * SPINS_PER_MICROSECOND)
    if count and "OMP_WAIT_POLICY" not in os.environ and not is_openmp_loaded():
        os.environ.setdefault("GOMP_SPINCOUNT", count)


def report() -> list[str]:
    """What the provider uses on this machine, one line per library and setting."""
    forced = "" if instruction_set() is machine_instruction_set() else f", of {machine_instruction_set().name.lower()}"
    lines = [str(onednn()), str(compiled_kernels()), str(numba()), f"instruction set {instruction_set().name.lower()}{forced}"]
    if has_openmp():
        names = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
        settings = ", ".join(f"{name}={os.environ[name]}" for name in names if name in os.environ)
        lines.append(f"{thread_count()} threads over {OPENMP_FILE} ({settings})")
    else:
        lines.append(f"compiled kernels use one thread: {OPENMP_FILE} is missing; {OPENMP_REMEDY}")
    return lines
