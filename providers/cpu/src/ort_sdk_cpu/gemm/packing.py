"""Packing of a constant B into panels of NR columns, each of which is read from its beginning on.

A register tile reads some columns of B. Where B is (K, N), they are as many pieces of memory as B has rows, and caches keep them
badly; GEMMs pack them each time, for which they are 8 to 15 % slower than with panels that were packed once.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo, NodeArg, Tensor, TensorElementType
from ort_sdk_cpu.kernel.bound import stores_packed_weights
from ort_sdk_cpu.memory.allocator import ALIGNMENT_BYTES
from ort_sdk_cpu.memory.weight_arena import weight_memory
from ort_sdk_cpu.platform import libraries

from .arguments.blocking import TRANSPOSE_BYTES
from .arguments.sgemm_packed import MODULE, PackKN, PackNK
from .select import MOST_PANEL_ELEMENTS, PANEL_ELEMENTS, PANEL_ROWS, GemmProblem

__all__ = ["is_worth_packing", "packed_panels", "panels_identity"]

# Some 100 us of reading and writing: some times as long as waking a thread.
_PACKED_BYTES_OF_THREAD = 1 << 20
"""Bytes of panels that are worth a thread."""


def is_worth_packing(info: KernelInfo, weight: Tensor) -> bool:
    """Whether a constant B of float32 is large, and A may have many rows."""
    elements = math.prod(weight.shape)
    if weight.element_type is not TensorElementType.FLOAT or elements < PANEL_ELEMENTS:
        return False
    is_shared = elements > MOST_PANEL_ELEMENTS and not stores_packed_weights(info) and not getattr(weight, "model_file_bytes", 0)
    return not is_shared and not _has_few_rows(info.inputs[0], transposed=bool(info.attribute("transA", 0)))


def _has_few_rows(first: NodeArg | None, *, transposed: bool) -> bool:
    """Whether A's rows, its last axis if it is ``transposed``, are known to be few."""
    if first is None or first.shape is None:
        return False
    *outer, last = first.shape or (1,)
    rows = 1
    for size in [*outer[:-1], last] if transposed else outer:
        if not isinstance(size, int):
            return False
        rows *= size
    return rows < PANEL_ROWS


def panels_identity(*, transposed: bool) -> str:
    """The layout: how wide panels are, and what they were made of."""
    return f"panels-{GemmProblem(1, 1, 1, is_packed=True).ldb}-{'nk' if transposed else 'kn'}"


def packed_panels(weight: Tensor, allocator: Any, *, transposed: bool) -> HostArray:
    """The bytes of a matrix's panels.

    Args:
        weight: B (K, N), or (N, K) if ``transposed``.
        allocator: of the memory, unless that is the provider's own.
        transposed: whether B is (N, K).
    """
    from ort_sdk_cpu.jit.task import task_function

    data = weight.packed()
    k, n = reversed(weight.shape) if transposed else weight.shape
    panel_bytes = GemmProblem(1, k, n, is_packed=True).ldb
    width = panel_bytes // (4 * k)
    panels = weight_memory(weight, -(-n // width) * panel_bytes, allocator)
    if transposed and n % width:
        panels[-panel_bytes:] = 0
    threads = max(1, min(libraries.thread_count(), panels.nbytes // _PACKED_BYTES_OF_THREAD))
    workspace = np.empty(threads * TRANSPOSE_BYTES + ALIGNMENT_BYTES, np.uint8)
    ldb = 4 * (k if transposed else n)
    arguments = (PackNK if transposed else PackKN)(data, panels, k, n, ldb, panel_bytes, workspace)
    task_function(MODULE, "pack_nk" if transposed else "pack_kn")(threads, arguments)
    panels.flags.writeable = False
    return panels
