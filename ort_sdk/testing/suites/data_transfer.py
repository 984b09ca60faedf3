"""Suite: the data transfer (behaviours D1 to D14)."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from ort_sdk.api import CPU_DEVICE, Array, DataTransfer, HostArray, OrtDevice, SupportsReadInto, TensorElementType
from ort_sdk.run.program.slots import ValueSlot
from ort_sdk.testing.collection import only_new_objects
from ort_sdk.testing.compare import assert_same_bytes

from .suite import ProviderSuite, sample

__all__ = ["DataTransferSuite"]

SHAPES = [(), (1,), (0,), (2, 0, 3), (3,), (7, 5), (1025,), (2, 3, 5, 7)]
LARGE = (1 << 20,)
"""Enough elements for a copy to take longer than the call that starts it."""


class DataTransferSuite(ProviderSuite):
    """Whether what arrives is what was sent, on memory of its own, when it is said to be there."""

    def test_it_says_where_it_reaches(self) -> None:
        """D1."""
        transfer = self.transfer()
        assert transfer.can_copy(CPU_DEVICE, self.device)
        assert transfer.can_copy(self.device, CPU_DEVICE)
        elsewhere = OrtDevice("nowhere")
        assert not transfer.can_copy(CPU_DEVICE, elsewhere)
        assert not transfer.can_copy(elsewhere, self.device)

    @pytest.mark.parametrize("shape", SHAPES, ids=str)
    def test_round_trip(self, shape: tuple[int, ...], element_type: TensorElementType) -> None:
        """D2."""
        self.transfer()
        wanted = sample(shape, element_type)
        array = self.to_device(wanted)
        assert self.subject.execution_provider.describe(array) == (element_type, shape)
        assert_identical(self.to_host(array), wanted)
        assert_identical(self.read_back(array), wanted)

    @pytest.mark.parametrize("layout", ["transposed", "strided", "reversed", "read-only", "fortran"])
    def test_any_layout_of_the_host_array_arrives(self, layout: str) -> None:
        """D3."""
        self.transfer()
        wanted = host_array_of(layout, sample((6, 8), self.some_type()))
        assert_identical(self.read_back(self.to_device(wanted)), wanted)

    def test_the_source_may_change_after_the_run(self) -> None:
        """D4."""
        self.transfer()
        source = sample((257,), self.some_type())
        wanted = source.copy()
        array = self.to_device(source)
        source[...] = sample((257,), self.some_type(), seed=1)
        assert_identical(self.read_back(array), wanted)

    @pytest.mark.parametrize("into", [False, True], ids=["copy", "copy_into"])
    def test_the_source_may_change_when_a_copy_returns(self, into: bool) -> None:
        """D14."""
        transfer = self.transfer()
        if not self.subject.is_asynchronous or getattr(transfer, "reads_late", False):
            pytest.skip(f"the host waits for what {self.subject.name} reads")
        source, other = sample(LARGE, self.some_type()), sample(LARGE, self.some_type(), seed=1)
        wanted, target = source.copy(), self.to_device(np.zeros_like(source)) if into else None
        with self.subject.execution_provider.run_scope():
            if into:
                self.filler().copy_into(source, CPU_DEVICE, target, self.device)
            else:
                target = transfer.copy(source, CPU_DEVICE, self.device)
            source[...] = other
        assert_identical(self.read_back(target), wanted)

    def test_results_on_the_host_belong_to_the_caller(self) -> None:
        """D4."""
        self.transfer()
        wanted = sample((257,), self.some_type())
        array = self.to_device(wanted)
        first = self.to_host(array)
        first[...] = sample((257,), self.some_type(), seed=1)
        assert_identical(self.to_host(array), wanted)

    def test_two_copies_of_one_array_are_two(self) -> None:
        """D4."""
        transfer = self.filler()
        wanted, other = sample((33,), self.some_type()), sample((33,), self.some_type(), seed=1)
        first, second = self.to_device(wanted), self.to_device(wanted)
        with self.subject.execution_provider.run_scope():
            transfer.copy_into(other, CPU_DEVICE, first, self.device)
        assert_identical(self.read_back(second), wanted)
        assert_identical(self.read_back(first), other)

    def test_contents_are_there_when_a_copy_to_the_host_returns(self) -> None:
        """D5."""
        transfer = self.transfer()
        wanted = sample(LARGE, self.some_type())
        with self.subject.execution_provider.run_scope():
            array = transfer.copy(wanted, CPU_DEVICE, self.device)
            arrived = transfer.copy(array, self.device, CPU_DEVICE).tobytes()
        assert_same_bytes(arrived, wanted)

    def test_copies_happen_in_order(self) -> None:
        """D6."""
        filler = self.filler()
        contents = [sample(LARGE, self.some_type(), seed) for seed in range(3)]
        with self.subject.execution_provider.run_scope():
            array = self.transfer().copy(contents[0], CPU_DEVICE, self.device)
            for later in contents[1:]:
                filler.copy_into(later, CPU_DEVICE, array, self.device)
            arrived = self.transfer().copy(array, self.device, CPU_DEVICE).tobytes()
        assert_same_bytes(arrived, contents[-1])

    @only_new_objects()
    def test_it_keeps_its_arguments_alive(self) -> None:
        """D7."""
        transfer, element_type = self.transfer(), self.some_type()
        with self.subject.execution_provider.run_scope():
            arrays = [transfer.copy(sample((4099,), element_type, seed), CPU_DEVICE, self.device) for seed in range(8)]
            gc.collect()
            clutter = [np.full((4099,), 0xFF, np.uint8) for _ in range(64)]
        for seed, array in enumerate(arrays):
            assert_identical(self.read_back(array), sample((4099,), element_type, seed))
        del clutter

    def test_it_fills_arrays_of_the_host(self) -> None:
        """D8."""
        filler = self.filler()
        wanted = sample((5, 7), self.some_type())
        destination = np.empty_like(wanted)
        filler.copy_into(self.to_device(wanted), self.device, destination, CPU_DEVICE)
        assert_identical(destination, wanted)

    def test_copies_within_the_device_are_independent(self) -> None:
        """D9."""
        transfer, filler = self.transfer(), self.filler()
        if not transfer.can_copy(self.device, self.device):
            pytest.skip(f"the data transfer of {self.subject.name} does not copy from {self.device} to itself")
        wanted = sample((33,), self.some_type())
        array = self.to_device(wanted)
        with self.subject.execution_provider.run_scope():
            duplicate: Array = transfer.copy(array, self.device, self.device)
            filler.copy_into(sample((33,), self.some_type(), seed=1), CPU_DEVICE, array, self.device)
        assert_identical(self.read_back(duplicate), wanted)

    def test_it_fills_arrays_piece_by_piece(self) -> None:
        """D10."""
        transfer: Any = self.transfer()
        if not hasattr(transfer, "stream_into"):
            pytest.skip(f"the data transfer of {self.subject.name} has no stream_into")
        wanted = sample((33, 5), self.some_type())
        array = self.to_device(np.zeros_like(wanted))
        with self.subject.execution_provider.run_scope():
            transfer.stream_into(reused_pieces(wanted), array, self.device)
        assert_identical(self.read_back(array), wanted)

    def test_it_copies_several_arrays_to_the_host(self) -> None:
        """D11."""
        transfer: Any = self.transfer()
        if not hasattr(transfer, "copy_all"):
            pytest.skip(f"the data transfer of {self.subject.name} has no copy_all")
        wanted = [sample(shape, self.some_type(), seed) for seed, shape in enumerate([LARGE, (), (2, 0), (5, 7)])]
        given = sample((5, 7), self.some_type(), seed=9)
        with self.subject.execution_provider.run_scope():
            arrays = [transfer.copy(array, CPU_DEVICE, self.device) for array in wanted]
            copied = transfer.copy_all(arrays, self.device, [None, None, None, given])
            arrived = [array.copy() for array in copied]
        assert copied[-1] is given
        for array, content in zip(arrived, wanted, strict=True):
            assert_identical(array, content)
        assert list(transfer.copy_all([], self.device, [])) == []

    def test_it_fills_arrays_from_others_of_the_device(self) -> None:
        """D12."""
        transfer, filler = self.transfer(), self.filler()
        if not transfer.can_copy(self.device, self.device):
            pytest.skip(f"the data transfer of {self.subject.name} does not copy from {self.device} to itself")
        wanted = sample((33,), self.some_type())
        source, destination = self.to_device(wanted), self.to_device(np.zeros_like(wanted))
        with self.subject.execution_provider.run_scope():
            filler.copy_into(source, self.device, destination, self.device)
            filler.copy_into(np.zeros_like(wanted), CPU_DEVICE, source, self.device)
        assert_identical(self.read_back(destination), wanted)

    @pytest.mark.parametrize("is_fixed", [True, False], ids=["fixed", "moving"])
    def test_its_bound_copies_move_what_the_slots_hold(self, is_fixed: bool) -> None:
        """D13."""
        transfer, element_type = self.transfer(), self.some_type()
        bind_copy: Any = getattr(transfer, "bind_copy", None)
        if bind_copy is None:
            pytest.skip(f"the data transfer of {self.subject.name} has no bind_copy")
        wanted = [sample((5, 7), element_type, seed) for seed in range(3)]
        given, middle, taken = np.empty_like(wanted[0]), self.to_device(np.zeros_like(wanted[0])), np.empty_like(wanted[0])
        slots = [
            ValueSlot(array if is_fixed else None, is_fixed=is_fixed, shape=(5, 7), element_type=element_type)
            for array in (given, middle, taken)
        ]
        upload, download = bind_copy(slots[0], slots[1]), bind_copy(slots[1], slots[2])
        for contents in wanted:
            if not is_fixed:
                given, taken = np.empty_like(contents), np.empty_like(contents)
                slots[0].array, slots[1].array, slots[2].array = given, self.to_device(np.zeros_like(contents)), taken
            given[...] = contents
            with self.subject.execution_provider.run_scope():
                upload()
                download()
                arrived = taken.copy()
            assert_identical(arrived, contents)

    def transfer(self) -> DataTransfer:
        """The provider's data transfer."""
        if self.subject.data_transfer is None:
            pytest.skip(f"arrays of {self.subject.name} are NumPy's: it has no data transfer")
        return self.subject.data_transfer

    def filler(self) -> SupportsReadInto:
        """The data transfer, if it can fill arrays."""
        transfer: Any = self.transfer()
        if not hasattr(transfer, "copy_into"):
            pytest.skip(f"the data transfer of {self.subject.name} has no copy_into")
        filler: SupportsReadInto = transfer
        return filler

    def some_type(self) -> TensorElementType:
        """One element type the device stores."""
        return min(self.stored_types)


def reused_pieces(array: HostArray) -> Iterator[HostArray]:
    """The bytes of an array, 7 at a time, in memory that the next piece overwrites."""
    content = array.reshape(-1).view(np.uint8)
    memory = np.empty(7, np.uint8)
    for start in range(0, len(content), len(memory)):
        piece = content[start : start + len(memory)]
        memory[: len(piece)] = piece
        yield memory[: len(piece)]


def assert_identical(actual: HostArray, expected: HostArray) -> None:
    """Assert that two host arrays agree in type, shape and every bit."""
    assert isinstance(actual, np.ndarray)
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
    assert_same_bytes(actual, expected)


def host_array_of(layout: str, array: HostArray) -> HostArray:
    """The array's elements in another layout of host memory."""
    if layout == "read-only":
        array.flags.writeable = False
        return array
    views = {"transposed": array.T, "strided": array[::2, 1::3], "reversed": array[::-1], "fortran": np.asfortranarray(array)}
    return views[layout]
