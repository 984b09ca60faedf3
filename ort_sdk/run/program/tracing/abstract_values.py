"""Abstract evaluation: what follows from a signature, of a step's outputs and of a body's, before anything runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ort_sdk.api import RuntimeException
from ort_sdk.api.foreign_errors import raise_foreign
from ort_sdk.api.step_expansion import UNKNOWN, AbstractResult, AbstractValue
from ort_sdk.plan import ABSENT, ExecutionPlan, Step

__all__ = ["ALL_KNOWN", "abstract_eval_body", "abstract_eval_kernel"]

ALL_KNOWN = AbstractValue(shape_known=True, value_known=True)


def abstract_eval_kernel(kernel: Any, inputs: Sequence[AbstractValue]) -> AbstractValue:
    """The abstract value of a step's outputs, by what its kernel declares; see ``OpKernel``."""
    shapes = all(known.shape_known for known in inputs)
    if getattr(kernel, "contents_from_shapes", False) and shapes:
        return ALL_KNOWN
    if not getattr(kernel, "deterministic", False):
        return UNKNOWN
    if all(known.value_known for known in inputs):
        return ALL_KNOWN
    shape_inputs = getattr(kernel, "shape_inputs", None)
    if shape_inputs is None or not shapes:
        return UNKNOWN
    return AbstractValue(shape_known=all(inputs[index].value_known for index in shape_inputs if index < len(inputs)))


def abstract_eval_body(
    program: Any, plan: ExecutionPlan, inputs: Sequence[AbstractValue], captured: Sequence[AbstractValue]
) -> AbstractResult:
    """Abstract evaluation of a body: what would be known of its outputs if it ran.

    Args:
        program: in the making, for kernels with bodies of their own.
        plan: of the body.
        inputs: what is known of its inputs.
        captured: and of the values that its node captures.
    """
    known: dict[int, AbstractValue] = dict.fromkeys(plan.constants, ALL_KNOWN)
    known[ABSENT] = ALL_KNOWN
    known.update({feed.index: abstract for feed, abstract in zip(plan.feeds, inputs, strict=True)})
    known.update({index: captured[position] for position, index in plan.captures})
    is_complete, count, operators = True, 0, set[tuple[str, bool]]()
    for step in plan.steps:
        result = _abstract_eval_step(program, step, [known.get(index, UNKNOWN) for index in step.inputs])
        known.update(zip(step.outputs, result.outputs, strict=True))
        known[ABSENT] = ALL_KNOWN
        is_complete = is_complete and result.is_complete
        count += result.steps
        operators |= result.operators
    outputs = tuple(known.get(fetch.index, UNKNOWN) for fetch in plan.fetches)
    return AbstractResult(outputs, is_complete, count, frozenset(operators))


def _abstract_eval_step(program: Any, step: Step, read: Sequence[AbstractValue]) -> AbstractResult:
    abstract_eval = getattr(step.kernel, "abstract_eval", None) or getattr(step.kernel, "foretell", None)
    try:
        result: AbstractResult | None = None if abstract_eval is None else abstract_eval(program, read)
    except Exception as error:  # noqa: BLE001 - a kernel may raise anything
        raise_foreign(error, f"raised in abstract_eval of {step.op_type} node '{step.node}' of {step.provider}", RuntimeException)
    if result is not None:
        return result
    abstract = abstract_eval_kernel(step.kernel, read)
    name = (step.op_type, all(known.value_known for known in read[1:]))
    left = frozenset() if abstract.value_known else frozenset([name])
    return AbstractResult((abstract,) * len(step.outputs), abstract.shape_known, len(left), left)
