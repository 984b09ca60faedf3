"""Recurrent operators that a device computes with kernels of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ort_sdk.api import Compute, KernelInfo
from ort_sdk.device.namespace.device_namespace import Override

from .layers import recurrent
from .lstm import lstm

__all__ = ["RECURRENT_OVERRIDES"]


def _lstm(info: KernelInfo, namespace: Any, shared: Compute) -> Compute | None:
    """All steps as one kernel where one lane or group is fast enough for a sequence; else a launch for each step."""
    by_steps = recurrent(info, namespace, shared)
    return lstm(info, namespace, by_steps or shared) or by_steps


RECURRENT_OVERRIDES: Mapping[tuple[str, str], Override] = {
    ("", "GRU"): recurrent,
    ("", "LSTM"): _lstm,
    ("", "RNN"): recurrent,
}
"""(domain, op_type) → what makes its function."""
