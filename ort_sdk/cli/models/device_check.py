"""Opening a device and computing something on it."""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk.cli.exit_codes import error_text
from ort_sdk.plan import ExecutionPlan
from ort_sdk.session.stages.state import SessionState

from .building import BuiltModel, build_state

__all__ = ["check_device"]

ADD_RELU = bytes.fromhex(
    "08083a630a130a01610a01621201631a0361646422034164640a120a01631201641a0472656c75220452656c751205636865"
    "636b5a0f0a0161120a0a08080112040a0208035a0f0a0162120a0a08080112040a020803620f0a0164120a0a08080112040a"
    "02080342040a00100e"
)
"""An ONNX model, operator set 14: ``d = Relu(Add(a, b))``, each float ``[3]``."""


def check_device(provider: str, device: str) -> dict[str, Any]:
    """Compute ``Relu(a + b)`` with a provider on one of its devices.

    Args:
        provider: name of a loaded provider.
        device: ``name:index``, as reports print it.

    Returns:
        ``provider``, ``device``, ``passed``, ``detail``: what ran, or what failed, and ``environment``: lines about the
        libraries and settings the provider uses.
    """
    row: dict[str, Any] = {"provider": provider, "device": device, "environment": []}
    try:
        state = build_state(ADD_RELU, [(provider, {"device_id": device.rpartition(":")[2]})])
        row["environment"] = _environment(state, provider)
        return row | _result(state, provider)
    except Exception as error:  # noqa: BLE001 - a provider may raise anything; the check reports it
        return row | {"passed": False, "detail": error_text(error)}


def _result(state: SessionState, provider: str) -> dict[str, Any]:
    (found,) = BuiltModel(state).run({"a": np.array([1, 2, -3], np.float32), "b": np.array([0.5, -4, 1], np.float32)}).values()
    operators = _operators(state.plan, provider)
    if np.array_equal(found, [1.5, 0, 0]):
        return {
            "passed": True,
            "detail": f"computed {', '.join(operators)}" if operators else "opened; has no kernel for Add or Relu",
        }
    return {"passed": False, "detail": f"Relu([1, 2, -3] + [0.5, -4, 1]) must be [1.5, 0, 0], got {found}"}


def _environment(state: SessionState, provider: str) -> list[str]:
    return [
        line for opened in state.providers if opened.name == provider for line in opened.execution_provider.describe_environment()
    ]


def _operators(plan: ExecutionPlan, provider: str) -> list[str]:
    return [step.op_type for step in plan.steps if step.provider == provider]
