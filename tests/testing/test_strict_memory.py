import copy
import gc
import operator
import pickle
import threading

import numpy as np
import pytest

from ort_sdk.api import CPU_DEVICE, InvalidArgument, OrtDevice, OrtMemoryInfo, RuntimeException, TensorElementType
from ort_sdk.testing.collection import only_new_objects
from ort_sdk.testing.strict.memory import POISON, peek
from ort_sdk.testing.strict.provider import StrictProvider

FIRST, SECOND = OrtDevice("strict", 0), OrtDevice("strict", 1)
FLOAT = TensorElementType.FLOAT


@pytest.fixture
def provider():
    return StrictProvider()


@pytest.fixture
def execution_provider(provider):
    return provider.create_execution_provider(FIRST, {}, {})


@pytest.fixture
def transfer(provider, execution_provider):
    return provider.get_data_transfer(execution_provider)


@pytest.fixture
def allocator(provider, execution_provider):
    return provider.create_allocator(execution_provider, OrtMemoryInfo(FIRST, "Strict"))


def ones(transfer, device=FIRST):
    return transfer.copy(np.ones((2, 3), np.float32), CPU_DEVICE, device)


@pytest.mark.parametrize(
    "read",
    [
        np.asarray,
        np.from_dlpack,
        float,
        int,
        bool,
        len,
        list,
        copy.copy,
        copy.deepcopy,
        pickle.dumps,
        operator.index,
        lambda array: array[0],
        lambda array: operator.setitem(array, 0, 1),
        lambda array: array.numpy(),
        lambda array: array + 1,
        lambda array: np.ones(3) * array,
        lambda array: np.add(array, 1),
        lambda array: np.concatenate([array, array]),
    ],
)
def test_contents_cannot_be_read(transfer, read):
    with pytest.raises(TypeError):
        read(ones(transfer))


def test_shape_and_type_can_be_asked(transfer, execution_provider):
    array = ones(transfer)
    assert (array.shape, array.dtype, array.ndim, array.size, array.nbytes) == ((2, 3), np.float32, 2, 6, 24)
    assert execution_provider.describe(array) == (FLOAT, (2, 3))


@pytest.mark.parametrize("element_type", sorted(set(TensorElementType) - {TensorElementType.UNDEFINED, TensorElementType.STRING}))
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0), (2, 3)])
def test_round_trip_of_every_type(transfer, element_type, shape):
    host = np.ones(shape, element_type.numpy_dtype)
    back = transfer.copy(transfer.copy(host, CPU_DEVICE, FIRST), FIRST, CPU_DEVICE)
    assert back.dtype == host.dtype
    assert back.shape == shape
    np.testing.assert_array_equal(back.astype(np.complex128), host.astype(np.complex128))


def test_strings_are_refused(transfer):
    with pytest.raises(InvalidArgument, match="cannot store string"):
        transfer.copy(np.array(["a"], object), CPU_DEVICE, FIRST)


def test_copies_never_alias(transfer):
    host = np.ones(3, np.float32)
    array = transfer.copy(host, CPU_DEVICE, FIRST)
    host[:] = 7
    back = transfer.copy(array, FIRST, CPU_DEVICE)
    back[:] = 8
    np.testing.assert_array_equal(peek(array), [1, 1, 1])


def test_allocated_memory_holds_poison(allocator):
    array = allocator.allocate((4,), TensorElementType.UINT8)
    assert peek(array).tolist() == [POISON] * 4
    assert allocator.memory_info.device == FIRST


def test_a_copy_in_a_run_reads_its_source_late(transfer, execution_provider):
    host = np.ones(2, np.float32)
    with execution_provider.run_scope():
        array = transfer.copy(host, CPU_DEVICE, FIRST)
        assert array.shape == (2,)
        assert set(array.cell.storage.view(np.uint8).tolist()) == {POISON}
        host[:] = 5
    np.testing.assert_array_equal(peek(array), [5, 5])


def test_the_exit_of_a_run_waits(transfer, execution_provider):
    with execution_provider.run_scope():
        array = ones(transfer)
    np.testing.assert_array_equal(array.cell.storage, np.ones((2, 3)))


def test_a_released_array_is_poison_and_cannot_be_used(transfer, allocator):
    array = allocator.allocate((2,), FLOAT)
    transfer.copy_into(np.ones(2, np.float32), CPU_DEVICE, array, FIRST)
    storage = array.cell.storage
    allocator.release(array)
    for use in (
        lambda: transfer.copy(array, FIRST, CPU_DEVICE),
        lambda: transfer.copy_into(np.ones(2, np.float32), CPU_DEVICE, array, FIRST),
        lambda: allocator.release(array),
        lambda: peek(array),
    ):
        with pytest.raises(RuntimeException, match="released before"):
            use()
    array.strict_device.queue.synchronize()
    assert set(storage.view(np.uint8).tolist()) == {POISON}


@only_new_objects()
def test_a_collected_array_leaves_poison(transfer):
    array = ones(transfer)
    device, storage = array.strict_device, array.cell.storage
    assert device.live_arrays == 1
    del array
    gc.collect()
    assert device.live_arrays == 0
    device.queue.synchronize()
    assert set(storage.reshape(-1).view(np.uint8).tolist()) == {POISON}


def test_a_release_waits_for_the_work_before_it(transfer, allocator, execution_provider):
    array = ones(transfer)
    with execution_provider.run_scope():
        other = transfer.copy(array, FIRST, SECOND)
        allocator.release(array)
        array.strict_device.queue.synchronize()
    np.testing.assert_array_equal(peek(other), np.ones((2, 3)))


def test_arrays_of_two_devices_do_not_mix(transfer, allocator):
    array = ones(transfer, SECOND)
    for use in (lambda: allocator.release(array), lambda: transfer.copy(array, FIRST, CPU_DEVICE)):
        with pytest.raises(InvalidArgument, match="copy between the devices is missing"):
            use()
    with pytest.raises(InvalidArgument, match="a copy to the device is missing"):
        transfer.copy(np.ones(2), FIRST, CPU_DEVICE)
    with pytest.raises(InvalidArgument, match="expected a NumPy array"):
        transfer.copy(array, CPU_DEVICE, FIRST)


def test_copies_reach_both_devices(transfer):
    there = transfer.copy(ones(transfer), FIRST, SECOND)
    assert there.device == SECOND
    np.testing.assert_array_equal(transfer.copy(there, SECOND, CPU_DEVICE), np.ones((2, 3)))
    assert not transfer.can_copy(CPU_DEVICE, CPU_DEVICE)
    assert not transfer.can_copy(FIRST, OrtDevice("cuda"))
    with pytest.raises(InvalidArgument, match="cannot copy from cpu:0 to cuda:0"):
        transfer.copy(np.ones(1), CPU_DEVICE, OrtDevice("cuda"))


def test_copy_into_host_memory_wants_the_same_type_and_shape(transfer):
    target = np.zeros((2, 3), np.float32)
    transfer.copy_into(ones(transfer), FIRST, target, CPU_DEVICE)
    np.testing.assert_array_equal(target, np.ones((2, 3)))
    for wrong in (np.zeros((2, 3), np.int32), np.zeros((5, 3), np.float32), np.zeros((4, 2, 3), np.float32)):
        with pytest.raises(InvalidArgument, match=r"cannot copy float32\[2, 3\] from strict:0 into host memory"):
            transfer.copy_into(ones(transfer), FIRST, wrong, CPU_DEVICE)


def test_copy_into_device_memory_wants_the_same_shape(transfer, allocator):
    with pytest.raises(RuntimeException, match=r"float32\[2, 3\] into memory for float32\[6\]"):
        transfer.copy_into(np.ones((2, 3), np.float32), CPU_DEVICE, allocator.allocate((6,), FLOAT), FIRST)
    with pytest.raises(InvalidArgument, match="between the devices"):
        transfer.copy_into(np.ones((2, 3), np.float32), CPU_DEVICE, ones(transfer, SECOND), FIRST)


def test_a_full_device_says_bytes_asked_and_in_use():
    provider = StrictProvider(capacity_bytes=64)
    allocator = provider.create_allocator(provider.create_execution_provider(FIRST, {}, {}), OrtMemoryInfo(FIRST, "Strict"))
    first = allocator.allocate((10,), FLOAT)
    with pytest.raises(MemoryError, match="40 bytes asked, 40 of 64 bytes are in use"):
        allocator.allocate((10,), FLOAT)
    allocator.release(first)
    assert allocator.allocate((10,), FLOAT).shape == (10,)


def test_a_device_may_lack_types():
    provider = StrictProvider(element_types=[FLOAT])
    transfer = provider.get_data_transfer(None)
    with pytest.raises(InvalidArgument, match="cannot store double; it stores float"):
        transfer.copy(np.ones(1), CPU_DEVICE, FIRST)


def test_threads_share_a_device(transfer, execution_provider):
    faults = []

    def work(value):
        host = np.full(100, value, np.float32)
        for _ in range(50):
            with execution_provider.run_scope():
                array = transfer.copy(host, CPU_DEVICE, FIRST)
                there = transfer.copy(array, FIRST, SECOND)
                if not (transfer.copy(there, SECOND, CPU_DEVICE) == value).all():
                    faults.append(value)

    threads = [threading.Thread(target=work, args=(value,)) for value in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
