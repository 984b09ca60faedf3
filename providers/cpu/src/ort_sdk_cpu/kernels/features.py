"""Columns chosen, scaled and normalized, as models of scikit-learn begin and end with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo, TensorElementType
from ort_sdk_cpu.addresses import address_of

from .bindable import MakeWriter, Writer, bindable, copied
from .copies import moving
from .movement import taken
from .task_writer import TaskWriter, is_worth_a_task, threads_for

__all__: list[str] = []

DOMAIN = "ai.onnx.ml"
MODULE = "features"
_NORMS = {"MAX": 0, "L1": 1, "L2": 2}


@bindable("ArrayFeatureExtractor", domain=DOMAIN, any_type=True)
def array_feature_extractor(info: KernelInfo, compute: Any) -> MakeWriter:
    """Elements of the last axis."""

    def runs(x: HostArray, indices: HostArray, out: HostArray) -> Any:
        return taken(x.ndim - 1, x, indices.reshape(-1), out) if x.ndim and indices.min(initial=0) >= 0 else None

    def write(x: HostArray, indices: HostArray, out: HostArray) -> None:
        chosen = indices.reshape(-1)
        # As numbers without a sign, negative ones are larger than any size.
        if not x.ndim or not chosen.size or chosen.view(np.uint64).max() >= x.shape[-1]:
            compute(x, indices)
        x.take(chosen, axis=-1, out=out.reshape(*x.shape[:-1], chosen.size), mode="clip")

    writer = moving(info, write, runs)
    return lambda _inputs, _outputs: writer


@bindable("Normalizer", domain=DOMAIN)
def normalizer(info: KernelInfo, compute: Any) -> MakeWriter | None:
    """Rows divided by their largest element, sum of magnitudes or length."""
    return _by_rows(info, copied(compute), "normalized_rows", (_NORMS[info.attribute("norm", "MAX")],), None)


@bindable("Scaler", domain=DOMAIN)
def scaler(info: KernelInfo, compute: Any) -> MakeWriter | None:
    """(x - offset) * scale."""
    numbers = [np.asarray(info.attribute(name), np.float32) for name in ("offset", "scale")]
    return _by_rows(info, copied(compute), "scaled_rows", (), numbers)


def _by_rows(
    info: KernelInfo, otherwise: Writer, task: str, arguments: tuple[int, ...], columns: Sequence[HostArray] | None
) -> MakeWriter | None:
    """How rows of float32 are written by a task.

    Args:
        info: the node.
        otherwise: the writer of others.
        task: its name.
        arguments: what it takes behind sizes.
        columns: numbers for each column, or one for all, which it takes there; None for none.
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
        return _RowWriter(task, x, (*map(address_of, spread), *arguments), spread, otherwise)

    return make


class _RowWriter(TaskWriter):
    def __init__(
        self, task: str, x: HostArray, arguments: tuple[int, ...], columns: Sequence[HostArray], otherwise: Writer
    ) -> None:
        width = x.shape[-1]
        self._columns = columns
        super().__init__(MODULE, task, (x.size // width, width, *arguments), (0, 1), otherwise, threads_for(x.size))

    def fixed(self, *arrays: HostArray | None) -> Callable[[], Any] | None:
        """As the base says; the call keeps the columns' numbers."""
        call = super().fixed(*arrays)
        if call is not None:
            call.columns = self._columns  # type: ignore[attr-defined]
        return call
