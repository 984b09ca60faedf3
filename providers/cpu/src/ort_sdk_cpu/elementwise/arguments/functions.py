"""Arguments of functions of each element of float32."""

from __future__ import annotations

from ort_sdk_cpu.jit.arguments import Pointer, TaskArguments
from ort_sdk_cpu.jit.extents.declaration import Extents, reads, writes
from ort_sdk_cpu.jit.extents.sizes import FLOAT

__all__ = ["MODULE", "BiasActivation", "BinaryRows", "Clip", "QuickGeluRows", "Silu", "Unary"]

MODULE = "elementwise.functions"


class Unary(
    TaskArguments,
    module=MODULE,
    tasks=("exp", "tanh", "sigmoid", "erf", "gelu", "fast_gelu", "hard_swish"),
):
    """A function of each element of a contiguous array."""

    x: Pointer
    """float32 (count); may be ``out``."""
    out: Pointer
    """float32 (count)."""
    count: int

    def extents(self) -> Extents:
        """What is read and written."""
        nbytes = self.count * FLOAT
        return reads(self.x, nbytes), writes(self.out, nbytes)


class Clip(Unary, module=MODULE, tasks=("clip",)):
    """Elements bounded from below and above."""

    low: float
    high: float


class Silu(Unary, module=MODULE, tasks=("silu",)):
    """x * sigmoid(alpha * x)."""

    alpha: float


class BiasActivation(TaskArguments, module=MODULE, tasks=("bias_gelu", "bias_fast_gelu")):
    """A function of x + bias."""

    x: Pointer
    """float32 (rows, width); may be ``out``."""
    bias: Pointer
    """float32 (width)."""
    out: Pointer
    """float32 (rows, width)."""
    rows: int
    width: int

    def extents(self) -> Extents:
        """What is read and written."""
        nbytes, row = self.rows * self.width * FLOAT, self.width * FLOAT if self.rows > 0 else 0
        return reads(self.x, nbytes), reads(self.bias, row), writes(self.out, nbytes)


class QuickGeluRows(TaskArguments, module=MODULE, tasks=("quick_gelu_rows",)):
    """x * sigmoid(alpha * x) of rows, which a sequence of tasks divides among threads as those around it do."""

    x: Pointer
    """float32 (rows, width); may be ``out``."""
    out: Pointer
    """float32 (rows, width)."""
    rows: int
    width: int
    alpha: float

    def extents(self) -> Extents:
        """What is read and written."""
        nbytes = self.rows * self.width * FLOAT
        return reads(self.x, nbytes), writes(self.out, nbytes)


class BinaryRows(TaskArguments, module=MODULE, tasks=("add_rows", "multiply_rows")):
    """A function of two arrays of one shape, divided among threads as above."""

    x: Pointer
    """float32 (rows, width); may be ``out``."""
    y: Pointer
    """float32 (rows, width); may be ``out``."""
    out: Pointer
    """float32 (rows, width)."""
    rows: int
    width: int

    def extents(self) -> Extents:
        """What is read and written."""
        nbytes = self.rows * self.width * FLOAT
        return reads(self.x, nbytes), reads(self.y, nbytes), writes(self.out, nbytes)
