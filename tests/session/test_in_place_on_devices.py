"""Outputs in the memory of inputs on a device, as a decoder's cache: written there by the kernel, and not copied."""

import numpy as np
import pytest
from onnx import helper

import ort_sdk
from ort_sdk.plugins import plugin_manager
from tests.session import models
from tests.session.in_place_provider import (
    DEVICE,
    BoundInPlaceAdd,
    DeviceArray,
    InPlaceAdd,
    InPlaceExecutionProvider,
    InPlaceProvider,
)

PAST, NEW = np.array([[1, 2], [3, 4]], np.float32), np.array([[10, 20], [30, 40]], np.float32)


@pytest.fixture(params=[(InPlaceAdd, False), (BoundInPlaceAdd, False), (BoundInPlaceAdd, True)], ids=["steps", "bound", "joined"])
def provider(request):
    kernel, joins_calls = request.param
    made = InPlaceProvider(kernel, joins_calls=joins_calls)
    plugin_manager().register(made, name="in-place")
    yield made
    plugin_manager().unregister("in-place")


def made_session(*more_nodes, outputs=("present",)):
    nodes = [helper.make_node("Add", ["past", "new"], ["present"]), *more_nodes]
    graph = [models.value(name) for name in ("past", "new")], [models.value(name) for name in outputs]
    return ort_sdk.InferenceSession(models.model(nodes, *graph).SerializeToString(), providers=[InPlaceProvider.name])


def on_device(array):
    return ort_sdk.OrtValue.ortvalue_from_numpy(array, DEVICE.name)


def same_memory(value):
    """Another value in the memory of one."""
    made = on_device(value.numpy())
    made.replace(DeviceArray(value.value.storage))
    return made


def bound(session, past, present):
    binding = session.io_binding()
    binding.bind_ortvalue_input("past", past)
    binding.bind_ortvalue_input("new", on_device(NEW))
    binding.bind_ortvalue_output("present", present)
    return binding


@pytest.mark.parametrize("other_object", [False, True])
def test_the_cache_is_written_where_it_is(provider, other_object):
    session, past = made_session(), on_device(PAST)
    binding = bound(session, past, same_memory(past) if other_object else past)
    storage = past.value.storage
    for run in range(1, 6):
        session.run_with_iobinding(binding)
        np.testing.assert_array_equal(binding.get_outputs()[0].numpy(), PAST + run * NEW)
        assert binding.get_outputs()[0].value.storage is storage
    assert provider.transfer.fills == 0


def test_other_memory_is_filled(provider):
    session, past, present = made_session(), on_device(PAST), on_device(np.zeros_like(PAST))
    binding = bound(session, past, present)
    for run in range(1, 6):
        session.run_with_iobinding(binding)
        assert provider.transfer.fills == run
    np.testing.assert_array_equal(present.numpy(), PAST + NEW)
    np.testing.assert_array_equal(past.numpy(), PAST)


def test_memory_that_overlaps_and_begins_elsewhere_is_filled(provider):
    session, past, present = made_session(), on_device(PAST), on_device(PAST)
    rows = np.concatenate([PAST, PAST[:1]])
    past.replace(DeviceArray(rows[:2]))
    present.replace(DeviceArray(rows[1:]))
    session.run_with_iobinding(bound(session, past, present))
    assert provider.transfer.fills == 1
    np.testing.assert_array_equal(rows, np.concatenate([PAST[:1], PAST + NEW]))


def test_memory_of_another_shape_is_not_the_same(provider):
    session, past = made_session(), on_device(PAST)
    part = same_memory(past)
    part.replace(DeviceArray(part.value.storage[:1]))
    with pytest.raises(RuntimeError, match="The output OrtValue provided for output 'present'"):
        session.run_with_iobinding(bound(session, past, part))
    np.testing.assert_array_equal(past.numpy(), PAST)


def test_an_input_with_other_readers_is_not_overwritten(provider):
    session = made_session(helper.make_node("Add", ["past", "past"], ["twice"]), outputs=("present", "twice"))
    past = on_device(PAST)
    binding = bound(session, past, past)
    binding.bind_output("twice")
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(binding.get_outputs()[1].numpy(), 2 * PAST)
    np.testing.assert_array_equal(past.numpy(), PAST + NEW)


def test_a_provider_that_compares_objects(provider, monkeypatch):
    monkeypatch.setattr(InPlaceExecutionProvider, "compares", False)
    session, past = made_session(), on_device(PAST)
    binding = bound(session, past, same_memory(past))
    for run in range(1, 4):
        session.run_with_iobinding(binding)
        assert provider.transfer.fills == run
    np.testing.assert_array_equal(past.numpy(), PAST + 3 * NEW)


def test_a_provider_that_cannot_compare(provider, monkeypatch):
    def fails(_self, _first, _second, **_asked):
        raise LookupError("no such memory")

    monkeypatch.setattr(InPlaceExecutionProvider, "shares_memory", fails)
    session, past = made_session(), on_device(PAST)
    with pytest.raises(RuntimeError, match="raised in shares_memory of InPlaceExecutionProvider"):
        session.run_with_iobinding(bound(session, past, same_memory(past)))
