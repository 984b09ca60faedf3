"""Arguments of GEMMs of 8-bit matrices that both come with each run."""

from __future__ import annotations

from ort_sdk_cpu.jit.arguments import Pointer, TaskArguments
from ort_sdk_cpu.jit.extents.declaration import Extents, accesses, reads_if_given, uses_workspace, writes
from ort_sdk_cpu.jit.extents.sizes import FLOAT, round_up

__all__ = ["MODULE", "GemmDynamicB"]

MODULE = "quantized.matmul.dynamic_b"
_PANEL = 64
"""Columns of a panel."""


class GemmDynamicB(TaskArguments, module=MODULE, tasks=("gemm_dynamic_b",)):
    """int32 (A - A's zero point) @ (B - B's zero point); B is packed on the way."""

    a: Pointer
    """8-bit (matrices, rows, a_row_bytes)."""
    b: Pointer
    """8-bit (k, columns), of each matrix."""
    out: Pointer
    """int32 (matrices, rows, columns)."""
    a_zero_point: Pointer
    """Of A's type (1); 0 for none."""
    b_zero_points: Pointer
    """Of B's type (1) or (columns); 0 for none."""
    workspace: Pointer
    """(threads, workspace_bytes): ones for row sums, sums and zero points of a panel's columns, a packed panel."""
    matrices: int
    rows: int
    """Of A, in each matrix."""
    k: int
    columns: int
    """Of B."""
    a_row_bytes: int
    """From row to row of A, a multiple of four; what is behind k elements is zero once it is unsigned."""
    b_matrix_bytes: int
    """From matrix to matrix of B."""
    a_sign: int
    """0x80808080 for int8 A, else 0: exclusive or with four elements makes them unsigned."""
    b_sign: int
    """128 for uint8 B, else 0: exclusive or makes an element signed, 128 less."""
    has_column_zero_points: int
    """Whether each column of B has its own."""
    workspace_bytes: int
    """Of each thread."""

    def extents(self, *, threads: int) -> Extents:
        """What is read and written."""
        steps = round_up(self.k, 4) // 4
        yield accesses(self.a, (self.matrices * self.rows,), (self.a_row_bytes,), 4 * steps)
        yield accesses(self.b, (self.matrices,), (self.b_matrix_bytes,), self.k * self.columns)
        yield writes(self.out, self.matrices * self.rows * self.columns * FLOAT)
        yield reads_if_given(self.a_zero_point, 1)
        yield reads_if_given(self.b_zero_points, self.columns if self.has_column_zero_points else 1)
        used = round_up(steps) * FLOAT + 2 * FLOAT * _PANEL + steps * FLOAT * _PANEL
        yield uses_workspace(self.workspace, (threads - 1) * self.workspace_bytes + used)
