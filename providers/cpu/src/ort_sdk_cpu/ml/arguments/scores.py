"""Arguments that all models have which give scores and labels of rows."""

from __future__ import annotations

from ort_sdk_cpu.jit.arguments import NullablePointer, Pointer, TaskArguments
from ort_sdk_cpu.jit.extents.declaration import Extents, reads_if_given, require_at_most, writes
from ort_sdk_cpu.jit.extents.sizes import FLOAT, INT64

__all__ = ["ScoredRows"]

_BINARY = 2
"""From here on, a label is decided between two classes by one score."""


class ScoredRows(TaskArguments):
    """Rows, and what is made of their scores: labels and transformed scores."""

    x: Pointer
    """float32 (rows, features), or more features."""
    scores: Pointer
    """float32 (rows, targets); 0 for none."""
    labels: NullablePointer
    """int64 (rows); 0 for none."""
    workspace: Pointer
    rows: int
    x_stride: int
    """Bytes from a row to the next."""
    targets: int
    """Scores of a row."""
    transform: int
    """0: none; 1: softmax; 2: logistic function."""
    decision: int
    """0: no label; 1: the highest score's; 2: whether one score is above the limit; 3: the same of a probability."""
    decision_score: int
    """That one score."""
    expands: int
    """Whether two scores are made of the first."""
    limit: float
    classes: Pointer
    """int64: label of each class; 0 where there are no labels."""

    def outputs(self, classes: int) -> Extents:
        """What is written of scores and labels.

        Args:
            classes: whose labels are read; 0 for no labels.

        Raises:
            ExtentError: the score that decides is none of a row's.
        """
        require_at_most("scores", self.decision_score + 1, self.targets)
        last = max(self.targets, 2) if self.expands else self.targets
        yield writes(self.scores, max(0, (self.rows - 1) * self.targets + last) * FLOAT if self.rows else 0, may_be_none=True)
        if classes:
            yield writes(self.labels, self.rows * INT64, may_be_none=True)
            yield reads_if_given(self.classes, classes * INT64)

    def decided_classes(self) -> int:
        """Classes among which the label of a row is."""
        return 2 if self.decision >= _BINARY else self.targets
