"""Memory of the CPU provider."""

import gc
import weakref

import numpy as np
from ort_sdk_cpu.allocator import LARGEST_SLAB_BYTES, SMALLEST_SLAB_BYTES, CpuAllocator, SlabAllocator

from ort_sdk.api import OrtMemoryInfo, TensorElementType


def test_arrays_are_aligned_and_of_the_shape_asked():
    allocator = CpuAllocator(OrtMemoryInfo())
    for shape in ((), (0,), (3, 5), (2, 0, 4)):
        array = allocator.allocate(shape, TensorElementType.FLOAT)
        assert array.shape == shape
        assert array.dtype == np.float32
        assert not array.size or array.ctypes.data % 64 == 0


def test_vectors_of_a_slab_are_aligned_and_apart():
    slabs = SlabAllocator()
    sizes = [1, 63, 64, 65, 0, SMALLEST_SLAB_BYTES, 3, 3 * LARGEST_SLAB_BYTES, 1000]
    vectors = [slabs.allocate_bytes(size) for size in sizes]
    for number, (vector, size) in enumerate(zip(vectors, sizes, strict=True)):
        assert vector.nbytes == size
        assert not size or vector.ctypes.data % 64 == 0
        vector[:] = number
    assert all(np.all(vector == number) for number, vector in enumerate(vectors))


def test_small_takers_share_a_block_and_blocks_grow_to_a_bound():
    slabs = SlabAllocator()
    blocks = {}
    for _ in range(2000):
        vector = slabs.allocate_bytes(50_000)
        root = vector.base
        blocks[id(root)] = root
    sizes = sorted(block.nbytes for block in blocks.values())
    assert sizes[0] <= SMALLEST_SLAB_BYTES + 64
    assert sizes[-1] <= LARGEST_SLAB_BYTES + 64
    assert len(sizes) < 30


def test_a_block_ends_with_its_last_vector():
    class Tracked(np.ndarray):
        pass

    slabs = SlabAllocator()
    vector = slabs.allocate_bytes(100).view(Tracked)
    reference = weakref.ref(vector)
    del slabs
    assert reference() is not None
    vector[:] = 1
    del vector
    gc.collect()
    assert reference() is None
