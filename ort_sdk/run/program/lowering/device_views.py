"""Views on devices: what is a value in another shape, or rows of it, takes no kernel if the provider can make views."""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk.api import Array
from ort_sdk.api.foreign_errors import raise_foreign
from ort_sdk.memory.provider_memory import bytes_of
from ort_sdk.plan import ABSENT
from ort_sdk.run.program.device_outline import described_value
from ort_sdk.run.program.specialisation import ProgramStep, Specialisation
from ort_sdk.run.types import BindingProvider

__all__ = ["RESHAPING", "are_views", "described_bytes", "hands_on", "made_views"]

RESHAPING = frozenset({"Flatten", "Reshape", "Squeeze", "Unsqueeze"})
"""ONNX's operators that only reshape their first input."""


def hands_on(launched: ProgramStep) -> bool:
    """Whether all outputs of a step are in its first input, one after the other."""
    return launched.step.domain == "" and (launched.step.op_type in RESHAPING or launched.step.op_type in ("Identity", "Split"))


def are_views(launched: ProgramStep, specialisation: Specialisation, provider: BindingProvider) -> bool:
    """Whether a step's outputs are the value of a device in another shape, or its rows, and the provider makes such views."""
    makes_them = provider.makes_ranges if launched.step.op_type == "Split" else provider.makes_views
    if not makes_them or not hands_on(launched) or not launched.outputs_known or ABSENT in launched.step.outputs:
        return False
    arrays = [specialisation.values[index] for index in (launched.inputs[0], *launched.outputs)]
    if any(isinstance(array, np.ndarray) or not hasattr(array, "shape") for array in arrays):
        return False
    return launched.step.op_type != "Split" or launched.step.attributes.get("axis", 0) in (0, -len(arrays[0].shape))


def made_views(
    launched: ProgramStep, specialisation: Specialisation, provider: BindingProvider, source: Array
) -> list[Array] | None:
    """The outputs of such a step as views of an array; None if the provider cannot make one of them.

    Args:
        launched: the step.
        specialisation: of the program.
        provider: of the step.
        source: what the step's first input is in.
    """
    execution_provider = provider.execution_provider
    shapes = [described_value(execution_provider, specialisation.values[index])[1] for index in launched.outputs]
    views, start = [], 0
    try:
        for shape in shapes:
            if launched.step.op_type != "Split":
                views.append(execution_provider.reshaped(source, shape))
            else:
                views.append(execution_provider.outer_range(source, start, start + shape[0]))
                start += shape[0]
    except Exception as error:  # noqa: BLE001 - a provider may raise anything
        raise_foreign(error, f"raised where {execution_provider.name} made views for {launched.step.op_type}, of {shapes}")
    return None if any(view is None for view in views) else views


def described_bytes(provider: BindingProvider, value: Any) -> int:
    """Bytes of an array of a provider."""
    element_type, shape = described_value(provider.execution_provider, value)
    return bytes_of(shape, element_type)
