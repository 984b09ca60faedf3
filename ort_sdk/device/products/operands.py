"""A product's matrices in memory, as all its forms take them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ort_sdk.api.data_classes import dataclass
from ort_sdk.device.element_types import HALF_TYPES, STORAGE
from ort_sdk.device.expressions.elementwise import is_wide
from ort_sdk.device.expressions.nodes import Strided
from ort_sdk.device.expressions.parameters import Parameters

from .tuning_key import TuningKey, size_bucket

__all__ = ["Matrices", "column_position", "element_macros", "index_defines", "loading", "parameters_for"]


@dataclass(frozen=True, slots=True, eq=False)
class Matrices:
    """Two stacks of matrices with two batch axes of the same sizes, which may be repeated by strides of 0."""

    a: Strided
    """(outer, inner, m, k)."""
    b: Strided
    """(outer, inner, k, n)."""
    exact_terms: int = 0
    """Products that sum up exactly in float32, where the result is a sum of whole numbers as int32; else 0."""
    place: Callable[[Parameters], str] | None = None
    """Gives the text of where ``b`` has an element, of ``term`` and ``column``, where its last two strides do not say it."""

    first_column: int = 0
    """Of the results' rows, where the columns are a part of them."""
    all_columns: int = 0
    """Of the results; 0 where the columns are all."""
    is_packed: bool = False
    """Whether ``b`` is in panels, already; only its shape is that of a matrix then."""

    @property
    def columns(self) -> int:
        """Of a row of the results."""
        return self.all_columns or self.n

    @property
    def m(self) -> int:
        """Rows of a result."""
        return self.a.shape[2]

    @property
    def k(self) -> int:
        """Terms of a sum."""
        return self.a.shape[3]

    @property
    def n(self) -> int:
        """Columns of a result."""
        return self.b.shape[3]

    @property
    def inner(self) -> int:
        """Size of the second batch axis."""
        return self.a.shape[1]

    @property
    def batch(self) -> int:
        """Results."""
        return self.a.shape[0] * self.a.shape[1]

    def tuning_key(self, kind: str) -> TuningKey:
        """What decides which form is fastest."""
        sizes = (size_bucket(size) for size in (self.m, self.k, self.n, self.batch))
        types = (self.a.element_type.name, self.b.element_type.name, "whole" if self.exact_terms else "")
        # whether lanes next to each other read elements that are
        layout = (int(self.a.strides[3] == 1), int(self.b.strides[3] == 1))
        return (kind, *types, *sizes, *layout)


def loading(array: Strided) -> tuple[tuple[str, str | int], ...]:
    """Macros ``T``, the type of elements in memory, and ``GET``, which makes a number of one."""
    storage = STORAGE[array.element_type]
    get = f"get_{storage}(x)" if array.element_type in HALF_TYPES else "(x)"
    return ("T", storage), ("GET(x)", get)


def element_macros(letter: str, array: Strided) -> dict[str, str | int]:
    """The macros of ``loading`` for one of several matrices, ``TA`` and ``GET_A`` for ``A``."""
    (_, storage), (_, get) = loading(array)
    return {f"T{letter}": storage, f"GET_{letter}(x)": get}


def parameters_for(arrays: Sequence[Strided]) -> Parameters:
    """Parameters with offsets that reach all elements of some arrays."""
    return Parameters(wide=is_wide(arrays))


def column_position(matrices: Matrices, parameters: Parameters) -> dict[str, str | int]:
    """The macro ``B_AT(term, column)``, where an element of ``b`` is in its matrix."""
    name = "B_AT(term, column)"
    if matrices.place is not None:
        return {name: matrices.place(parameters)}
    row, column = (parameters.index(step) for step in matrices.b.strides[2:])
    return {name: f"((term) * {row} + (column) * {column})"}


def index_defines(parameters: Parameters) -> tuple[tuple[str, str | int], ...]:
    """Macros that say how wide offsets are."""
    return (("INDEX64", 1),) if parameters.is_wide else ()
