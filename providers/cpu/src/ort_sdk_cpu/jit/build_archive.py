"""Builds an archive of compiled kernels: ``python -m ort_sdk_cpu.jit.build_archive --target avx2 --output FILE``.

The target is set before anything is imported that asks for it, in this process and in those that share the work: what compiled
modules define depends on it.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from ort_sdk_cpu.platform.targets import TARGET_VARIABLE, TARGETS

__all__ = ["build", "main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        arguments: of the command line; those of the process if None.

    Returns:
        The exit status.
    """
    given = _parser().parse_args(arguments)
    os.environ[TARGET_VARIABLE] = given.target
    start = time.perf_counter()
    count = build(given.output, given.tasks, given.jobs)
    seconds = time.perf_counter() - start
    print(f"{given.output}: {count} kernels, {given.output.stat().st_size / 1e6:.1f} MB, in {seconds:.0f} s")  # noqa: T201
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m ort_sdk_cpu.jit.build_archive", description="Build an archive of kernels.")
    parser.add_argument("--target", required=True, choices=[target.name for target in TARGETS], help="what to make code for")
    parser.add_argument("--output", required=True, type=Path, metavar="FILE", help="archive to write")
    parser.add_argument("--tasks", default="*", metavar="PATTERN", help="tasks to compile, <family>.<module>.<task>; * for all")
    parser.add_argument("--jobs", default=len(_processors()), type=int, metavar="N", help="processes; one per processor")
    return parser


def _processors() -> set[int]:
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))


def build(output: Path, pattern: str, jobs: int) -> int:
    """Compile tasks for the target that ``ORT_SDK_CPU_TARGET`` names, and write their archive.

    Args:
        output: file to write.
        pattern: of tasks, ``<family>.<module>.<task>``, as ``fnmatch`` takes it.
        jobs: number of processes.

    Returns:
        The number of entries.

    Raises:
        OSError: the file cannot be written.
    """
    from .archive.recorded import recorded
    from .archive.writer import compiler_versions, write_archive

    entries = dict(_compiled(pattern, jobs))
    output.parent.mkdir(parents=True, exist_ok=True)
    write_archive(output, entries, {"compiler": compiler_versions(), **recorded()})
    return len(entries)


def _compiled(pattern: str, jobs: int) -> list[tuple[str, bytes]]:
    from .archive.contents import compiled_parts, parts

    chosen = parts()
    if jobs <= 1:
        return [entry for part in chosen for entry in compiled_parts(part, pattern)]
    # Not forked: LLVM and numba may have threads and locks.
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        found = pool.map(compiled_parts, chosen, [pattern] * len(chosen))
        return [entry for entries in found for entry in entries]


if __name__ == "__main__":
    sys.exit(main())
