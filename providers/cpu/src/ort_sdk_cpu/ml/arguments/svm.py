"""Arguments of support vector machines."""

from __future__ import annotations

from ort_sdk_cpu.jit.arguments import NullablePointer, Pointer, TaskArguments
from ort_sdk_cpu.jit.extents.declaration import (
    Extents,
    reads,
    reads_if_given,
    require_at_most,
    require_whole_vectors,
    uses_workspace,
    writes,
)
from ort_sdk_cpu.jit.extents.sizes import FLOAT, INT64, round_up

__all__ = ["MODULE", "SupportVectorMachine"]

MODULE = "ml.svm"
_DOUBLE = 8
_BINARY, _PROBABILITIES = 2, 3


class SupportVectorMachine(TaskArguments, module=MODULE, tasks=("svm",)):
    """Scores of rows by their kernel values with support vectors, votes of pairs of classes, and probabilities."""

    x: Pointer
    """float32 (rows, features)."""
    scores: Pointer
    """float32 (rows, scores that ``output`` makes); 0 for none."""
    labels: NullablePointer
    """int64 (rows); 0 for none."""
    supports: Pointer
    """float32 (features, vectors)."""
    weights: Pointer
    """float32 (score_count, vectors), 0 for vectors that only fill up."""
    rho: Pointer
    """float64 (score_count): what is added to scores."""
    class_labels: Pointer
    """int64 (classes)."""
    coupling: Pointer
    """float32 (2, score_count): slopes and shifts of the logistic functions of pairs; only for probabilities."""
    workspace: Pointer
    """``workspace_bytes`` for each thread: ``vectors`` and twice ``score_count`` float32, whole vectors each, and for
    probabilities (classes + 2) * classes float64."""
    rows: int
    features: int
    vectors: int
    """A multiple of 16."""
    score_count: int
    """1, or one for each pair of classes."""
    classes: int
    """0 for a regressor."""
    workspace_bytes: int
    kernel: int
    """0: linear; 1: polynomial; 2: radial basis function; 3: sigmoid."""
    degree: int
    """Of the polynomial, from 1."""
    output: int
    """0: scores; 1: their signs; 2: the one score of two classes, after its opposite; 3: probabilities of classes."""
    gamma: float
    """Factor of products; of squared distances, minus it."""
    coefficient: float
    """Added to products."""

    def extents(self, *, threads: int) -> Extents:
        """What is read and written."""
        require_whole_vectors(self.vectors)
        classes, has_coupling = self.classes, self.output == _PROBABILITIES
        if has_coupling or (classes and self.labels.is_given):
            require_at_most("pairs of classes", classes * (classes - 1) // 2, self.score_count)
        yield reads(self.x, self.rows * self.features * FLOAT)
        columns = {_BINARY: 2, _PROBABILITIES: classes}.get(self.output, self.score_count)
        yield writes(self.scores, self.rows * columns * FLOAT, may_be_none=True)
        if classes and self.labels.is_given:
            yield writes(self.labels, self.rows * INT64, may_be_none=True)
            yield reads_if_given(self.class_labels, classes * INT64)
        yield reads(self.supports, self.features * self.vectors * FLOAT)
        yield reads(self.weights, self.score_count * self.vectors * FLOAT)
        yield reads(self.rho, self.score_count * _DOUBLE)
        yield reads(self.coupling, 2 * self.score_count * FLOAT if has_coupling else 0)
        used = (self.vectors + 2 * round_up(self.score_count)) * FLOAT
        used += (classes + 2) * classes * _DOUBLE if has_coupling else 0
        require_at_most("bytes of a thread", used, self.workspace_bytes)
        yield uses_workspace(self.workspace, (threads - 1) * self.workspace_bytes + used)
