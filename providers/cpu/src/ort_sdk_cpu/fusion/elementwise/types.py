"""Types of a chain's elements, in memory and in registers, by one-letter codes."""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk.api import TensorElementType
from ort_sdk.api.data_classes import dataclass

__all__ = ["ELEMENTS", "LANES", "SIGNED", "TYPE_CODES", "Element"]

LANES = 16


@dataclass(frozen=True, slots=True)
class Element:
    """One type.

    Args:
        dtype: NumPy's.
        scalar: LLVM's type of one in memory.
    """

    dtype: np.dtype[Any]
    scalar: str

    @property
    def size(self) -> int:
        """Bytes."""
        return self.dtype.itemsize

    @property
    def stored(self) -> str:
        """LLVM's type of a vector in memory."""
        return f"<{LANES} x {self.scalar}>"

    @property
    def vector(self) -> str:
        """LLVM's type of a vector that is computed on."""
        return f"<{LANES} x i1>" if self.dtype == np.bool_ else self.stored

    @property
    def suffix(self) -> str:
        """Of LLVM's functions of such vectors in memory."""
        names = {"float": "f32", "double": "f64", "half": "f16"}
        return f"v{LANES}{names.get(self.scalar, self.scalar)}"


ELEMENTS = {
    "f": Element(np.dtype(np.float32), "float"),
    "b": Element(np.dtype(np.bool_), "i8"),
    "d": Element(np.dtype(np.float64), "double"),
    "h": Element(np.dtype(np.float16), "half"),
    "l": Element(np.dtype(np.int64), "i64"),
    "i": Element(np.dtype(np.int32), "i32"),
    "a": Element(np.dtype(np.int8), "i8"),
    "u": Element(np.dtype(np.uint8), "i8"),
}
"""Code → type."""

SIGNED = "lia"
"""Codes of signed integers."""

TYPE_CODES = {
    TensorElementType.FLOAT: "f",
    TensorElementType.BOOL: "b",
    TensorElementType.DOUBLE: "d",
    TensorElementType.FLOAT16: "h",
    TensorElementType.INT64: "l",
    TensorElementType.INT32: "i",
    TensorElementType.INT8: "a",
    TensorElementType.UINT8: "u",
}
"""Element type → code."""
