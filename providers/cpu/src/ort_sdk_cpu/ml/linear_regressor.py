"""Regressions by coefficients, by the task of linear classifiers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo, TensorElementType
from ort_sdk.opset.ml.linear import regressor_of
from ort_sdk.opset.ml.scores import post_transform
from ort_sdk_cpu.jit.arguments import Operand
from ort_sdk_cpu.jit.extents.sizes import FLOAT, VECTOR
from ort_sdk_cpu.kernel.bindable import bindable
from ort_sdk_cpu.kernel.task_writer import TaskWriter, is_worth_a_task
from ort_sdk_cpu.kernel.writer import MakeWriter, Writer, copying_writer

from .arguments.linear import MODULE, WORKSPACE_VECTORS, LinearModel

__all__: list[str] = []

TASK = "linear"
MOST_WORK = 1 << 18
"""Multiplications from which on a GEMM is faster, which the shared set's is."""


@bindable("LinearRegressor", domain="ai.onnx.ml")
def linear_regressor(info: KernelInfo, compute: Any) -> MakeWriter | None:
    """Products with coefficients plus intercepts, without a transform."""
    linear, name = regressor_of(info), post_transform(info)
    is_plain = name == "NONE" or (linear.intercepts.size == 1 and name != "PROBIT")
    if info.input_element_type(0) is not TensorElementType.FLOAT or not is_plain:
        return None
    coefficients, otherwise = np.ascontiguousarray(linear.coefficients.T), copying_writer(compute)

    def make(inputs: Sequence[Any], _outputs: Sequence[HostArray]) -> Writer:
        x = inputs[0]
        work = x.size * len(coefficients)
        fits = x.ndim in (1, 2) and x.shape[-1] == coefficients.shape[1]
        if not fits or not 0 < work < MOST_WORK or not is_worth_a_task(work, MODULE, TASK):
            return otherwise
        return _RegressorWriter(coefficients, linear.intercepts, x.size // x.shape[-1], otherwise)

    return make


class _RegressorWriter(TaskWriter):
    """The task without labels; keeps what it points at.

    Args:
        coefficients: a row for each target.
        intercepts: one for each.
        rows: of the input.
        otherwise: writes what is not contiguous.
    """

    def __init__(self, coefficients: HostArray, intercepts: HostArray, rows: int, otherwise: Writer) -> None:
        targets, features = coefficients.shape
        workspace = np.empty((targets + WORKSPACE_VECTORS) * VECTOR, np.uint8)
        self._kept = (coefficients, intercepts, workspace)
        arguments = LinearModel(
            x=Operand(0),
            scores=Operand(1),
            labels=0,
            workspace=workspace,
            rows=rows,
            x_stride=features * FLOAT,
            targets=targets,
            transform=0,
            decision=0,
            decision_score=0,
            expands=0,
            limit=math.nan,
            classes=0,
            coefficients=coefficients,
            intercepts=intercepts,
            features=features,
            score_count=targets,
        )
        super().__init__(MODULE, TASK, arguments, otherwise)
