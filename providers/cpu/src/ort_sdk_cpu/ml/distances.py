"""CDist by a compiled task, which adds up squares of differences: near rows lose nothing."""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo, TensorElementType
from ort_sdk_cpu.jit.extents.sizes import VECTOR
from ort_sdk_cpu.kernel.eager import direct_call
from ort_sdk_cpu.kernel.eager_tasks import EagerCall
from ort_sdk_cpu.kernel.task_writer import is_worth_a_task, threads_for
from ort_sdk_cpu.memory.result_pool import ResultAllocator
from ort_sdk_cpu.memory.workspace import workspace_of
from ort_sdk_cpu.platform import libraries

from .arguments.distances import MODULE, Distances

__all__: list[str] = []

NAME = "cdist"


@direct_call("CDist", domain="com.microsoft")
def row_distances(info: KernelInfo) -> EagerCall | None:
    """float32 (rows of A, rows of B)."""
    metric = info.attribute("metric", "sqeuclidean")
    is_usual = info.input_element_type(0) is TensorElementType.FLOAT and metric in {"sqeuclidean", "euclidean"}
    if not is_usual or not libraries.compiled_kernels().is_usable:
        return None
    workspace, results = workspace_of(info), ResultAllocator()

    def call(a: HostArray, b: HostArray) -> Any:
        if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1]:
            return NotImplemented
        (rows, features), others = a.shape, len(b)
        if not is_worth_a_task(rows * others * features, MODULE, NAME):
            return NotImplemented
        from ort_sdk_cpu.jit.task import task_function

        a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)
        out, threads = results.empty((rows, others)), threads_for(rows * others * -(-features // 4))
        work = workspace.buffer(MODULE, threads * features * VECTOR)
        arguments = Distances(a, b, out, work, rows, others, features, int(metric == "euclidean"))
        task_function(MODULE, NAME)(threads, arguments)
        return out

    return call
