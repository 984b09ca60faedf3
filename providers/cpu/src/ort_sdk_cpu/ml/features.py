"""Columns chosen, scaled, normalized, completed and encoded, as models of scikit-learn begin and end with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo, TensorElementType
from ort_sdk.opset.ml.encoders import categories_of, set_ones
from ort_sdk.opset.ml.lookup import integer_table, position_finder
from ort_sdk_cpu.jit.arguments import Operand, TaskArguments
from ort_sdk_cpu.kernel.bindable import bindable
from ort_sdk_cpu.kernel.runs import RunsWriter
from ort_sdk_cpu.kernel.task_writer import TaskWriter, is_worth_a_task, threads_for
from ort_sdk_cpu.kernel.writer import MakeWriter, Writer, copying_writer
from ort_sdk_cpu.movement.gather import gather_call, gathered_runs

from .arguments.features import MODULE, Imputer, Normalizer, Scaler
from .arguments.features import OneHotEncoder as Encoder

__all__: list[str] = []

DOMAIN = "ai.onnx.ml"
MOST_JOINED = 64
"""Categories of which each one's row is kept."""
_NORMS = {"MAX": 0, "L1": 1, "L2": 2}


@bindable("ArrayFeatureExtractor", domain=DOMAIN, any_type=True)
def array_feature_extractor(info: KernelInfo, compute: Any) -> MakeWriter:
    """Elements of the last axis."""

    def runs(x: HostArray, indices: HostArray, out: HostArray) -> Any:
        return gathered_runs(x.ndim - 1, x, indices.reshape(-1), out) if x.ndim and indices.min(initial=0) >= 0 else None

    def write(x: HostArray, indices: HostArray, out: HostArray) -> None:
        chosen = indices.reshape(-1)
        # Without a sign, negative indices are larger than any size.
        if not x.ndim or not chosen.size or chosen.view(np.uint64).max() >= x.shape[-1]:
            compute(x, indices)
        x.take(chosen, axis=-1, out=out.reshape(*x.shape[:-1], chosen.size), mode="clip")

    def of_any(x: HostArray, indices: HostArray, out: HostArray) -> Any:
        return gather_call(x.ndim - 1, compute, x, indices, out, least=0) if x.ndim else None

    writer = RunsWriter(info, write, runs, of_any)
    return lambda _inputs, _outputs: writer


@bindable("Normalizer", domain=DOMAIN)
def normalizer(info: KernelInfo, compute: Any) -> MakeWriter | None:
    """Rows divided by their largest element, sum of magnitudes or length."""
    return _by_rows(info, copying_writer(compute), "normalizer", Normalizer, (_NORMS[info.attribute("norm", "MAX")],), None)


@bindable("Scaler", domain=DOMAIN)
def scaler(info: KernelInfo, compute: Any) -> MakeWriter | None:
    """(x - offset) * scale."""
    vectors = [np.asarray(info.attribute(name), np.float32) for name in ("offset", "scale")]
    return _by_rows(info, copying_writer(compute), "scaler", Scaler, (), vectors)


@bindable("Imputer", domain=DOMAIN)
def imputer(info: KernelInfo, compute: Any) -> MakeWriter | None:
    """One value replaced by another."""
    values = np.asarray(info.attribute("imputed_value_floats", None) or (), np.float32)
    marker = float(info.attribute("replaced_value_float", 0.0))
    return _by_rows(info, copying_writer(compute), "imputer", Imputer, (marker, int(math.isnan(marker))), [values])


@bindable("OneHotEncoder", domain=DOMAIN, reads_strings=True)
def one_hot_encoder(info: KernelInfo, compute: Any) -> MakeWriter | None:
    """A row of zeros with a one for each element, if others than the categories are allowed."""
    categories = categories_of(info)
    found = integer_table(categories)
    kind = info.input_element_type(0)
    if kind is TensorElementType.STRING and categories.dtype == object:
        writer = _of_texts(categories, copying_writer(compute), is_complete=not info.attribute("zeros", 1))
        return lambda _inputs, _outputs: writer
    if found is None or kind not in (TensorElementType.FLOAT, TensorElementType.INT64) or not info.attribute("zeros", 1):
        return None
    least, table = found
    options = (categories.size, table, int(least), table.size - 1, int(kind is TensorElementType.FLOAT))
    otherwise = copying_writer(compute)

    def make(inputs: Sequence[Any], _outputs: Sequence[HostArray]) -> Writer:
        count = inputs[0].size
        if not is_worth_a_task(count * categories.size, MODULE, "one_hot_encoder"):
            return otherwise
        threads = threads_for(count * categories.size)
        arguments = Encoder.of_words((Operand(0), Operand(1), count, *options))
        return _KeepingWriter("one_hot_encoder", arguments, [table], otherwise, threads)

    return make


def _of_texts(categories: HostArray, otherwise: Writer, *, is_complete: bool) -> Writer:
    """A writer of rows for strings.

    Args:
        categories: the columns' strings, of which the first of equal ones counts.
        otherwise: writes what is not contiguous, and refuses strings that are no category.
        is_complete: whether there may be no others.
    """
    if categories.size <= MOST_JOINED:
        return _joined_rows(categories, otherwise, is_complete=is_complete)
    width, find = categories.size, position_finder(categories)

    def write(x: HostArray, out: HostArray) -> None:
        positions = find(x.reshape(-1))
        if not out.flags.c_contiguous or (is_complete and positions.min(initial=0) < 0):
            otherwise(x, out)
            return
        out.fill(0)
        set_ones(out.reshape(-1), positions, width)

    return write


def _joined_rows(categories: HostArray, otherwise: Writer, *, is_complete: bool) -> Writer:
    """The same for few categories, whose rows are at hand as bytes."""
    # The first of equal categories is entered last.
    rows = dict(zip(reversed(categories.tolist()), map(bytes, np.eye(categories.size, dtype=np.float32)[::-1]), strict=True))
    nothing = bytes(4 * categories.size)

    def write(x: HostArray, out: HostArray) -> None:
        found = [rows.get(text, nothing) for text in x.ravel().tolist()]
        if not out.flags.c_contiguous or (is_complete and nothing in found):
            otherwise(x, out)
        elif found:
            out.data.cast("B")[:] = b"".join(found)

    return write


def _by_rows(
    info: KernelInfo,
    otherwise: Writer,
    task: str,
    arguments: type[TaskArguments],
    options: tuple[int | float, ...],
    columns: Sequence[HostArray] | None,
) -> MakeWriter | None:
    """How rows of float32 are written by a task.

    Args:
        info: the node.
        otherwise: the writer of others.
        task: its name.
        arguments: its class of arguments.
        options: the last of them.
        columns: values for each column, or one for all, which are the arguments before these; None for none.
    """
    if info.input_element_type(0) is not TensorElementType.FLOAT:
        return None

    def make(inputs: Sequence[Any], _outputs: Sequence[HostArray]) -> Writer:
        x = inputs[0]
        if x.ndim not in (1, 2) or not is_worth_a_task(x.size, MODULE, task):
            return otherwise
        width = x.shape[-1]
        if columns is not None and columns[0].size not in {1, width}:
            return otherwise
        spread = [np.ascontiguousarray(np.broadcast_to(column, width)) for column in columns or ()]
        words = (Operand(0), Operand(1), x.size // width, width, *spread, *options)
        return _KeepingWriter(task, arguments.of_words(words), spread, otherwise, threads_for(x.size))

    return make


class _KeepingWriter(TaskWriter):
    """Keeps what its arguments point at."""

    def __init__(self, task: str, arguments: TaskArguments, kept: Sequence[HostArray], otherwise: Writer, threads: int) -> None:
        self._kept = kept
        super().__init__(MODULE, task, arguments, otherwise, threads)
