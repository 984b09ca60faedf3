"""Regressions by products with coefficients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo, TensorElementType
from ort_sdk.opset.ml.linear import regressor_of
from ort_sdk.opset.ml.scores import post_transform

from .bindable import MakeWriter, Writer, bindable, copied
from .joinable_product import Operands
from .matrix import ProductWriter
from .scratch import scratch_of

__all__: list[str] = []

LEAST_TARGETS, MANY_ROWS = 16, 32
"""Targets below which a product of more rows by NumPy takes less time, although it is a call from Python."""


@bindable("LinearRegressor", domain="ai.onnx.ml")
def linear_regressor(info: KernelInfo, compute: Any) -> MakeWriter | None:
    """Products with coefficients, and intercepts, without a transform behind them."""
    linear = regressor_of(info)
    coefficients, intercepts = linear.coefficients, linear.intercepts
    name = post_transform(info)
    if info.input_element_type(0) is not TensorElementType.FLOAT or not (
        name == "NONE" or (intercepts.size == 1 and name != "PROBIT")
    ):
        return None
    scratch = scratch_of(info)

    def operands(x: HostArray, out: HostArray) -> Operands:
        return Operands(x if x.ndim == 2 else x[np.newaxis], coefficients, out, intercepts)

    def make(inputs: Sequence[Any], _outputs: Sequence[HostArray]) -> Writer:
        x = inputs[0]
        is_plain = x.ndim in (1, 2) and x.shape[-1] == len(coefficients)
        is_narrow = intercepts.size < LEAST_TARGETS and x.size > MANY_ROWS * x.shape[-1]
        return ProductWriter(copied(compute), scratch, operands if is_plain and not is_narrow else None)

    return make
