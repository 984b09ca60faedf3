"""Numbers that decide the shapes of a step's outputs only outside of some range, which a guard checks before the step."""

from __future__ import annotations

from ort_sdk.api.foreign_errors import raise_foreign
from ort_sdk.plan import ABSENT, Step
from ort_sdk.run.program.guards import BoundedNumber

from .partial_evaluation import is_host_number
from .trace import Trace

__all__ = ["bounded_number"]


def bounded_number(trace: Trace, step: Step) -> BoundedNumber | None:
    """The number that a step of a main plan depends on, with its range; None if it is known, or shapes are not.

    Args:
        trace: of the steps before.
        step: runs next.
    """
    position = getattr(step.kernel, "bounded_input", None)
    if position is None or position >= len(step.inputs) or step.inputs[position] == ABSENT:
        return None
    number = trace.aliases.get(step.inputs[position], step.inputs[position])
    if trace.known[number].value_known or not all(trace.known[index].shape_known for index in step.inputs):
        return None
    if not is_host_number(trace.values[number]):
        return None
    shapes = [getattr(trace.values[index], "shape", None) for index in step.inputs]
    try:
        bounds = step.kernel.bounds(shapes)
    except Exception as error:  # noqa: BLE001 - a kernel may raise anything
        raise_foreign(error, f"raised in bounds of {step.op_type} node '{step.node}' of {step.provider}")
    if bounds is None or not bounds[0] <= trace.values[number].item() <= bounds[1]:
        return None
    return BoundedNumber(number, *bounds)
