"""Tally for ort_sdk's device layer: its dialect and its launcher. With them it runs ONNX's operators."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tally

from ort_sdk.api import HostArray, InvalidArgument, OutOfMemory
from ort_sdk.device import DeviceClass, Dialect, KernelSource, Launch, Memory, MovingMemory, Scalar, packed_scalar
from ort_sdk.device.status import fault_text

PRELUDE = """
#define KERNEL task
#define FN helper
#define GLOBAL(T) in_board T *restrict
#define GLOBAL_PTR(T) in_board T *
#define LOCAL(T, name, n) in_team T name[n]
#define LOCAL_PTR(T) in_team T *
#define TABLE(T, name, n) in_rom T name[n]
#define AS_GLOBAL(T, p) ((in_board T *)(p))
#define WORKGROUP(x, y, z) team_of(x, y, z)
#define GROUP(d) team_number(d)
#define LANE(d) member_number(d)
#define BARRIER() meet()
#define UNROLL
typedef tiny i8; typedef utiny u8; typedef short i16; typedef real16 u16; typedef int i32; typedef unsigned int u32;
typedef wide i64; typedef uwide u64; typedef float f32; typedef double f64; typedef u16 f16; typedef u16 bf16; typedef u8 b8;
FN f32 bits_f32(u32 x) { return real_of(x); }
FN u32 f32_bits(f32 x) { return bits_of(x); }
FN f32 get_f16(f16 x) { return widen(x); }
FN f16 put_f16(f32 x) { return narrow(x); }
FN void report(volatile in_board u32 *status, u32 bits) { put_bits(status, bits); }
FN u32 atomic_swap_u32(volatile in_board u32 *p, u32 was, u32 now) { return swap_if(p, was, now); }
FN void atomic_max_i32(volatile in_board i32 *p, i32 v) { put_largest(p, v); }
FN void atomic_add_f32(volatile in_board f32 *p, f32 v) {
  volatile in_board u32 *q = (volatile in_board u32 *)p;
  u32 old = *q, was;
  do { was = old; old = swap_if(q, was, bits_of(real_of(was) + v)); } while (old != was);
}
#define GROUP_REDUCTION(T, NAME, OP) FN T T##_group_##NAME(T v, LOCAL_PTR(T) scratch, int lane, int lanes) { \\
  scratch[lane] = v; BARRIER(); \\
  for (int width = lanes / 2; width > 0; width >>= 1) { \\
    if (lane < width) scratch[lane] = OP(scratch[lane], scratch[lane + width]); \\
    BARRIER(); } \\
  T result = scratch[0]; BARRIER(); return result; }
"""
DIALECT = Dialect("tally", PRELUDE)
CLASS = DeviceClass("gpu", vector_width=1, lanes=tally.MEMBERS, most_lanes=tally.MEMBERS)


class TallyLauncher:
    """Launches on the board."""

    device_class, dialect, alignment_bytes = CLASS, DIALECT, 256

    def __init__(self) -> None:
        self._board, self._lock = tally.Tally(), threading.RLock()
        self._program = functools.cache(self._compiled)
        self._status = self.allocate(4)
        self.upload(np.zeros(1, np.uint32), self._status)

    def _compiled(self, source: KernelSource) -> tally.Program:
        return tally.Program(self._board, DIALECT.source(source.text, {"HAS_F64": 1, **dict(source.defines)}))

    def allocate(self, nbytes: int) -> Memory:
        try:
            return Memory(nbytes, self._board.memory(nbytes))
        except tally.TallyError as error:
            raise OutOfMemory(f"allocating {nbytes} bytes on the board: {error}") from error

    def part(self, memory: Memory, offset_bytes: int, nbytes: int) -> Memory:
        return Memory(nbytes, self._board.range(memory.handle, offset_bytes, nbytes))

    def upload(self, array: HostArray, memory: Memory) -> None:
        self._board.write(memory.handle, array.reshape(-1).view(np.uint8))

    def download(self, memory: Memory, array: HostArray) -> None:
        self._board.read(memory.handle, array.reshape(-1).view(np.uint8))

    def launch(self, launch: Launch) -> None:
        self.bind([launch], {}, [])()

    def bind(
        self, launches: Sequence[Launch], places: Mapping[Memory, Memory], moving: Sequence[MovingMemory]
    ) -> Callable[[], None]:
        current = {each.placeholder: each.current for each in moving}

        def given(argument: Any) -> Any:
            if isinstance(argument, Scalar):
                return packed_scalar(argument)
            return (current[argument]() if argument in current else places.get(argument, argument)).handle

        tasks = [self._program(each.kernel).task(each.kernel.name) for each in launches]

        def call() -> None:
            with self._lock:
                for launch, task in zip(launches, tasks, strict=True):
                    arguments = [given(each) for each in launch.arguments] + [self._status.handle] * launch.reports
                    self._board.start(task, launch.groups, launch.lanes, arguments)

        return call

    def finish(self) -> None:
        """Wait, and look at what kernels have reported."""
        with self._lock:
            self._board.wait()
            found = np.zeros(1, np.uint32)
            self.download(self._status, found)
            if found[0]:
                self.upload(np.zeros(1, np.uint32), self._status)
                raise InvalidArgument(fault_text(int(found[0])))
