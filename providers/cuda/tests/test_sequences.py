"""Copies and kernels as one call: each sees what those before it leave, also where values go over the host."""

from types import SimpleNamespace

import numpy as np
import pytest
from ort_sdk_cuda.device import device_context
from ort_sdk_cuda.launching import CudaCopy, joined
from ort_sdk_cuda.launching.bound_calls import MOST_STAGED_BYTES

from ort_sdk.api import TensorElementType
from ort_sdk.device import DeviceArray

FLOAT = TensorElementType.FLOAT


@pytest.fixture
def context(driver):
    return device_context(0)


def _device(context, array):
    return DeviceArray(context, context.upload(array, FLOAT))


def _sequence(context, copies, *, uses_graphs=True):
    """A sequence of (source, target), arrays or slots."""
    queue = context.launcher.queue
    slots = [[each if isinstance(each, SimpleNamespace) else SimpleNamespace(array=each) for each in pair] for pair in copies]
    ((count, call),) = joined([CudaCopy(queue, *pair) for pair in slots], uses_graphs=uses_graphs)
    assert count == len(copies)
    return call


@pytest.mark.parametrize("uses_graphs", [True, False])
@pytest.mark.parametrize(
    ("part", "graphs"), [(np.s_[2:5], 1), (np.s_[:], 1), (np.s_[2:8:2], 0)], ids=["a part", "all", "with gaps"]
)
def test_a_copy_reads_what_one_before_it_brought_to_the_host(context, uses_graphs, part, graphs):
    size = len(np.arange(10)[part])
    source, target = _device(context, np.zeros(10, np.float32)), _device(context, np.zeros(size, np.float32))
    between, result = np.zeros(10, np.float32), np.zeros(size, np.float32)
    call = _sequence(context, [(source, between), (between[part], target), (target, result)], uses_graphs=uses_graphs)
    for run in range(5):
        values = np.arange(10, dtype=np.float32) + 100 * run
        context.launcher.upload(values, source.dense().held)
        call()
        np.testing.assert_array_equal(between, values)
        np.testing.assert_array_equal(result, values[part])
    assert len(call.graphs) == graphs * uses_graphs


def test_the_newest_of_several_copies_to_one_place(context):
    sources = [_device(context, np.full(4, value, np.float32)) for value in (1, 2)]
    target, between, result = _device(context, np.zeros(4, np.float32)), np.zeros(4, np.float32), np.zeros(4, np.float32)
    call = _sequence(context, [(sources[0], between), (sources[1], between), (between, target), (target, result)])
    for _ in range(4):
        call()
        np.testing.assert_array_equal(result, 2)
        np.testing.assert_array_equal(between, 2)


def test_a_source_that_spans_two_copies(context):
    sources = [_device(context, np.full(4, value, np.float32)) for value in (1, 2)]
    target, between, result = _device(context, np.zeros(8, np.float32)), np.zeros(8, np.float32), np.zeros(8, np.float32)
    copies = [(sources[0], between[:4]), (sources[1], between[4:]), (between, target), (target, result)]
    call = _sequence(context, copies)
    for _ in range(4):
        between[:] = 0
        call()
        np.testing.assert_array_equal(result, [1] * 4 + [2] * 4)


def test_large_copies_divide_a_sequence(context, driver):
    count = MOST_STAGED_BYTES // 4 + 1
    small, large = (_device(context, np.zeros(size, np.float32)) for size in (4, count))
    hosts = [np.zeros(size, np.float32) for size in (4, count, count, 4)]
    call = _sequence(context, [(hosts[0], small), (hosts[1], large), (large, hosts[2]), (small, hosts[3])])
    for run in range(4):
        hosts[0][:], hosts[1][:] = run, run + 0.5
        call()
        np.testing.assert_array_equal(hosts[2], run + 0.5)
        np.testing.assert_array_equal(hosts[3], run)


def test_a_large_copy_of_what_a_large_copy_brought(context):
    count = MOST_STAGED_BYTES // 4 + 1
    source, target = (_device(context, np.zeros(count, np.float32)) for _ in "st")
    between, result = np.zeros(count, np.float32), np.zeros(4, np.float32)
    part = DeviceArray(context, target[:4].strided())
    call = _sequence(context, [(source, between), (between, target)])
    for run in range(4):
        context.launcher.upload(np.full(count, run, np.float32), source.dense().held)
        call()
        result[:] = context.download(part.node)
        np.testing.assert_array_equal(result, run)


def test_arrays_on_the_device_that_are_others_in_each_run(context, driver):
    arrays = [_device(context, np.full(4, value, np.float32)) for value in range(6)]
    moving, result, other = SimpleNamespace(array=None), np.zeros(4, np.float32), np.zeros(4, np.float32)
    call = _sequence(context, [(moving, result), (moving, other)])
    for _ in range(3):
        for value, array in enumerate(arrays):
            moving.array = array
            call()
            np.testing.assert_array_equal(result, value)
            np.testing.assert_array_equal(other, value)
    assert driver.calls["begin_capture"] == 1
    assert driver.calls["instantiate"] == 4


def test_arrays_without_elements(context):
    empty, small = _device(context, np.zeros((0, 3), np.float32)), _device(context, np.zeros(4, np.float32))
    hosts = [np.zeros((0, 3), np.float32), np.ones(4, np.float32), np.zeros((0, 3), np.float32), np.zeros(4, np.float32)]
    call = _sequence(context, [(hosts[0], empty), (hosts[1], small), (empty, hosts[2]), (small, hosts[3])])
    for _ in range(4):
        call()
        np.testing.assert_array_equal(hosts[3], 1)
    assert len(call.graphs) == 1
