"""Build backend of the CPU provider: setuptools', whose wheels for Linux on x86-64 carry the machine code of all kernels.

Compiling takes minutes: a wheel for others is worth it, an installation from these sources is not, whose kernels are compiled in
the background as they are needed. So ``python -m build`` compiles, and pip and other installers do not. The environment variable
``ORT_SDK_CPU_BUILD_KERNELS`` decides otherwise: ``1`` or ``0``, or the targets to compile for, separated by commas
(``ort_sdk_cpu.platform.targets``). ``ORT_SDK_CPU_BUILD_ARCHIVES`` names a folder of archives that were built before, by
``python -m ort_sdk_cpu.jit.build_archive``, to be taken as they are.
"""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import (
    build_editable,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

KERNELS_VARIABLE, ARCHIVES_VARIABLE = "ORT_SDK_CPU_BUILD_KERNELS", "ORT_SDK_CPU_BUILD_ARCHIVES"
TARGETS = ("portable", "avx2", "avx512_skx", "avx512_vnni", "avx512_icl", "amx")
PLATFORM_TAG = "manylinux_2_17_x86_64"
"""The code calls libc and libgomp, by names that the oldest glibc of this policy has."""
REQUIREMENTS = ("ml_dtypes>=0.5", "numba>=0.62", "numpy>=2.1", "pluggy>=1.5")
"""What compiling imports, beside the host's sources."""

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parent
CHECKOUT = PROJECT.parents[1]
KERNELS = PROJECT / "src" / "ort_sdk_cpu" / "kernels"
HOST = HERE / "host"
"""In a source distribution: those sources of the host that compiling imports."""
HOST_SOURCES = ("__init__.py", "version.py", "api", "opset")

Settings = Mapping[str, Any] | None


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    """Requirements beside those in ``build-system.requires``."""
    own = list(REQUIREMENTS) if _targets() and not os.environ.get(ARCHIVES_VARIABLE) else []
    return [*build_meta.get_requires_for_build_wheel(config_settings), *own]


def build_wheel(wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None) -> str:
    """Build a wheel, with the machine code of all kernels if it is to have it; returns its file name."""
    targets = _targets()
    if not targets:
        return build_meta.build_wheel(wheel_directory, config_settings, metadata_directory)
    with _archives(targets):
        settings = {**(config_settings or {}), "--build-option": ["--plat-name", PLATFORM_TAG]}
        return build_meta.build_wheel(wheel_directory, settings, metadata_directory)


def build_sdist(sdist_directory: str, config_settings: Settings = None) -> str:
    """Build a source distribution, which has what compiling needs of the host; returns its file name."""
    with _host_sources():
        return build_meta.build_sdist(sdist_directory, config_settings)


def _targets() -> tuple[str, ...]:
    """Targets to compile for; none for a wheel without machine code.

    Raises:
        SystemExit: the environment variable names others.
    """
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return ()
    wanted = os.environ.get(KERNELS_VARIABLE, "").strip().lower()
    if wanted in {"0", "1", ""}:
        return TARGETS if wanted == "1" or (not wanted and _is_for_others()) else ()
    chosen = tuple(name.strip() for name in wanted.split(","))
    unknown = [name for name in chosen if name not in TARGETS]
    if unknown:
        raise SystemExit(f"{KERNELS_VARIABLE} names {', '.join(unknown)}; it takes 0, 1, or any of {', '.join(TARGETS)}")
    return chosen


def _is_for_others() -> bool:
    """Whether the frontend builds a wheel to keep, as ``build`` does: pip marks its environment, others call other hooks."""
    return "PIP_BUILD_TRACKER" not in os.environ and "_PYPROJECT_HOOKS_BUILD_BACKEND" in os.environ


@contextlib.contextmanager
def _archives(targets: tuple[str, ...]) -> Iterator[None]:
    """The archives of some targets, in the package for as long as the wheel is built."""
    _remove(KERNELS)
    KERNELS.mkdir()
    try:
        for target in targets:
            _make_archive(target, KERNELS / f"x86_64-linux-{target}.kernels")
        yield
    finally:
        _remove(KERNELS)


def _make_archive(target: str, path: Path) -> None:
    folder = os.environ.get(ARCHIVES_VARIABLE)
    if folder:
        shutil.copyfile(Path(folder) / path.name, path)
        return
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(PROJECT / "src"), *_host_path()))}
    command = [sys.executable, "-P", "-m", "ort_sdk_cpu.jit.build_archive", "--target", target, "--output", str(path)]
    subprocess.run(command, env=environment, check=True)  # noqa: S603


def _host_path() -> list[str]:
    """Where the host's sources are: beside these, or with them; installed, if neither."""
    return [str(folder) for folder in (CHECKOUT, HOST) if (folder / "ort_sdk" / "api").is_dir()][:1]


@contextlib.contextmanager
def _host_sources() -> Iterator[None]:
    """What compiling imports of the host, in ``HOST``; it stays there in what was a source distribution already."""
    source = CHECKOUT / "ort_sdk"
    if not (source / "api").is_dir():
        yield
        return
    _remove(HOST)
    ignored = shutil.ignore_patterns("__pycache__")
    try:
        (HOST / "ort_sdk").mkdir(parents=True)
        for name in HOST_SOURCES:
            copy = shutil.copytree if (source / name).is_dir() else shutil.copyfile
            copy(source / name, HOST / "ort_sdk" / name, **({"ignore": ignored} if copy is shutil.copytree else {}))
        yield
    finally:
        _remove(HOST)


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
