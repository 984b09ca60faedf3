"""What is launched, and how often: expressions that fuse, captures, workspace."""

import gc

import numpy as np
import pytest

from ort_sdk.api import InvalidArgument, TensorElementType
from ort_sdk.device import Memory
from ort_sdk.device.context import HostReadDuringCapture
from ort_sdk.device.namespace.device_namespace import DeviceNamespace
from ort_sdk.device.programs.capture import bind_launches
from ort_sdk.run.program.slots import ValueSlot

from .recording_launcher import recording_context

FLOAT = TensorElementType.FLOAT


@pytest.fixture
def context():
    return recording_context()


@pytest.fixture
def xp(context):
    return DeviceNamespace(context)


def matrix(xp, *shape):
    return xp.from_host(np.ones(shape, np.float32))


def test_a_chain_is_one_kernel(context, xp):
    a, b = matrix(xp, 4, 8), matrix(xp, 8)
    (xp.tanh(a * b + 1.0) / xp.astype(xp.arange(8), FLOAT)).strided()
    assert [launch.kernel.name for launch in context.launcher.launched] == ["elementwise"]


def test_nothing_is_computed_before_it_is_needed(context, xp):
    a = matrix(xp, 4, 8)
    for _ in range(5):
        a = xp.permute_dims(a * 2.0, (1, 0))
    assert not context.launcher.launched
    assert a.shape == (8, 4)


def test_long_expressions_are_computed_in_parts(context, xp):
    a = matrix(xp, 4, 8)
    for _ in range(300):
        a = a * 2.0 + a
    a.strided()
    assert 2 <= len(context.launcher.launched) <= 300


def test_what_is_dear_and_read_again_is_written_once(context, xp):
    dear = xp.exp(matrix(xp, 4, 8))
    (dear + 1.0).strided()
    (dear + 2.0).strided()
    first, second = context.launcher.launched
    assert "exp" in first.kernel.text
    assert len(first.writes) == 2
    assert "exp" not in second.kernel.text


def test_what_nobody_holds_is_not_written(context, xp):
    result = xp.exp(matrix(xp, 4, 8)) + 1.0
    gc.collect()
    result.strided()
    assert [len(launch.writes) for launch in context.launcher.launched] == [1]


def test_writing_to_a_part_computes_expressions_that_read_it_first(context, xp):
    a = xp.asarray(matrix(xp, 4, 8), copy=True)
    before = a * 2.0
    launched = context.launcher.launched
    launched.clear()
    a[0, :] = 5.0
    assert len(launched) == 2, "the expression, and the part"
    before.strided()
    assert len(launched) == 2


def test_captured_launches_are_replayed(context, xp):
    source, target = matrix(xp, 4, 8), matrix(xp, 4, 8)
    slots = [ValueSlot(source, is_fixed=True, element_type=FLOAT)], [ValueSlot(target, is_fixed=True, element_type=FLOAT)]
    call = bind_launches(context, lambda values: [xp.sort(values[0] * 2.0, axis=1)], *slots)
    assert not context.launcher.launched
    call()
    call()
    assert len(context.launcher.launched) == 2 * call.count > 0
    ((launches, places, moving),) = context.launcher.bound
    assert not moving
    placed = {id(memory) for memory in places}
    for launch in launches:
        for argument in launch.arguments:
            assert not isinstance(argument, Memory) or argument.handle is not None or id(argument) in placed
    assert target.dense().memory in places.values()


def test_memory_that_moves_is_asked_for_in_each_run(context, xp):
    source = ValueSlot(shape=(4, 8), element_type=FLOAT)
    target = ValueSlot(shape=(4, 8), element_type=FLOAT)
    bind_launches(context, lambda values: [values[0] * 2.0], [source], [target])
    ((_, _, moving),) = context.launcher.bound
    for array in (matrix(xp, 4, 8), matrix(xp, 4, 8)):
        source.array = target.array = array
        assert [each.current() for each in moving] == [array.dense().memory] * 2


def test_an_input_that_is_an_output_is_copied(context, xp):
    source, target = matrix(xp, 4, 8), matrix(xp, 4, 8)
    slots = [ValueSlot(source, is_fixed=True, element_type=FLOAT)], [ValueSlot(target, is_fixed=True, element_type=FLOAT)]
    assert bind_launches(context, lambda values: [values[0]], *slots).count == 1


def test_what_was_computed_in_a_capture_is_not_there_outside(context, xp):
    constant = xp.exp(matrix(xp, 8))
    target = ValueSlot(matrix(xp, 8), is_fixed=True, element_type=FLOAT)
    bind_launches(context, lambda values: [xp.sort(constant)], [], [target])
    constant.strided()
    assert [launch.kernel.name for launch in context.launcher.launched] == ["elementwise"]


def test_contents_cannot_be_read_while_launches_are_captured(context, xp):
    source = ValueSlot(matrix(xp, 4), is_fixed=True, element_type=FLOAT)
    with pytest.raises(HostReadDuringCapture):
        bind_launches(context, lambda values: [xp.to_host(values[0])], [source], [])
    xp.to_host(matrix(xp, 4))


@pytest.mark.parametrize(
    ("attempt", "message"),
    [
        (lambda xp, a: xp.reshape(a, (5, 5)), "number of elements differs"),
        (lambda xp, a: a + matrix(xp, 5), "do not broadcast"),
        (lambda xp, a: xp.permute_dims(a, (0, 0)), "not each axis once"),
        (lambda xp, a: a[9], "out of bounds"),
        (lambda xp, a: xp.sum(a, axis=2), "axes"),
        (lambda xp, a: xp.matmul(a, a), "inner sizes differ"),
        (lambda xp, a: xp.concat([a, matrix(xp, 4, 4)], axis=0), "concatenating"),
        (lambda xp, a: a + np.ones(8, np.float32), "from_host"),
    ],
)
def test_what_does_not_fit_is_refused(xp, attempt, message):
    with pytest.raises(InvalidArgument, match=message):
        attempt(xp, matrix(xp, 4, 8))
