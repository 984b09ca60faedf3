"""Arguments of linear classifiers and regressors."""

from __future__ import annotations

from ort_sdk_cpu.jit.arguments import Pointer
from ort_sdk_cpu.jit.extents.declaration import Extents, accesses, reads, require_at_most, uses_workspace
from ort_sdk_cpu.jit.extents.sizes import FLOAT, VECTOR

from .scores import ScoredRows

__all__ = ["MODULE", "WORKSPACE_VECTORS", "LinearModel"]

MODULE = "ml.linear"
WORKSPACE_VECTORS = 17
"""Vectors that the task needs beside one for each target: 16 columns of x, and the classes that win."""


class LinearModel(ScoredRows, module=MODULE, tasks=("linear",)):
    """Scores are products of a row with coefficients, plus intercepts.

    The workspace has ``targets + 17`` vectors of 64 bytes for each thread.
    """

    coefficients: Pointer
    """float32 (score_count, features)."""
    intercepts: Pointer
    """float32 (score_count)."""
    features: int
    score_count: int
    """1 where two targets are made of one score; else ``targets``."""

    def extents(self, *, threads: int) -> Extents:
        """What is read and written."""
        require_at_most("scores", self.score_count, self.targets)
        yield accesses(self.x, (self.rows,), (self.x_stride,), self.features * FLOAT)
        yield from self.outputs(self.decided_classes() if self.labels.is_given else 0)
        yield reads(self.coefficients, self.score_count * self.features * FLOAT)
        yield reads(self.intercepts, self.score_count * FLOAT)
        yield uses_workspace(self.workspace, threads * (self.targets + WORKSPACE_VECTORS) * VECTOR)
