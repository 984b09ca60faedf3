"""Arguments of casts."""

from __future__ import annotations

from typing import ClassVar

from ort_sdk_cpu.jit.arguments import Pointer, TaskArguments
from ort_sdk_cpu.jit.extents.declaration import Extents, reads, writes
from ort_sdk_cpu.jit.extents.sizes import FLOAT

__all__ = ["MODULE", "Cast"]

MODULE = "elementwise.cast"
_HALF = 2


class Cast(TaskArguments):
    """A contiguous array as another type."""

    x: Pointer
    """(count), of the type that the task casts from."""
    out: Pointer
    """(count), of the type that it casts to."""
    count: int

    read_bytes: ClassVar[int] = FLOAT
    """Bytes of an element of x."""
    written_bytes: ClassVar[int] = FLOAT

    def extents(self) -> Extents:
        """What is read and written."""
        return reads(self.x, self.count * self.read_bytes), writes(self.out, self.count * self.written_bytes)


class FloatFromFloat16(Cast, module=MODULE, tasks=("f16_to_f32",)):
    """float32 of float16."""

    read_bytes = _HALF


class Float16FromFloat(Cast, module=MODULE, tasks=("f32_to_f16",)):
    """float16 of float32."""

    written_bytes = _HALF


class Int32FromFloat(Cast, module=MODULE, tasks=("f32_to_i32",)):
    """int32 of float32."""
