"""Abstract evaluation of steps, and the names its parts had before."""

import pytest

from ort_sdk.api import CPU_DEVICE
from ort_sdk.api.step_expansion import UNKNOWN, AbstractResult, AbstractValue, Foresight, Knowledge
from ort_sdk.plan import Step
from ort_sdk.run.program.tracing.abstract_values import ALL_KNOWN, _abstract_eval_step, abstract_eval_kernel
from ort_sdk.run.program.tracing.inlining import Inliner
from ort_sdk.run.program.tracing.trace import Trace

SHAPE_KNOWN = AbstractValue(shape_known=True)
RESULT = AbstractResult((SHAPE_KNOWN,), is_complete=True, steps=3, operators=frozenset())


class Declared:
    """A kernel that declares some of its abilities."""

    def __init__(self, **abilities):
        self.__dict__.update(abilities)


@pytest.mark.parametrize(
    ("kernel", "inputs", "expected"),
    [
        (Declared(), [ALL_KNOWN], UNKNOWN),
        (Declared(deterministic=True), [ALL_KNOWN, ALL_KNOWN], ALL_KNOWN),
        (Declared(deterministic=True), [SHAPE_KNOWN], UNKNOWN),
        (Declared(deterministic=True, shape_inputs=()), [SHAPE_KNOWN], SHAPE_KNOWN),
        (Declared(deterministic=True, shape_inputs=(1,)), [SHAPE_KNOWN, ALL_KNOWN], SHAPE_KNOWN),
        (Declared(deterministic=True, shape_inputs=(1,)), [SHAPE_KNOWN, SHAPE_KNOWN], UNKNOWN),
        (Declared(deterministic=True, shape_inputs=()), [UNKNOWN], UNKNOWN),
        (Declared(contents_from_shapes=True), [SHAPE_KNOWN], ALL_KNOWN),
        (Declared(contents_from_shapes=True), [UNKNOWN], UNKNOWN),
    ],
)
def test_outputs_are_known_as_the_kernel_declares(kernel, inputs, expected):
    assert abstract_eval_kernel(kernel, inputs) == expected


def step_of(kernel):
    return Step(None, (1,), (2,), (), kernel, "Loop", "", "loop", "CPUExecutionProvider", CPU_DEVICE)


@pytest.mark.parametrize("name", ["abstract_eval", "foretell"])
def test_a_kernel_with_bodies_evaluates_them_itself(name):
    kernel = Declared(**{name: lambda _program, inputs: RESULT if inputs == [ALL_KNOWN] else None})
    assert _abstract_eval_step(None, step_of(kernel), [ALL_KNOWN]) is RESULT
    assert _abstract_eval_step(None, step_of(kernel), [UNKNOWN]).outputs == (UNKNOWN,)


def test_old_names_are_the_same_classes():
    assert (Knowledge, Foresight) == (AbstractValue, AbstractResult)
    assert (SHAPE_KNOWN.shape, SHAPE_KNOWN.contents) == (True, False)
    assert (ALL_KNOWN.shape, ALL_KNOWN.contents) == (True, True)


def test_old_name_of_the_abstract_value_in_a_trace():
    trace = Trace()
    number = trace.add(None, SHAPE_KNOWN)
    inliner = Inliner(trace, step_of(None), lambda _plan, _offset: None)
    assert inliner.knowledge(number) is inliner.abstract_value(number) is SHAPE_KNOWN
