"""Arenas of devices: one block that grows, or is replaced, and what allocators may do wrong."""

import pytest

from ort_sdk.api import EPFail, InvalidArgument, MemoryAccount, MemoryUse, OrtMemoryInfo, OutOfMemory, TensorElementType
from ort_sdk.memory import DeviceArena
from ort_sdk.testing.memory_meter import MemoryMeter
from ort_sdk.testing.null_provider import NULL_DEVICE, NullAllocator, NullDevice

FLOAT = TensorElementType.FLOAT


@pytest.fixture
def meter():
    return MemoryMeter("null:0")


@pytest.fixture
def account():
    return MemoryAccount(NULL_DEVICE)


def arena_of(meter, account, *, grows=False):
    return DeviceArena(NullAllocator(OrtMemoryInfo(NULL_DEVICE), NullDevice(meter), grows=grows), account, "P")


def held(account):
    return account.usage("P").held_bytes[MemoryUse.ARENA]


def test_a_block_serves_all_that_need_no_more(meter, account):
    arena = arena_of(meter, account)
    block = arena.reserve(1000)
    assert arena.reserve(10) is block
    assert (arena.nbytes, held(account), meter.nbytes, block.is_replaced) == (1000, 1000, 1000, False)


def test_a_larger_block_replaces_one_that_lasts_as_long_as_it_is_used(meter, account):
    arena = arena_of(meter, account)
    first = arena.reserve(1000)
    second = arena.reserve(1001)
    assert (first.is_replaced, second.is_replaced, second.nbytes, arena.nbytes) == (True, False, 1500, 1500)
    assert held(account) == meter.nbytes == 2500
    del first
    assert held(account) == meter.nbytes == 1500
    assert arena.reserve(9000).nbytes == 9000


def test_a_block_may_grow_where_it_is(meter, account):
    arena = arena_of(meter, account, grows=True)
    block = arena.reserve(1000)
    assert arena.reserve(5000) is block
    assert not block.is_replaced
    assert arena.nbytes == held(account) == meter.nbytes == 5000


@pytest.mark.parametrize("grows", [False, True])
@pytest.mark.parametrize("by", ["limit", "device"])
def test_what_does_not_fit_changes_nothing(meter, account, grows, by):
    arena = arena_of(meter, account, grows=grows)
    block = arena.reserve(1000)
    if by == "limit":
        account.limit_bytes = 2200
    else:
        meter.capacity_bytes = 2200
    with pytest.raises(OutOfMemory, match="9000"):
        arena.reserve(9000)
    assert (block.is_replaced, arena.nbytes, held(account), meter.nbytes) == (False, 1000, 1000, 1000)
    # What is asked for fits, though with room for growth it would not.
    assert arena.reserve(1200).nbytes == 1200


def test_a_dropped_block_is_gone_with_its_last_user(meter, account):
    arena = arena_of(meter, account)
    block = arena.reserve(100)
    arena.drop_block()
    arena.drop_block()
    assert (arena.nbytes, block.is_replaced, meter.nbytes) == (0, True, 256)
    del block
    assert (held(account), meter.nbytes) == (0, 0)
    assert arena.reserve(0).nbytes == 256


@pytest.mark.parametrize("alignment", [0, -256, None, 2.5, True])
def test_blocks_need_an_alignment(meter, account, alignment):
    allocator = NullAllocator(OrtMemoryInfo(NULL_DEVICE), NullDevice(meter))
    allocator.block_alignment_bytes = alignment
    with pytest.raises(EPFail, match=r"P: block_alignment_bytes of its allocator must be an int above 0"):
        DeviceArena(allocator, account, "P")


def test_what_an_allocator_raises_names_it(meter, account):
    arena = arena_of(meter, account)
    block = arena.reserve(512)
    with pytest.raises(InvalidArgument, match="no view of 1024 bytes") as raised:
        arena.view(block, 0, (256,), FLOAT)
    assert "while the allocator of P made a view of FLOAT[256]" in raised.value.__notes__[0]
    assert arena.view(block, 256, (8, 8), FLOAT).shape == (8, 8)
