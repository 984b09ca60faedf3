"""Arguments of Normalizer, Scaler, Imputer and OneHotEncoder."""

from __future__ import annotations

from ort_sdk_cpu.jit.arguments import Pointer, TaskArguments
from ort_sdk_cpu.jit.extents.declaration import Extents, reads, writes
from ort_sdk_cpu.jit.extents.sizes import FLOAT, INT64

__all__ = ["MODULE", "Imputer", "Normalizer", "OneHotEncoder", "Rows", "Scaler"]

MODULE = "ml.features"


class Rows(TaskArguments):
    """Rows of features that become other rows."""

    x: Pointer
    """float32 (rows, width)."""
    out: Pointer
    """float32 (rows, width)."""
    rows: int
    width: int

    def _rows(self) -> Extents:
        nbytes = self.rows * self.width * FLOAT
        return reads(self.x, nbytes), writes(self.out, nbytes)


class Normalizer(Rows, module=MODULE, tasks=("normalizer",)):
    """Rows divided by their norms, if these are not 0."""

    norm: int
    """0: largest element; 1: sum of magnitudes; 2: length."""

    def extents(self) -> Extents:
        """What is read and written."""
        return self._rows()


class Scaler(Rows, module=MODULE, tasks=("scaler",)):
    """(x - offset) * scale."""

    offsets: Pointer
    """float32 (width)."""
    scales: Pointer
    """float32 (width)."""

    def extents(self) -> Extents:
        """What is read and written."""
        yield from self._rows()
        yield reads(self.offsets, self.width * FLOAT)
        yield reads(self.scales, self.width * FLOAT)


class Imputer(Rows, module=MODULE, tasks=("imputer",)):
    """Elements that equal a value, replaced."""

    values: Pointer
    """float32 (width): by what elements of each column are replaced."""
    replaced: float
    """The value that they equal."""
    replaced_is_nan: int

    def extents(self) -> Extents:
        """What is read and written."""
        yield from self._rows()
        yield reads(self.values, self.width * FLOAT)


class OneHotEncoder(TaskArguments, module=MODULE, tasks=("one_hot_encoder",)):
    """A row of zeros for each element, with a one at its category."""

    x: Pointer
    """float32 or int64 (elements)."""
    out: Pointer
    """float32 (elements, categories)."""
    elements: int
    categories: int
    positions: Pointer
    """int64 (last + 1): position of the category ``least + i``; -1 where there is none, as in the last entry."""
    least: int
    """The least category."""
    last: int
    """Index of the last entry."""
    x_is_float: int
    """Whether x is float32."""

    def extents(self) -> Extents:
        """What is read and written."""
        yield reads(self.x, self.elements * (FLOAT if self.x_is_float else INT64))
        yield writes(self.out, self.elements * self.categories * FLOAT)
        yield reads(self.positions, (self.last + 1) * INT64)
