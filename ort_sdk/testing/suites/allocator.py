"""Suite: the allocator (behaviours A1 to A9)."""

from __future__ import annotations

import gc
import math
from typing import Any

import numpy as np
import pytest

from ort_sdk.api import (
    CPU_DEVICE,
    Allocator,
    Array,
    ExecutionProvider,
    HostArray,
    OrtMemoryInfo,
    SupportsBlocks,
    TensorElementType,
)
from ort_sdk.testing.collection import only_new_objects
from ort_sdk.testing.compare import assert_same_bytes

from .suite import ProviderSuite, sample

__all__ = ["AllocatorSuite"]

SHAPES = [(), (1,), (0,), (3, 0, 5), (7,), (3, 5, 7), (1025,), (2, 1, 3, 1, 2, 1, 2, 1)]
HOST_ALIGNMENT_BYTES = 64
ENORMOUS = (1 << 28, 1 << 28)
ROUNDS = 50


class AllocatorSuite(ProviderSuite):
    """Whether memory is what was asked for, private, and given back."""

    def test_it_says_which_memory_it_hands_out(self) -> None:
        """A1."""
        assert self.allocator().memory_info.device == self.device

    @pytest.mark.parametrize("shape", SHAPES, ids=str)
    def test_arrays_are_as_asked(self, shape: tuple[int, ...], element_type: TensorElementType) -> None:
        """A2."""
        array = self.allocator().allocate(shape, element_type)
        assert self.subject.execution_provider.describe(array) == (element_type, shape)

    @pytest.mark.parametrize("elements", [1, 3, 1025])
    def test_host_memory_is_aligned(self, elements: int) -> None:
        """A3."""
        if not self.device.is_cpu:
            pytest.skip(f"memory of {self.device} has no address on the host")
        held = [self.allocator().allocate((elements,), element_type) for element_type in sorted(self.stored_types)]
        assert [array.ctypes.data % HOST_ALIGNMENT_BYTES for array in held] == [0] * len(held)

    @pytest.mark.parametrize("shape", [(1,), (7,), (33, 31), (65537,)], ids=str)
    def test_arrays_in_use_share_no_memory(self, shape: tuple[int, ...], element_type: TensorElementType) -> None:
        """A4."""
        allocator = self.allocator()
        contents = [sample(shape, element_type, seed) for seed in range(4)]
        arrays = [allocator.allocate(shape, element_type) for _ in contents]
        for array, wanted in zip(arrays, contents, strict=True):
            self.fill(array, wanted)
        for array, wanted in zip(arrays, contents, strict=True):
            assert_same_bytes(self.read_back(array), wanted)

    @only_new_objects()
    def test_memory_given_back_is_used_again_and_no_other(self) -> None:
        """A5."""
        allocator, element_type = self.allocator(), min(self.stored_types)
        kept, wanted = allocator.allocate((64,), element_type), sample((64,), element_type)
        self.fill(kept, wanted)
        for seed in range(ROUNDS):
            array = allocator.allocate((64,), element_type)
            self.fill(array, sample((64,), element_type, seed + 1))
            allocator.release(array)
            del array
        gc.collect()
        assert_same_bytes(self.read_back(kept), wanted)

    def test_too_much_is_refused_and_less_still_works(self) -> None:
        """A6."""
        allocator, element_type = self.allocator(), max(self.stored_types, key=lambda member: member.bit_width)
        with pytest.raises(MemoryError) as raised:
            allocator.allocate(ENORMOUS, element_type)
        assert str(raised.value), f"the MemoryError for {math.prod(ENORMOUS)} elements has no text"
        array = allocator.allocate((8,), element_type)
        wanted = sample((8,), element_type)
        self.fill(array, wanted)
        assert_same_bytes(self.read_back(array), wanted)

    def test_views_of_a_block_are_as_asked_and_keep_it(self, element_type: TensorElementType) -> None:
        """A7."""
        allocator, contents = self.blocks(), [sample((33, 3), element_type, seed) for seed in range(3)]
        alignment = allocator.block_alignment_bytes
        step = -(-contents[0].nbytes // alignment) * alignment
        block = allocator.allocate_block(3 * step)
        views = [allocator.view(block, position * step, (33, 3), element_type) for position in range(3)]
        none = allocator.view(block, 0, (0, 3), element_type)
        del block
        gc.collect()
        assert self.subject.execution_provider.describe(none) == (element_type, (0, 3))
        with self.subject.execution_provider.run_scope():
            for view, wanted in zip(views, contents, strict=True):
                assert self.subject.execution_provider.describe(view) == (element_type, (33, 3))
                self.put(view, wanted)
            for view, wanted in zip(views, contents, strict=True):
                assert_same_bytes(self.to_host(view), wanted)

    def test_a_block_that_grows_keeps_its_views(self) -> None:
        """A8."""
        allocator, element_type = self.blocks(), min(self.stored_types)
        nbytes, wanted = 4 * allocator.block_alignment_bytes, sample((8,), element_type)
        block = allocator.allocate_block(nbytes)
        view = allocator.view(block, 0, (8,), element_type)
        with self.subject.execution_provider.run_scope():
            self.put(view, wanted)
            if allocator.grow_block(block, 2 * nbytes):
                self.put(allocator.view(block, nbytes, (8,), element_type), sample((8,), element_type, seed=1))
            assert_same_bytes(self.to_host(view), wanted)

    def test_views_that_overlap_share_memory_and_others_do_not(self) -> None:
        """A9."""
        own, element_type = self.subject.execution_provider, min(self.stored_types)
        if type(own).shares_memory is ExecutionProvider.shares_memory:
            pytest.skip(f"{self.subject.name} does not say which of its arrays share memory")
        allocator = self.blocks()
        step = allocator.block_alignment_bytes
        block = allocator.allocate_block(4 * step)
        whole, inside, behind = (
            allocator.view(block, offset, (nbytes // element_type.numpy_dtype.itemsize,), element_type)
            for offset, nbytes in ((0, 2 * step), (step, step), (2 * step, step))
        )
        again = allocator.view(block, 0, whole.shape, element_type)
        assert own.shares_memory(whole, again, entirely=True)
        assert not own.shares_memory(inside, behind, entirely=True)
        assert own.shares_memory(whole, inside)
        assert own.shares_memory(inside, whole)
        assert not own.shares_memory(whole, behind)
        assert not own.shares_memory(inside, self.allocator().allocate(inside.shape, element_type))

    def test_too_large_a_block_is_refused_and_a_smaller_one_works(self) -> None:
        """A6."""
        allocator = self.blocks()
        with pytest.raises(MemoryError) as raised:
            allocator.allocate_block(1 << 60)
        assert str(raised.value), f"the MemoryError for {1 << 60} bytes has no text"
        assert allocator.allocate_block(allocator.block_alignment_bytes) is not None

    def blocks(self) -> SupportsBlocks:
        """The allocator, if it makes blocks."""
        allocator: Any = self.allocator()
        if not isinstance(allocator, SupportsBlocks) or self.device.is_cpu:
            pytest.skip(f"the allocator of {self.subject.name} makes no blocks")
        return allocator

    def allocator(self) -> Allocator:
        """The provider's allocator of its device's memory."""
        memory_info = OrtMemoryInfo(self.device)
        allocator = self.subject.handle.create_allocator(self.subject.execution_provider, memory_info)
        if allocator is None:
            pytest.skip(f"{self.subject.name} has no allocator for {self.device}")
        return allocator

    def fill(self, array: Array, contents: HostArray) -> None:
        """Write an allocated array, by the data transfer where there is one."""
        with self.subject.execution_provider.run_scope():
            self.put(array, contents)

    def put(self, array: Array, contents: HostArray) -> None:
        """The same in a run that is under way."""
        transfer: Any = self.subject.data_transfer
        if transfer is None:
            np.copyto(array, contents)
            return
        if not hasattr(transfer, "copy_into"):
            pytest.skip(f"the data transfer of {self.subject.name} has no copy_into, so nothing can be put into the array")
        transfer.copy_into(contents, CPU_DEVICE, array, self.device)
