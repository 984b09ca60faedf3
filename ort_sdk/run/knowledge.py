"""What follows from a signature: of a step's outputs, and of a plan's, before anything runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ort_sdk.api import RuntimeException
from ort_sdk.api.foreign_errors import raise_foreign
from ort_sdk.api.step_expansion import UNKNOWN, Foresight, Knowledge
from ort_sdk.plan import ABSENT, ExecutionPlan, Step

__all__ = ["ALL_KNOWN", "foreseen", "is_declared", "knowledge_of"]

ALL_KNOWN = Knowledge(shape=True, contents=True)


def knowledge_of(kernel: Any, inputs: Sequence[Knowledge]) -> Knowledge:
    """What is known of a step's outputs by what its kernel declares; see ``OpKernel``."""
    shapes = all(known.shape for known in inputs)
    if getattr(kernel, "contents_from_shapes", False) and shapes:
        return ALL_KNOWN
    if not getattr(kernel, "deterministic", False):
        return UNKNOWN
    if all(known.contents for known in inputs):
        return ALL_KNOWN
    shape_inputs = getattr(kernel, "shape_inputs", None)
    if shape_inputs is None or not shapes:
        return UNKNOWN
    return Knowledge(shape=all(inputs[index].contents for index in shape_inputs if index < len(inputs)))


def is_declared(step: Step) -> bool:
    """Whether a step does nothing but what its outputs show: a kernel that declares nothing runs even if nobody reads them."""
    kernel = step.kernel
    return kernel is None or bool(getattr(kernel, "deterministic", False) or getattr(kernel, "contents_from_shapes", False))


def foreseen(program: Any, plan: ExecutionPlan, inputs: Sequence[Knowledge], captured: Sequence[Knowledge]) -> Foresight:
    """What would be known of a body's outputs if it ran.

    Args:
        program: in the making, for kernels with bodies of their own.
        plan: of the body.
        inputs: what is known of its inputs.
        captured: and of the values that its node captures.
    """
    known: dict[int, Knowledge] = dict.fromkeys(plan.constants, ALL_KNOWN)
    known[ABSENT] = ALL_KNOWN
    known.update({feed.index: knowledge for feed, knowledge in zip(plan.feeds, inputs, strict=True)})
    known.update({index: captured[position] for position, index in plan.captures})
    is_complete, count, operators = True, 0, set[tuple[str, bool]]()
    for step in plan.steps:
        told = _foreseen_step(program, step, [known.get(index, UNKNOWN) for index in step.inputs])
        known.update(zip(step.outputs, told.outputs, strict=True))
        known[ABSENT] = ALL_KNOWN
        is_complete = is_complete and told.is_complete
        count += told.steps
        operators |= told.operators
    outputs = tuple(known.get(fetch.index, UNKNOWN) for fetch in plan.fetches)
    return Foresight(outputs, is_complete, count, frozenset(operators))


def _foreseen_step(program: Any, step: Step, read: Sequence[Knowledge]) -> Foresight:
    foretell = getattr(step.kernel, "foretell", None)
    try:
        told: Foresight | None = None if foretell is None else foretell(program, read)
    except Exception as error:  # noqa: BLE001 - a kernel may raise anything
        raise_foreign(error, f"raised in foretell of {step.op_type} node '{step.node}' of {step.provider}", RuntimeException)
    if told is not None:
        return told
    knowledge = knowledge_of(step.kernel, read)
    name = (step.op_type, all(known.contents for known in read[1:]))
    left = frozenset() if knowledge.contents else frozenset([name])
    return Foresight((knowledge,) * len(step.outputs), knowledge.shape, len(left), left)
