"""The stand-in does what CUDA does, so that what is proved with it counts: order, lateness, captures, errors."""

import ctypes

import numpy as np
import pytest
from ort_sdk_cuda.driver import CudaError
from stand_in import stand_in

TEXT = """
KERNEL void twice(GLOBAL(const f32) x, GLOBAL(f32) y, i32 n) {
  i32 i = GROUP(0) * 4 + LANE(0);
  if (i < n) y[i] = 2.0f * x[i];
}
"""
VALUES = np.arange(8, dtype=np.float32)


class Gpu:
    """A stand-in with a stream, a kernel and memory."""

    def __init__(self):
        cuda = stand_in()
        self.driver = cuda.driver
        self.driver.make_current(self.driver.retain_context(0))
        self.stream, self.other = self.driver.make_stream(), self.driver.make_stream()
        image = cuda.compiler.compile(cuda.compiler.dialect.source(TEXT, {}), "twice", "sm_90")
        self.kernel = self.driver.function(self.driver.load_module(image), "twice")
        self.x, self.y = (self.driver.allocate(VALUES.nbytes, None, self.stream) for _ in "xy")
        self.pinned = self.driver.allocate_pinned(VALUES.nbytes)
        self.host = self.driver.pinned_memory.at(self.pinned)[0].array.view(np.float32)
        self.cells = [ctypes.c_uint64(self.x), ctypes.c_uint64(self.y), ctypes.c_int32(8)]
        self.addresses = (ctypes.c_uint64 * 3)(*(ctypes.addressof(cell) for cell in self.cells))

    def launch(self, stream=None):
        self.driver.launch(self.kernel, (2, 1, 1), (4, 1, 1), stream or self.stream, ctypes.addressof(self.addresses))

    def read(self, address):
        found = np.empty_like(VALUES)
        self.driver.copy_to_host(found.ctypes.data, address, found.nbytes, self.stream)
        return found


@pytest.fixture
def gpu():
    return Gpu()


def test_work_is_late_and_in_order(gpu):
    gpu.host[:] = VALUES
    gpu.driver.copy_to_device(gpu.x, gpu.pinned, VALUES.nbytes, gpu.stream)
    gpu.host[:] = VALUES + 1  # before the device has read it
    gpu.launch()
    gpu.cells[0].value = 0  # after the launch has read it
    np.testing.assert_array_equal(gpu.read(gpu.y), 2 * (VALUES + 1))


def test_memory_that_is_not_pinned_has_been_read(gpu):
    values = VALUES.copy()
    gpu.driver.copy_to_device(gpu.x, values.ctypes.data, values.nbytes, gpu.stream)
    values[:] = -1
    np.testing.assert_array_equal(gpu.read(gpu.x), VALUES)


def test_new_memory_is_poisoned(gpu):
    assert np.isnan(gpu.read(gpu.x)).all()


def test_streams_wait_for_events_only(gpu):
    driver, event = gpu.driver, gpu.driver.make_event()
    driver.copy_to_device(gpu.x, VALUES.ctypes.data, VALUES.nbytes, gpu.other)
    driver.record_event(event, gpu.other)
    assert np.isnan(gpu.read(gpu.x)).all()
    assert not event.is_done
    driver.wait_event(gpu.stream, event)
    np.testing.assert_array_equal(gpu.read(gpu.x), VALUES)
    assert driver.event_is_done(event)


def test_freed_memory_is_an_illegal_address_from_its_place_in_the_stream_on(gpu):
    gpu.driver.copy_to_device(gpu.x, VALUES.ctypes.data, VALUES.nbytes, gpu.stream)
    gpu.launch()
    gpu.driver.free(gpu.x, gpu.stream)
    np.testing.assert_array_equal(gpu.read(gpu.y), 2 * VALUES)
    gpu.launch()
    with pytest.raises(CudaError, match="ILLEGAL_ADDRESS"):
        gpu.driver.synchronize_stream(gpu.stream)
    with pytest.raises(CudaError, match="ILLEGAL_ADDRESS"):
        gpu.driver.make_stream()


def test_a_capture_runs_nothing_and_a_graph_what_was_recorded(gpu):
    driver = gpu.driver
    driver.copy_to_device(gpu.x, VALUES.ctypes.data, VALUES.nbytes, gpu.stream)
    driver.begin_capture(gpu.other)
    gpu.launch(gpu.other)
    node = driver.captured_node(gpu.other)
    driver.copy_to_host(gpu.pinned, gpu.y, VALUES.nbytes, gpu.other)
    copy = driver.captured_node(gpu.other)
    executable = driver.instantiate(driver.end_capture(gpu.other))
    assert np.isnan(gpu.read(gpu.y)).all()
    driver.launch_graph(executable, gpu.stream)
    driver.synchronize_stream(gpu.stream)
    np.testing.assert_array_equal(gpu.host, 2 * VALUES)
    # the same node with other addresses
    gpu.cells[0].value, gpu.cells[1].value = gpu.y, gpu.x
    driver.launch_graph(executable, gpu.stream)
    np.testing.assert_array_equal(gpu.read(gpu.y), 2 * VALUES)
    driver.set_kernel_node(executable, node, gpu.kernel, (2, 1, 1), (4, 1, 1), ctypes.addressof(gpu.addresses))
    driver.set_copy_node(executable, copy, gpu.pinned, gpu.x, VALUES.nbytes, None, to_host=True)
    driver.launch_graph(executable, gpu.stream)
    driver.synchronize_stream(gpu.stream)
    np.testing.assert_array_equal(gpu.host, 4 * VALUES)
    with pytest.raises(CudaError, match="INVALID_VALUE"):
        driver.set_copy_node(executable, copy, gpu.pinned, gpu.x, 4, None, to_host=True)


@pytest.mark.parametrize(
    "forbidden",
    [
        lambda gpu: gpu.driver.allocate(16, None, gpu.stream),
        lambda gpu: gpu.driver.free(gpu.x, gpu.stream),
        lambda gpu: gpu.driver.allocate_pinned(16),
        lambda gpu: gpu.driver.synchronize_stream(gpu.stream),
        lambda gpu: gpu.driver.synchronize_event(gpu.driver.make_event()),
        lambda gpu: gpu.driver.copy_to_device(gpu.x, VALUES.ctypes.data, VALUES.nbytes, gpu.other),
        lambda gpu: gpu.driver.copy_to_host(VALUES.ctypes.data, gpu.x, VALUES.nbytes, gpu.other),
    ],
)
def test_what_breaks_a_capture(gpu, forbidden):
    gpu.driver.begin_capture(gpu.other)
    with pytest.raises(CudaError, match="STREAM_CAPTURE_UNSUPPORTED"):
        forbidden(gpu)
    with pytest.raises(CudaError, match="STREAM_CAPTURE_INVALIDATED"):
        gpu.driver.end_capture(gpu.other)
    gpu.driver.synchronize_stream(gpu.stream)


def test_a_grid_that_cuda_does_not_take(gpu):
    for groups, lanes in (((1, 1 << 16, 1), (4, 1, 1)), ((1, 1, 1), (2048, 1, 1)), ((0, 1, 1), (4, 1, 1))):
        with pytest.raises(CudaError, match="INVALID_VALUE"):
            gpu.driver.launch(gpu.kernel, groups, lanes, gpu.stream, ctypes.addressof(gpu.addresses))


def test_planted_faults(gpu):
    gpu.driver.plant("allocate", 2, skipped=1)
    gpu.driver.allocate(4, None, gpu.stream)
    with pytest.raises(CudaError, match="OUT_OF_MEMORY"):
        gpu.driver.allocate(4, None, gpu.stream)
    gpu.driver.allocate(4, None, gpu.stream)
    gpu.driver.plant_in_kernel(719)
    gpu.launch()
    with pytest.raises(CudaError, match="LAUNCH_FAILED"):
        gpu.driver.synchronize_stream(gpu.stream)
