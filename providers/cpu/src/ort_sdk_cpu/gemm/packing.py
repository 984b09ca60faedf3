"""Constant matrices laid out for products with many rows: panels of their columns, each of which is read from its beginning on.

A tile of a product reads some columns of a matrix. Where that lies in rows, they come from as many places as it has rows, and the
caches keep them badly; products copy them each time, for which they get 8 to 15 % slower than with panels.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo, NodeArg, Tensor, TensorElementType
from ort_sdk_cpu.kernel.bound import stores_packed_weights
from ort_sdk_cpu.memory.allocator import ALIGNMENT_BYTES
from ort_sdk_cpu.memory.weight_arena import memory_for
from ort_sdk_cpu.platform import libraries

from .arguments.blocking import TRANSPOSE_BYTES
from .arguments.sgemm_packed import MODULE, PackKN, PackNK
from .select import GemmProblem

__all__ = ["is_worth_packing", "packed_panels", "panels_identity"]

FEWEST_NUMBERS = 1 << 16
"""Of a matrix: smaller ones are in a cache, wherever their columns lie."""
MOST_SHARED_NUMBERS = (1 << 24) - 1
"""Of one outside of the model's file: those of larger models are better shared by processes."""
FEWEST_ROWS = 8
"""Of a product: where there are fewer, its matrix is read once."""
_PACKED_BYTES_OF_THREAD = 1 << 20
"""That take some times as long as waking a thread up."""


def is_worth_packing(info: KernelInfo, weight: Tensor) -> bool:
    """Whether a product's constant matrix of float32 is large, and the product may have many rows."""
    numbers = math.prod(weight.shape)
    if weight.element_type is not TensorElementType.FLOAT or numbers < FEWEST_NUMBERS:
        return False
    is_shared = numbers > MOST_SHARED_NUMBERS and not stores_packed_weights(info) and not getattr(weight, "model_file_bytes", 0)
    return not is_shared and not _has_few_rows(info.inputs[0], turned=bool(info.attribute("transA", 0)))


def _has_few_rows(first: NodeArg | None, *, turned: bool) -> bool:
    """Whether the product's rows, the last axis if the first operand is ``turned``, are known to be few."""
    if first is None or first.shape is None:
        return False
    *outer, last = first.shape or (1,)
    rows = 1
    for size in [*outer[:-1], last] if turned else outer:
        if not isinstance(size, int):
            return False
        rows *= size
    return rows < FEWEST_ROWS


def panels_identity(*, transposed: bool) -> str:
    """The layout: how wide panels are, and what they were made of."""
    return f"panels-{GemmProblem(1, 1, 1, is_packed=True).ldb}-{'nk' if transposed else 'kn'}"


def packed_panels(weight: Tensor, allocator: Any, *, transposed: bool) -> HostArray:
    """The bytes of a matrix's panels.

    Args:
        weight: (inner, columns), or (columns, inner) if ``transposed``.
        allocator: of the memory, unless that is the provider's own.
        transposed: whether the columns are its rows.
    """
    from ort_sdk_cpu.jit.task import task_function

    data = weight.packed()
    inner, columns = reversed(weight.shape) if transposed else weight.shape
    panel_bytes = GemmProblem(1, inner, columns, is_packed=True).ldb
    width = panel_bytes // (4 * inner)
    panels = memory_for(weight, -(-columns // width) * panel_bytes, allocator)
    if transposed and columns % width:
        panels[-panel_bytes:] = 0
    threads = max(1, min(libraries.thread_count(), panels.nbytes // _PACKED_BYTES_OF_THREAD))
    spare = np.empty(threads * TRANSPOSE_BYTES + ALIGNMENT_BYTES, np.uint8)
    ldb = 4 * (inner if transposed else columns)
    arguments = (PackNK if transposed else PackKN)(data, panels, inner, columns, ldb, panel_bytes, spare)
    task_function(MODULE, "pack_nk" if transposed else "pack_kn")(threads, arguments)
    panels.flags.writeable = False
    return panels
