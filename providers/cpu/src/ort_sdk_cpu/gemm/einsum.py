"""Einsum of two operands as a GEMM, or a batch of them; operands with other strides than that needs are copied."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo, TensorElementType
from ort_sdk.api.data_classes import dataclass
from ort_sdk_cpu.jit.native_call import in_sequence
from ort_sdk_cpu.kernel.bindable import bindable
from ort_sdk_cpu.kernel.copy import CopyWriter
from ort_sdk_cpu.kernel.writer import MakeWriter, Writer, copying_writer
from ort_sdk_cpu.memory.workspace import Workspace, workspace_of
from ort_sdk_cpu.platform.threads import blas_matmul

from .batched import GemmWriter
from .operands import GemmOperands

__all__: list[str] = []

MOST_COPIED_BYTES = 1 << 24
"""Of an array, up to which a call keeps memory for its copy."""
_FLOAT = np.dtype(np.float32)


@dataclass(frozen=True, slots=True)
class _Terms:
    """Labels of both operands and of the output, and whether the second operand is on the left of the GEMM."""

    operands: tuple[str, str]
    output: str
    is_swapped: bool

    @property
    def groups(self) -> tuple[str, str, str, str]:
        """Labels of the batch, of rows, of K, and of columns."""
        left, right = self.operands[::-1] if self.is_swapped else self.operands
        batch = "".join(label for label in self.output if label in left and label in right)
        rows, columns = ("".join(label for label in self.output if label in own and label not in batch) for own in (left, right))
        return batch, rows, "".join(label for label in left if label not in self.output), columns


@bindable("Einsum")
def einsum(info: KernelInfo, compute: Any) -> MakeWriter | None:
    """Sum of products over labels that both operands have and the output lacks."""
    terms = _terms(str(info.attribute("equation", "")))
    if terms is None or info.input_element_type(0) is not TensorElementType.FLOAT:
        return None
    workspace = workspace_of(info)

    def make(inputs: Sequence[Any], _outputs: Sequence[HostArray]) -> Writer:
        return _Contraction(terms, workspace) if _fit(terms, inputs) else copying_writer(compute)

    return make


def _terms(equation: str) -> _Terms | None:
    """The equation; None where it is no GEMM, or has an ellipsis or a label twice in a term."""
    left, _, output = equation.replace(" ", "").partition("->")
    operands = left.split(",")
    is_plain = all(term.isalpha() and len(set(term)) == len(term) for term in (*operands, output))
    if not is_plain or len(operands) != 2:
        return None
    first, second = map(set, operands)
    if not (first - set(output)) or (first ^ second) - set(output) or set(output) - (first | second):
        return None
    return _Terms((operands[0], operands[1]), output, output[-1] not in second)


def _fit(terms: _Terms, inputs: Sequence[Any]) -> bool:
    """Whether operands have the equation's axes, none of which is broadcast, and there is something to do."""
    if [array.ndim for array in inputs] != [len(term) for term in terms.operands]:
        return False
    sizes: dict[str, int] = {}
    pairs = [pair for term, array in zip(terms.operands, inputs, strict=True) for pair in zip(term, array.shape, strict=True)]
    return all(size and sizes.setdefault(label, size) == size for label, size in pairs)


class _Contraction:
    """A writer of the GEMM. For one thread at a time.

    Args:
        terms: the equation.
        workspace: the workspace.
    """

    def __init__(self, terms: _Terms, workspace: Workspace) -> None:
        self._terms, self._gemm = terms, GemmWriter(blas_matmul, workspace, GemmOperands)

    def __call__(self, *arrays: Any) -> None:
        """Write the output."""
        left, right, out = self._batches(*arrays)
        result = out.view(-1)
        target = np.empty(out.shape, _FLOAT) if result is None else result
        self._gemm(left.matrices(-1), right.matrices(-1, -2), target)
        if result is None:
            np.copyto(out.array, target.reshape(out.array.shape))

    def bind_arrays(self, *arrays: Any) -> Callable[[], Any] | None:
        """The call on arrays that stay the same; None if that is the writer's, or copies would be large."""
        if max(array.nbytes for array in arrays) > MOST_COPIED_BYTES:
            return None
        calls: list[Callable[[], Any]] = []
        left, right, out = self._batches(*arrays)
        result = out.view(-1)
        target = np.empty(out.shape, _FLOAT) if result is None else result
        operands = (_in_place(left, (-1,), calls), _in_place(right, (-1, -2), calls))
        gemm = self._gemm.bind_arrays(*operands, target)
        if gemm is None:
            return None
        calls.append(gemm)
        if result is None:
            calls.append(_copy(target.reshape(out.array.shape), out.array))
        return in_sequence(calls)

    def _batches(self, first: HostArray, second: HostArray, out: HostArray) -> list[_Batch]:
        """Both sides and the output with their axes in order: of the batch, of rows, and of columns."""
        batch, rows, inner, columns = self._terms.groups
        named = list(zip((first, second), self._terms.operands, strict=True))
        sides = [*named[:: -1 if self._terms.is_swapped else 1], (out, self._terms.output)]
        matrices = ((rows, inner), (inner, columns), (rows, columns))
        return [_Batch(array, term, (batch, *each)) for (array, term), each in zip(sides, matrices, strict=True)]


class _Batch:
    """An array as matrices.

    Args:
        array: any.
        term: the label of each axis.
        groups: those of the batch, of rows and of columns.
    """

    def __init__(self, array: HostArray, term: str, groups: tuple[str, str, str]) -> None:
        self.array = array.transpose([term.index(label) for group in groups for label in group])
        """With its axes in order."""
        sizes, batch, rows = self.array.shape, len(groups[0]), len(groups[0] + groups[1])
        self.shape = (*sizes[:batch], math.prod(sizes[batch:rows]), math.prod(sizes[rows:]))

    def view(self, *axes: int) -> HostArray | None:
        """A view in which elements along one of these axes follow each other; None if there is none."""
        try:
            found = self.array.reshape(self.shape, copy=False)
        except ValueError:
            return None
        is_dense = any(found.shape[axis] == 1 or found.strides[axis] == found.itemsize for axis in axes)
        return found if is_dense else None

    def matrices(self, *axes: int) -> HostArray:
        """The view, or a copy."""
        found = self.view(*axes)
        return np.ascontiguousarray(self.array).reshape(self.shape) if found is None else found


def _in_place(batch: _Batch, axes: Sequence[int], calls: list[Callable[[], Any]]) -> HostArray:
    """An array as a GEMM's operand, or what is that once a call has run, which is added to those given."""
    found = batch.view(*axes)
    if found is not None:
        return found
    contiguous = np.empty(batch.array.shape, _FLOAT)
    calls.append(_copy(batch.array, contiguous))
    return contiguous.reshape(batch.shape)


def _copy(source: HostArray, target: HostArray) -> Callable[[], Any]:
    return CopyWriter(lambda source, target: [(target, source)]).bind_arrays(source, target)
