"""Arguments of NonMaxSuppression."""

from __future__ import annotations

from ort_sdk_cpu.jit.arguments import Pointer, TaskArguments
from ort_sdk_cpu.jit.extents.declaration import Extents, reads, uses_workspace, writes
from ort_sdk_cpu.jit.extents.sizes import FLOAT, INT64, round_up

__all__ = ["MODULE", "SelectedIndices", "Suppression"]

MODULE = "image.non_max_suppression"
_INT32 = 4
_CORNERS = 4
"""Numbers of a box."""


class Suppression(TaskArguments, module=MODULE, tasks=("suppress",)):
    """Which boxes are kept of each pair of batch and class."""

    boxes: Pointer
    """float32 (batches, box_count, 4)."""
    scores: Pointer
    """float32 (pairs, box_count)."""
    kept: Pointer
    """int32 (pairs, most): indices of boxes kept, best first."""
    kept_counts: Pointer
    """int64 (pairs)."""
    workspace: Pointer
    """Of each thread an int64 per box and, per box kept, 5 float32 in whole vectors."""
    pairs: int
    """Batches times classes."""
    box_count: int
    """Boxes of a batch."""
    classes: int
    most: int
    """Boxes kept of a pair at most."""
    is_centered: int
    """Whether a box is (center x, center y, width, height), and not two corners (y, x)."""
    has_score_threshold: int
    iou_threshold: float
    """Intersection over union above which a box is suppressed."""
    score_threshold: float

    def extents(self, *, threads: int) -> Extents:
        """What is read and written."""
        batches = -(-self.pairs // self.classes) if self.classes else 0
        yield reads(self.boxes, batches * self.box_count * _CORNERS * FLOAT)
        yield reads(self.scores, self.pairs * self.box_count * FLOAT)
        yield writes(self.kept, self.pairs * self.most * _INT32)
        yield writes(self.kept_counts, self.pairs * INT64)
        yield uses_workspace(self.workspace, threads * (self.box_count * INT64 + round_up(self.most) * 5 * FLOAT))


class SelectedIndices(TaskArguments, module=MODULE, tasks=("selected_indices",)):
    """Rows of the output, of what ``suppress`` kept."""

    kept: Pointer
    """int32 (pairs, most)."""
    kept_counts: Pointer
    """int64 (pairs)."""
    out: Pointer
    """int64 (sum of counts, 3): batch, class, box."""
    pairs: int
    classes: int
    most: int

    def extents(self) -> Extents:
        """What is read and written: as many rows of the output as the counts come to, which no size tells."""
        yield reads(self.kept, self.pairs * self.most * _INT32)
        yield reads(self.kept_counts, self.pairs * INT64)
        yield writes(self.out, 0)
