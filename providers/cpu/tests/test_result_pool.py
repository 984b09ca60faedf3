"""Memory of results that is used again: never while any array is on it, never without bound."""

import gc
import threading

import numpy as np
import pytest
from ort_sdk_cpu.memory import result_pool
from ort_sdk_cpu.memory.result_pool import UNPOOLED_RUNS, ResultAllocator, ResultPool
from ort_sdk_cpu.platform.addresses import address_of

from ort_sdk.testing.collection import only_new_objects

SHAPE = (300, 100)


@pytest.fixture
def memory():
    return ResultPool()


def test_memory_is_used_again_when_its_array_is_gone(memory):
    first = memory.empty(SHAPE)
    place = address_of(first)
    assert place % 64 == 0
    del first
    # Nearly as large: sequences of nearly the same length.
    assert address_of(memory.empty((298, 100))) == place


@pytest.mark.parametrize("look", [lambda x: x.T, lambda x: x.reshape(-1)[7:], lambda x: x[1:2][:, 3], lambda x: x.view(np.int32)])
@only_new_objects()
def test_a_view_keeps_its_memory(memory, look):
    array = memory.empty(SHAPE)
    array.fill(7)
    view = look(array)
    expected, place = view.copy(), address_of(array)
    del array
    gc.collect()
    other = memory.empty(SHAPE)
    assert address_of(other) != place
    other.fill(1)
    np.testing.assert_array_equal(view, expected)
    del view
    assert address_of(memory.empty(SHAPE)) == place


def test_small_and_gigantic_arrays_are_the_systems(memory):
    assert memory.empty((4, 5)).base is None
    assert memory.empty((result_pool.MAX_BYTES // 4 + 1,)).base is None
    assert memory.empty((0, 7)).shape == (0, 7)


def test_idle_memory_is_bounded(memory, monkeypatch):
    monkeypatch.setattr(result_pool, "MAX_IDLE_BYTES", 300_000)
    arrays = [memory.empty(SHAPE) for _ in range(5)]
    places = {address_of(array) for array in arrays}
    arrays.clear()
    assert memory._idle_bytes <= 300_000
    assert sum(len(idle) for idle in memory._idle.values()) == 2
    assert len(places) == 5


@only_new_objects()
def test_idle_memory_serves_what_is_up_to_half_as_large(memory):
    large, larger = memory.empty((512, 100)), memory.empty((640, 100))
    place, other = address_of(large), address_of(larger)
    del large, larger
    small = memory.empty((230, 100))
    assert address_of(small) not in (place, other)
    fitting = memory.empty((300, 100))
    assert address_of(fitting) == place  # the smaller of the two that are enough
    assert memory._idle_bytes == result_pool._length(256_000)
    again = memory.empty((640, 100))
    assert address_of(again) == other
    assert memory._idle_bytes == 0
    del fitting
    assert address_of(memory.empty((512, 100))) == place  # whole, whatever was on it


def test_the_size_itself_comes_first(memory):
    arrays = [memory.empty(shape) for shape in ((300, 100), (400, 100), (480, 100))]
    places = [address_of(array) for array in arrays]
    assert len({result_pool._length(array.nbytes) for array in arrays}) == 3
    arrays.clear()
    assert [address_of(array) for array in [memory.empty((rows, 100)) for rows in (480, 400, 300)]] == places[::-1]


def test_more_waits_where_more_was_in_use_at_once(memory, monkeypatch):
    monkeypatch.setattr(result_pool, "MAX_IDLE_BYTES", 1_000_000)
    at_once = ResultPool()
    arrays = [at_once.empty(SHAPE) for _ in range(9)]
    del arrays
    assert 750_000 < at_once._idle_bytes <= 1_000_000
    for rows in (1500, 170, 700, 300):
        memory.empty((rows, 100))
        assert 0 < memory._idle_bytes <= 750_000


def test_memory_may_come_back_while_memory_is_taken_and_kept(memory, monkeypatch):
    """As where the garbage collector runs: by then nothing is half done."""
    held = [memory.empty((300, 100)), memory.empty((900, 100)), memory.empty((2000, 100)), memory.empty((300, 100))]
    made = []

    def interrupted(function):
        def call(*arguments):
            if held:
                held.pop()
                made.append(memory.empty((900, 100)))
            return function(*arguments)

        return call

    monkeypatch.setattr(result_pool, "insort", interrupted(result_pool.insort))
    monkeypatch.setattr(result_pool, "bisect_left", interrupted(result_pool.bisect_left))
    for _ in range(3):
        memory.empty((500, 100))
    held.clear()
    made.clear()
    memory.empty((500, 100))
    assert not memory._returned
    assert memory._used_bytes == 0
    assert memory._lengths == sorted(memory._idle)
    assert memory._idle_bytes == sum(block.nbytes for idle in memory._idle.values() for block in idle)


def test_arrays_outlive_the_memory_that_made_them():
    memory = ResultPool()
    array = memory.empty(SHAPE)
    array.fill(3)
    del memory
    gc.collect()
    assert (array == 3).all()


def test_results_lie_as_an_array_does():
    results = ResultAllocator()
    x = np.empty((2, 30, 40, 24), np.float32)
    for source in (x, x.transpose(0, 3, 1, 2), x[:, ::2]):
        for _ in range(UNPOOLED_RUNS + 2):
            made = results.like(source)
            assert made.shape == source.shape
            assert made.dtype == np.float32
    assert results.like(x.transpose(0, 3, 1, 2)).strides == x.transpose(0, 3, 1, 2).strides


def test_threads_never_share_memory(memory):
    wrong = []

    def use(number):
        for size in range(200, 400):
            array = memory.empty((size, 100))
            array.fill(number)
            view = array[size // 2 :]
            del array
            if not (view == number).all():
                wrong.append(size)

    threads = [threading.Thread(target=use, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
