"""Tally, a made-up device with a C-like kernel language. It stands for your vendor's library: compiler, memory, queue.

Inside it is OpenCL behind other names: ``VOCABULARY`` is Tally's compiler. Nothing here is about ort_sdk.
"""

from __future__ import annotations

import warnings
from typing import Any

import pyopencl as cl

__all__ = ["MEMBERS", "Program", "Tally", "TallyError"]

TallyError = cl.Error
MEMBERS = 64
"""Of a team, at most."""
VOCABULARY = """
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#define task __kernel
#define helper static inline
#define in_board __global
#define in_team __local
#define in_rom __constant
#define team_of(x, y, z) __attribute__((reqd_work_group_size(x, y, z)))
#define team_number(axis) ((int)get_group_id(axis))
#define member_number(axis) ((int)get_local_id(axis))
#define meet() barrier(CLK_LOCAL_MEM_FENCE)
typedef char tiny; typedef uchar utiny; typedef ushort real16; typedef long wide; typedef ulong uwide;
#define bits_of(x) as_uint(x)
#define real_of(x) as_float(x)
helper float widen(real16 x) { return vload_half(0, (__private const half *)&x); }
helper real16 narrow(float x) { real16 r; vstore_half_rte(x, 0, (__private half *)&r); return r; }
#define swap_if(p, was, now) atomic_cmpxchg((p), (was), (now))
#define put_bits(p, bits) atomic_or((p), (bits))
#define put_largest(p, v) atomic_max((p), (v))
"""


class Program:
    """Compiled tasks."""

    def __init__(self, tally: Tally, text: str) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._program = cl.Program(tally.context, VOCABULARY + text).build()

    def task(self, name: str) -> Any:
        """A task, to be started with arguments."""
        return cl.Kernel(self._program, name)


class Tally:
    """The board: memory and a queue of tasks, which run one after the other."""

    def __init__(self) -> None:
        device = next(device for platform in cl.get_platforms() for device in platform.get_devices())
        self.context = cl.Context([device])
        self._queue = cl.CommandQueue(self.context)

    def memory(self, nbytes: int) -> Any:
        """Memory of the board."""
        return cl.Buffer(self.context, cl.mem_flags.READ_WRITE, nbytes)

    def range(self, memory: Any, offset: int, nbytes: int) -> Any:
        """A range of memory."""
        return memory.get_sub_region(offset, nbytes)

    def write(self, memory: Any, array: Any) -> None:
        """Copy bytes to the board."""
        cl.enqueue_copy(self._queue, memory, array, is_blocking=True)

    def read(self, memory: Any, array: Any) -> None:
        """Copy bytes from the board, when all tasks are done."""
        cl.enqueue_copy(self._queue, array, memory, is_blocking=True)

    def start(self, task: Any, teams: tuple[int, ...], members: tuple[int, ...], arguments: list[Any]) -> None:
        """Queue a task."""
        task.set_args(*arguments)
        size = tuple(count * own for count, own in zip(teams, members, strict=True))
        cl.enqueue_nd_range_kernel(self._queue, task, size, members)

    def wait(self) -> None:
        """Wait for all tasks."""
        self._queue.finish()
