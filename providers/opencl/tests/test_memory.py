"""Device memory: a pool that makes small arrays cheap, with a limit, and errors that say how much was asked for."""

import itertools
import threading

import numpy as np
import pytest
from onnx import TensorProto, helper

import ort_sdk as ort
from ort_sdk.api import OutOfMemory, TensorElementType
from ort_sdk.device.drivers import MemoryPool
from ort_sdk.device.drivers.memory_pool import MOST_KEPT_BLOCK_BYTES, SLAB_BYTES

pytestmark = pytest.mark.opencl


class Driver:
    """Memory as ranges of numbers."""

    alignment_bytes, name = 128, "a device of numbers"

    def __init__(self, room=1 << 40):
        self.room, self.calls, self.settled = room, 0, 0

    def allocate(self, nbytes):
        self.calls += 1
        if nbytes > self.room:
            raise MemoryError("no room")
        self.room -= nbytes
        return _Handle(self, self.calls, 0, nbytes, owned=nbytes)

    def part(self, handle, offset_bytes, nbytes):
        assert offset_bytes % self.alignment_bytes == 0
        assert offset_bytes + nbytes <= handle.nbytes
        return _Handle(self, handle.number, handle.offset + offset_bytes, nbytes)

    def settle(self):
        self.settled += 1


class _Handle:
    def __init__(self, driver, number, offset, nbytes, owned=0):
        self.driver, self.number, self.offset, self.nbytes, self.owned = driver, number, offset, nbytes, owned

    def __del__(self):
        self.driver.room += self.owned


def _overlap(memories):
    ranges = sorted((each.handle.number, each.handle.offset, each.handle.offset + each.nbytes) for each in memories)
    return any(a[0] == b[0] and a[2] > b[1] for a, b in itertools.pairwise(ranges))


def test_small_arrays_share_slabs_and_are_used_again():
    driver = Driver()
    pool = MemoryPool(driver)
    memories = [pool.allocate(nbytes) for nbytes in (1, 4, 100, 128, 129, 1000) for _ in range(50)]
    assert driver.calls == 3
    assert not _overlap(memories)
    assert pool.bytes_in_use == 50 * (4 * 128 + 256 + 1024)
    handles = {id(memory.handle) for memory in memories}
    del memories
    assert pool.bytes_in_use == 0
    again = [pool.allocate(4) for _ in range(100)]
    assert driver.calls == 3
    assert {id(memory.handle) for memory in again} <= handles


def test_large_arrays_go_back_to_the_driver_at_once():
    driver = Driver()
    pool = MemoryPool(driver)
    memory = pool.allocate(MOST_KEPT_BLOCK_BYTES + 1)
    part = pool.part(memory, 128, 64)
    room = driver.room
    del memory
    assert driver.room == room, "a part keeps the whole"
    del part
    assert driver.room == 1 << 40
    assert pool.bytes_held == 0


def test_what_is_kept_goes_back_before_memory_is_refused():
    driver = Driver(room=8 << 20)
    pool = MemoryPool(driver)
    kept = [pool.allocate(1 << 20) for _ in range(8)]
    del kept
    memory = pool.allocate(6 << 20)
    assert driver.settled == 1
    with pytest.raises(OutOfMemory, match=r"allocating 4000000 bytes on a device of numbers: no room; \d+ bytes are in use"):
        pool.allocate(4_000_000)
    del memory
    assert pool.allocate(4_000_000).nbytes == 4_000_000


def test_a_limit():
    pool = MemoryPool(Driver(), limit_bytes=SLAB_BYTES + (1 << 20))
    small, large = pool.allocate(100), pool.allocate(1 << 20)
    with pytest.raises(OutOfMemory, match=r"the limit of 2097152 bytes \(provider option gpu_mem_limit\) is reached"):
        pool.allocate(1 << 17)
    del large
    assert pool.allocate(1 << 17).nbytes == 1 << 17
    assert small.nbytes == 100


def test_threads():
    pool = MemoryPool(Driver())
    wrong = []

    def work(seed):
        rng, held = np.random.default_rng(seed), []
        for _ in range(300):
            held.append(pool.allocate(int(rng.integers(1, 1 << 18))))
            wrong.extend([seed] if _overlap(held) else [])
            if len(held) > 20:
                del held[int(rng.integers(0, 20))]

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert pool.bytes_in_use == 0


def test_a_slab_that_cannot_be_divided_is_not_counted():
    driver = Driver()
    pool = MemoryPool(driver)
    divide, driver.part = driver.part, lambda *_arguments: 1 / 0
    with pytest.raises(ZeroDivisionError):
        pool.allocate(100)
    assert (pool.bytes_held, driver.room) == (0, 1 << 40)
    driver.part = divide
    assert pool.allocate(100).nbytes == 100


def _chain(shape=("n",)):
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape)) for name in "xy")
    graph = helper.make_graph([helper.make_node("Exp", ["x"], ["e"]), helper.make_node("Neg", ["e"], ["y"])], "g", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def test_a_session_goes_on_after_memory_was_exhausted(providers):
    (name, options), host = providers
    session = ort.InferenceSession(_chain(), providers=[(name, {**options, "gpu_mem_limit": str(4 << 20)}), host])
    x = np.linspace(-1, 1, 1000, dtype=np.float32)
    for _ in range(3):
        with pytest.raises(OutOfMemory, match=r"allocating \d+ bytes on '.*gpu_mem_limit"):
            session.run(None, {"x": np.zeros(2 << 20, np.float32)})
        for _ in range(3):
            np.testing.assert_allclose(session.run(None, {"x": x})[0], -np.exp(x), rtol=1e-6)


def test_more_than_there_is_says_how_much(context):
    pool = context.launcher.pool
    before = pool.bytes_in_use
    with pytest.raises(OutOfMemory, match=r"allocating 4503599627370496 bytes on '.*bytes in one array"):
        context.new((1 << 50,), TensorElementType.FLOAT)
    assert pool.bytes_in_use == before
