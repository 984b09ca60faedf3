"""Arguments of Where."""

from __future__ import annotations

from ort_sdk_cpu.jit.arguments import Pointer, TaskArguments
from ort_sdk_cpu.jit.extents.declaration import Extents, reads, writes

__all__ = ["MODULE", "Where"]

MODULE = "movement.where"


class Where(TaskArguments, module=MODULE, tasks=("where",)):
    """Elements of x where a condition holds, of y elsewhere, as their bytes."""

    condition: Pointer
    """bool (count)."""
    x: Pointer
    """(count), or one element."""
    y: Pointer
    """(count), or one element."""
    out: Pointer
    """(count)."""
    count: int
    itemsize: int
    """Bytes of an element: 1, 2, 4 or 8."""
    x_is_scalar: int
    y_is_scalar: int

    def extents(self) -> Extents:
        """What is read and written."""
        one, all_ = self.itemsize if self.count > 0 else 0, self.count * self.itemsize
        yield reads(self.condition, self.count)
        yield reads(self.x, one if self.x_is_scalar else all_)
        yield reads(self.y, one if self.y_is_scalar else all_)
        yield writes(self.out, all_)
