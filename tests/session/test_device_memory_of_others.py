"""Memory of other libraries on a device: addresses bound to inputs and outputs, and DLPack tensors both ways."""

import numpy as np
import pytest

import ort_sdk
from ort_sdk.api import OrtDevice
from ort_sdk.plugins import plugin_manager
from ort_sdk.testing.null_provider import NullProvider
from ort_sdk.testing.strict.provider import STRICT_PROVIDER, StrictProvider
from tests.session import models

X = np.array([[1, 2], [3, 4]], np.float32)
DEVICE = OrtDevice("strict", 0)


@pytest.fixture(params=[True, False], ids=["asynchronous", "waiting"])
def strict(request):
    provider = StrictProvider(is_asynchronous=request.param)
    plugin_manager().register(provider, name="strict")
    yield provider.devices[DEVICE]
    plugin_manager().unregister("strict")


class OtherTensor:
    """A tensor of another library.

    Args:
        device: DLPack's type and index of its device.
        capsule: what it gives.
    """

    def __init__(self, device, capsule):
        self._device, self._capsule = device, capsule
        self.streams = []

    def __dlpack_device__(self):
        return self._device

    def __dlpack__(self, *, stream=None, **_options):
        self.streams.append(stream)
        return self._capsule


def made_session():
    return ort_sdk.InferenceSession(models.rectified(), providers=[STRICT_PROVIDER])


def bind_addresses(device, session):
    """Memory of an input and an output of ``session``, bound by address."""
    source, target = -X, np.zeros_like(X)
    binding = session.io_binding()
    binding.bind_input("x", "strict", 0, np.float32, [2, 2], device.lend(source))
    binding.bind_output("y", "strict", 0, np.float32, [2, 2], device.lend(target))
    return binding, source, target


def test_runs_read_and_write_memory_at_addresses(strict):
    session = made_session()
    binding, source, target = bind_addresses(strict, session)
    strict.counts.reset()
    for factor in (1, -1, 2, -3):
        source[...] = factor * X
        session.run_with_iobinding(binding)
        # Nobody asked to wait: the owner of the memory reads it as it pleases.
        np.testing.assert_array_equal(target, np.maximum(factor * X, 0))
    # to the target in each run; to a buffer that stays in the two runs that a program replays
    assert strict.counts.copies == {"device_copies": 4 + 2}


def test_a_run_may_leave_waiting_to_its_caller(strict):
    session = made_session()
    binding, source, target = bind_addresses(strict, session)
    options = ort_sdk.RunOptions()
    options.add_run_config_entry("disable_synchronize_execution_providers", "1")
    for _ in range(4):
        waits = strict.counts.waits
        session.run_with_iobinding(binding, options)
        waits = strict.counts.waits - waits
    is_asynchronous = waits == 0
    source[...] = X
    session.run_with_iobinding(binding, options)
    if is_asynchronous:
        assert (target == 0).all()
    binding.synchronize_outputs()
    np.testing.assert_array_equal(target, X)


def test_memory_of_another_library_lives_on(strict):
    memory = X.copy()
    binding = made_session().io_binding()
    binding.bind_input("x", "strict", 0, np.float32, [2, 2], strict.lend(memory))
    binding.clear_binding_inputs()
    strict.queue.synchronize()
    np.testing.assert_array_equal(memory, X)


@pytest.mark.parametrize(
    ("element_type", "shape", "offset", "error", "text"),
    [
        (np.float32, [2, -1], 0, ValueError, "sizes are not negative"),
        (np.float32, [2, 3], 0, ValueError, "has no 24 bytes of another library"),
        (np.float32, [2, 2], 1 << 40, ValueError, "has no 16 bytes of another library"),
        (np.float32, [2, 2], 2, ValueError, "must be a positive multiple of 4"),
        (np.str_, [2, 2], 0, ValueError, "holds numbers"),
        ("nonsense", [2, 2], 0, RuntimeError, "Not a valid numpy type"),
        (12345, [2, 2], 0, RuntimeError, "Not a valid numpy type"),
    ],
)
def test_addresses_of_no_such_memory(strict, element_type, shape, offset, error, text):
    binding, memory = made_session().io_binding(), X.copy()
    address = strict.lend(memory) + offset
    with pytest.raises(error, match=text):
        binding.bind_input("x", "strict", 0, element_type, shape, address)
    with pytest.raises(error, match=text):
        binding.bind_output("y", "strict", 0, element_type, shape, address)


@pytest.mark.parametrize("device", ["cpu", "strict"])
def test_no_address(strict, device):
    binding = made_session().io_binding()
    for address in (0, -4):
        with pytest.raises(ValueError, match="positive multiple"):
            binding.bind_input("x", device, 0, np.float32, [2, 2], address)
    with pytest.raises(TypeError, match="an address is an int"):
        binding.bind_input("x", device, 0, np.float32, [2, 2], "here")


@pytest.mark.parametrize(
    ("element_type", "shape", "text"),
    [
        (np.int32, [2, 2], r"Unexpected input data type. Actual: \(tensor\(int32\)\)"),
        (np.float32, [4], "Invalid rank for input: x Got: 1 Expected: 2"),
        (np.float32, [4, 1], "Got invalid dimensions for input: x"),
    ],
)
def test_memory_that_does_not_fit_the_model(strict, element_type, shape, text):
    session, memory = made_session(), X.copy()
    binding = session.io_binding()
    binding.bind_input("x", "strict", 0, element_type, shape, strict.lend(memory))
    binding.bind_output("y", "strict")
    with pytest.raises(RuntimeError, match="Error in execution: " + text):
        session.run_with_iobinding(binding)


def test_devices_whose_memory_has_no_addresses():
    plugin_manager().register(NullProvider, name="null")
    try:
        session = ort_sdk.InferenceSession(models.rectified(), providers=[NullProvider.name])
        with pytest.raises(NotImplementedError, match=r"NullExecutionProvider makes no arrays.*bind an OrtValue instead"):
            session.io_binding().bind_input("x", "null", 0, np.float32, [2, 2], 4096)
    finally:
        plugin_manager().unregister("null")


def test_tensors_are_given_with_what_the_consumer_waits_for(strict):
    session = made_session()
    binding = session.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_output("y", "strict")
    for _ in range(3):
        session.run_with_iobinding(binding)
    (value,) = binding.get_outputs()
    assert value.__dlpack_device__() == (12, 0)
    waits = strict.counts.waits
    capsule = value.__dlpack__(stream=5)
    assert strict.counts.waits == waits  # the consumer's stream waits, and not the host
    assert (capsule.array, capsule.stream) == (value.value, 5)
    if capsule.ready is not None:
        assert not capsule.ready.is_done
        capsule.ready.wait()
        assert capsule.ready.is_done
    np.testing.assert_array_equal(value.numpy(), X)


def test_a_run_waits_for_memory_that_was_given_away(strict):
    session = made_session()
    target = ort_sdk.OrtValue.ortvalue_from_numpy(np.zeros_like(X), "strict", 0)
    target.to_dlpack()
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", ort_sdk.OrtValue.ortvalue_from_numpy(X, "strict", 0))
    binding.bind_ortvalue_output("y", target)
    for _ in range(4):
        waits = strict.counts.waits
        session.run_with_iobinding(binding)
        waits = strict.counts.waits - waits
    assert waits == 1
    assert target.ready is None


def test_tensors_are_taken_with_their_memory(strict):
    given = ort_sdk.OrtValue.ortvalue_from_numpy(X, "strict", 0)
    other = OtherTensor((12, 0), given.__dlpack__())
    strict.counts.reset()
    taken = ort_sdk.OrtValue.from_dlpack(other)
    assert other.streams == [7]  # of the device, so that the other library makes it wait
    assert strict.counts.copies == {}
    assert (taken.device_name(), taken.data_type(), taken.shape()) == ("strict", "tensor(float)", [2, 2])
    given.update_inplace(X + 1)
    np.testing.assert_array_equal(taken.numpy(), X + 1)
    del given, other
    np.testing.assert_array_equal(taken.numpy(), X + 1)


@pytest.mark.parametrize("device", [(2, 0), (12, 5), (99, 0)])
def test_tensors_of_devices_that_are_not_here(strict, device):
    with pytest.raises(NotImplementedError, match="no installed provider takes tensors there"):
        ort_sdk.OrtValue.from_dlpack(OtherTensor(device, None))


def test_tensors_that_a_provider_cannot_take(strict):
    with pytest.raises(ValueError, match="no tensor of its own"):
        ort_sdk.OrtValue.from_dlpack(OtherTensor((12, 0), "capsule"))


def test_devices_without_dlpack():
    plugin_manager().register(NullProvider, name="null")
    try:
        value = ort_sdk.OrtValue.ortvalue_from_shape_and_type([2], np.float32, "null")
        for call in (value.to_dlpack, value.__dlpack_device__):
            with pytest.raises(NotImplementedError, match=r"numpy\(\) copies one to the host"):
                call()
    finally:
        plugin_manager().unregister("null")


def test_a_tensor_on_a_device_may_be_copied_to_the_host(strict):
    value = ort_sdk.OrtValue.ortvalue_from_numpy(X, "strict", 0)
    capsule = value.__dlpack__(dl_device=(1, 0), copy=True)
    np.testing.assert_array_equal(ort_sdk.OrtValue.from_dlpack(capsule).numpy(), X)
