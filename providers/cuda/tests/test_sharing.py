"""Memory that arrays share with other libraries: addresses, DLPack, events, streams."""

import numpy as np
import pytest
from cuda_models import X, model, session_of
from onnx import helper
from stand_in.plugin import NAME

import ort_sdk as ort
from ort_sdk.api import InvalidArgument, TensorElementType

CHAIN = model([helper.make_node("Exp", ["x"], ["e"]), helper.make_node("Neg", ["e"], ["y"])])


def _foreign(driver, array):
    """Memory that another library has, with contents."""
    stream = driver.make_stream()
    address = driver.allocate(array.nbytes, None, stream)
    driver.copy_to_device(address, array.ctypes.data, array.nbytes, stream)
    driver.synchronize_stream(stream)
    return address


def _contents(driver, address, like):
    found = np.empty_like(like)
    driver.copy_to_host(found.ctypes.data, address, found.nbytes, driver.make_stream())
    return found


def test_inputs_and_outputs_at_addresses(driver):
    session = session_of(CHAIN)
    source, target = _foreign(driver, X), _foreign(driver, np.zeros_like(X))
    for _ in range(4):
        binding = session.io_binding()
        binding.bind_input("x", "cuda", 0, np.float32, X.shape, source)
        binding.bind_output("y", "cuda", 0, np.float32, X.shape, target)
        session.run_with_iobinding(binding)
        np.testing.assert_allclose(_contents(driver, target, X), -np.exp(X), rtol=1e-6)


@pytest.mark.parametrize(("offset", "shape", "reason"), [(0, (21, 30), "ends after 2400 bytes"), (4, (1,), "multiple of 16")])
def test_memory_that_is_too_small_or_not_aligned(driver, offset, shape, reason):
    session = session_of(CHAIN)
    address = _foreign(driver, X) + offset
    with pytest.raises(InvalidArgument, match=reason):
        session.io_binding().bind_input("x", "cuda", 0, np.float32, shape, address)


def test_an_address_of_no_device(driver):
    session = session_of(CHAIN)
    host = np.zeros(64, np.float32)
    address = host.ctypes.data + -host.ctypes.data % 16
    with pytest.raises(InvalidArgument, match="the address is nowhere on a device"):
        session.io_binding().bind_input("x", "cuda", 0, np.float32, (4,), address)


def test_an_ort_value_has_an_address(driver):
    value = ort.OrtValue.ortvalue_from_numpy(X, "cuda", 0)
    np.testing.assert_array_equal(_contents(driver, value.data_ptr(), X), X)


def test_tensors_by_dlpack(driver):
    value = ort.OrtValue.ortvalue_from_numpy(X, "cuda", 0)
    taken = ort.OrtValue.from_dlpack(value)
    assert taken.data_ptr() == value.data_ptr()
    del value
    np.testing.assert_array_equal(taken.numpy(), X)


def test_a_consumers_stream_waits_for_what_made_the_tensor(cuda):
    """The capsule is given before the work is done; the consumer's stream reads it in order."""
    driver = cuda.driver
    session = session_of(CHAIN)
    binding = session.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_output("y", "cuda")
    session.run_with_iobinding(binding)
    (value,) = binding.get_outputs()
    stream = driver.make_stream()
    waited = driver.calls["wait_event"]
    capsule = value.__dlpack__(stream=driver.stream_address(stream))
    assert driver.calls["wait_event"] == waited + 1
    found = driver.allocate_pinned(X.nbytes)
    driver.copy_to_host(found, value.data_ptr(), X.nbytes, stream)
    driver.synchronize_stream(stream)
    np.testing.assert_allclose(driver.pinned_memory.at(found)[0].array.view(np.float32).reshape(X.shape), -np.exp(X), rtol=1e-6)
    del capsule


def test_the_users_stream(driver):
    driver.make_current("context of 0")
    stream = driver.make_stream()
    session = session_of(CHAIN, {"user_compute_stream": str(driver.stream_address(stream))})
    before = stream.queued
    for _ in range(3):
        np.testing.assert_allclose(session.run(None, {"x": X})[0], -np.exp(X), rtol=1e-6)
    assert stream.queued > before


def test_events_and_time(cuda):
    from ort_sdk.plugins import plugin_manager
    from ort_sdk.session.providers.opened import open_provider

    opened = open_provider(plugin_manager().handle(NAME), {}, {})
    own, other = opened.execution_provider, open_provider(plugin_manager().handle(NAME), {"user_compute_stream": "0"}, {})
    with own.run_scope():
        start = own.stamp()
        array = opened.data_transfer.copy(X, ort.OrtDevice.make("cpu", 0), opened.device)
        end = own.stamp()
        event = own.record_event()
    other.execution_provider.order_after(event)
    own.synchronize()
    assert event.is_done
    assert 0 <= own.seconds_between(start, end) < 60
    assert own.describe(array) == (TensorElementType.FLOAT, X.shape)


def test_a_profiled_run_has_the_devices_times(cuda, tmp_path):
    options = ort.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "profile")
    session = ort.InferenceSession(CHAIN, options, providers=[NAME, "CPUExecutionProvider"])
    for _ in range(3):
        np.testing.assert_allclose(session.run(None, {"x": X})[0], -np.exp(X), rtol=1e-6)
    assert session.end_profiling()
