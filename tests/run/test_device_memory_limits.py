"""What a session holds on a device is counted and limited, and a session that ran out of memory can be used on."""

import logging

import numpy as np
import pytest

from ort_sdk.api import InvalidArgument, MemoryAccount, MemoryUse, OrtDevice, OutOfMemory, memory_limit
from ort_sdk.testing.memory_meter import MemoryMeter
from ort_sdk.testing.null_provider import NULL_DEVICE, NULL_PROVIDER, NullProvider
from ort_sdk.testing.strict.provider import STRICT_PROVIDER, StrictProvider
from tests.run.device_chains import chain_model, registered, run_on_device, session_on

WIDTH = 1024
BYTES = 4 * WIDTH
CHAIN = chain_model(["Neg"] * 10, [WIDTH])
FEEDS = {"x": np.ones(WIDTH, np.float32)}


@pytest.fixture
def meter():
    return MemoryMeter("null:0")


@pytest.fixture
def null(meter):
    with registered(NullProvider(meter), "null") as provider:
        yield provider


@pytest.mark.usefixtures("null")
def test_the_report_says_what_is_held_and_the_most_there_was(meter):
    session = session_on(chain_model(["Neg"] * 10, [WIDTH], weight=True), NULL_PROVIDER)
    (usage,) = session.memory_report()
    assert (usage.provider, usage.device, usage.limit_bytes) == (NULL_PROVIDER, NULL_DEVICE, None)
    assert usage.held_bytes[MemoryUse.WEIGHTS] == usage.total_bytes == meter.nbytes == BYTES
    for _ in range(3):
        run_on_device(session, FEEDS["x"])
    (usage,) = session.memory_report()
    assert usage.held_bytes == {
        MemoryUse.WEIGHTS: BYTES,
        MemoryUse.ARENA: 2 * BYTES,
        MemoryUse.VALUES: 0,
        MemoryUse.KERNELS: 0,
    }
    assert usage.total_bytes == meter.nbytes
    meter.reset_peaks()
    run_on_device(session, FEEDS["x"])
    assert session.memory_report()[0].peak_bytes == meter.peak_bytes == 5 * BYTES
    session.close()
    assert session.memory_report() == ()


@pytest.mark.usefixtures("null")
def test_weights_are_counted_in_each_session_that_shares_them(meter):
    model = chain_model(["Neg"] * 2, [WIDTH], weight=True)
    sessions = [session_on(model, NULL_PROVIDER) for _ in range(2)]
    assert [session.memory_report()[0].total_bytes for session in sessions] == [BYTES, BYTES]
    assert meter.nbytes in (BYTES, 2 * BYTES)


@pytest.mark.usefixtures("null")
def test_weights_beyond_the_limit_are_refused_with_sizes():
    model = chain_model(["Neg"] * 2, [WIDTH], weight=True)
    with pytest.raises(OutOfMemory, match=rf"initializer of FLOAT\[{WIDTH}\] needs {BYTES} bytes on null:0.* 0 of 100 bytes"):
        session_on(model, NULL_PROVIDER, {"gpu_mem_limit": 100})
    assert session_on(model, NULL_PROVIDER, {"gpu_mem_limit": str(BYTES)}).run(None, FEEDS)


@pytest.mark.usefixtures("null")
@pytest.mark.parametrize("limit", ["-1", "0", "1e9", "2 GB", "²"])
def test_a_limit_that_is_no_number_of_bytes_is_refused(limit):
    with pytest.raises(InvalidArgument, match=r"gpu_mem_limit must be a number of bytes, at least 1"):
        session_on(CHAIN, NULL_PROVIDER, {"gpu_mem_limit": limit})


@pytest.mark.usefixtures("null")
def test_a_program_whose_arena_is_beyond_the_limit_runs_without_and_says_so(caplog):
    session = session_on(CHAIN, NULL_PROVIDER, {"gpu_mem_limit": 2 * BYTES - 1})
    with caplog.at_level(logging.WARNING, logger="ort_sdk.run"):
        for _ in range(4):
            assert session.run(None, FEEDS)[0].shape == (WIDTH,)
    (row,) = session.program_report()
    assert (row.bound_count, row.device_bytes) == (0, 0)
    assert session.memory_report()[0].total_bytes == 0
    (record,) = caplog.records
    text = record.getMessage()
    assert f"{2 * BYTES} bytes" in text
    assert f"{BYTES} bytes for FLOAT[{WIDTH}] of Neg node 'node v0'" in text
    assert f"0 of {2 * BYTES - 1} bytes" in text
    assert "gpu_mem_limit" in text


@pytest.mark.usefixtures("null")
def test_values_beyond_the_limit_make_programs_go(meter):
    session = session_on(CHAIN, NULL_PROVIDER, {"gpu_mem_limit": 4 * BYTES - 1})
    for _ in range(2):
        run_on_device(session, FEEDS["x"])
    assert meter.nbytes == 2 * BYTES
    run_on_device(session, FEEDS["x"])
    assert (session.program_report(), meter.nbytes) == ((), 0)
    assert session.memory_report()[0].peak_bytes == 2 * BYTES


@pytest.mark.usefixtures("null")
def test_programs_for_values_of_the_host_go_for_those_on_the_device(meter):
    session = session_on(CHAIN, NULL_PROVIDER, {"gpu_mem_limit": 4 * BYTES})
    for _ in range(3):
        session.run(None, FEEDS)
    assert meter.nbytes == 2 * BYTES
    for _ in range(9):
        assert run_on_device(session, FEEDS["x"]) == (WIDTH,)
    (row,) = session.program_report()
    assert (row.bound_count, row.device_bytes, meter.nbytes) == (10, 2 * BYTES, 2 * BYTES)


@pytest.mark.usefixtures("null")
def test_an_error_names_node_and_sizes_and_leaves_the_session_usable(meter):
    session = session_on(CHAIN, NULL_PROVIDER)
    meter.capacity_bytes = BYTES
    for _ in range(3):
        with pytest.raises(OutOfMemory) as raised:
            session.run(None, FEEDS)
        text = str(raised.value)
        assert "running Neg node. Name:'node v0'" in text
        assert f"float32[{WIDTH}]" in text
        assert f"{BYTES} bytes asked, {BYTES} of {BYTES} bytes are in use" in text
        assert meter.nbytes == 0
    meter.capacity_bytes = None
    for _ in range(4):
        session.run(None, FEEDS)
    assert session.program_report()[0].bound_count == 12


@pytest.mark.usefixtures("null")
def test_a_replay_that_runs_out_gives_up_programs_and_tries_once_more(meter):
    session = session_on(CHAIN, NULL_PROVIDER)
    meter.capacity_bytes = 4 * BYTES
    for _ in range(3):
        run_on_device(session, FEEDS["x"])
    others = meter.hold(BYTES)
    assert run_on_device(session, FEEDS["x"]) == (WIDTH,)
    assert (session.program_report(), meter.nbytes) == ((), BYTES)
    more = meter.hold(BYTES)
    with pytest.raises(OutOfMemory, match=r"Neg node. Name:'node v1'"):
        run_on_device(session, FEEDS["x"])
    del others, more
    for _ in range(9):
        run_on_device(session, FEEDS["x"])
    assert session.program_report()[0].bound_count == 10
    assert meter.nbytes == 2 * BYTES


def test_programs_go_for_one_that_needs_their_memory():
    """What the new block takes fits, but not with the block there was."""
    small, large = 1000, 8000
    capacity = 4 * 2 * large + 4096
    model = chain_model(["Neg"] * 4, ["n"])
    with registered(StrictProvider(capacity_bytes=capacity), "strict"):
        session = session_on(model, STRICT_PROVIDER)
        for count in (small, large):
            for seed in range(3):
                x = np.full(count, seed, np.float32)
                np.testing.assert_array_equal(session.run(None, {"x": x})[0], x)
        (row,) = session.program_report()
        assert row.signature[0][0] == (large,)
        assert (row.bound_count, row.device_bytes) == (6, 2 * 4 * large)
        for seed in range(9):
            x = np.full(small, seed, np.float32)
            np.testing.assert_array_equal(session.run(None, {"x": x})[0], x)
        assert {row.device_bytes for row in session.program_report()} == {2 * 4 * large}


def test_the_limit_holds_for_what_kernels_count_step_by_step(meter):
    """Of a chain two values live at a time."""
    with registered(NullProvider(meter, accounts_kernels=True), "null"):
        enough = session_on(CHAIN, NULL_PROVIDER, {"gpu_mem_limit": 2 * BYTES}, disable_programs="1")
        for _ in range(3):
            enough.run(None, FEEDS)
        (usage,) = enough.memory_report()
        assert (usage.peak_bytes, usage.total_bytes) == (2 * BYTES, 0)
        session = session_on(CHAIN, NULL_PROVIDER, {"gpu_mem_limit": 2 * BYTES - 1})
        for _ in range(3):
            with pytest.raises(OutOfMemory) as raised:
                session.run(None, FEEDS)
            text = str(raised.value)
            assert "running Neg node. Name:'node v1'" in text
            assert f"an output of FLOAT[{WIDTH}] needs {BYTES} bytes on null:0" in text
            assert f"holds {BYTES} of {2 * BYTES - 1} bytes (kernels {BYTES})" in text
            assert session.memory_report()[0].total_bytes == meter.nbytes == 0


def test_an_account_counts_what_is_held_and_the_most_there_was():
    account = MemoryAccount(OrtDevice("cuda", 1), 100)
    account.take(MemoryUse.WEIGHTS, 40, "a weight")
    account.take(MemoryUse.KERNELS, 60, "an output")
    with pytest.raises(OutOfMemory, match=r"one more needs 1 bytes on cuda:1.*100 of 100 bytes \(weights 40, kernels 60\)"):
        account.take(MemoryUse.VALUES, 1, "one more")
    account.give_back(MemoryUse.KERNELS, 60)
    account.note(50)
    account.take(MemoryUse.VALUES, 50, "a feed")
    usage = account.usage("P")
    assert (usage.total_bytes, usage.peak_bytes, usage.limit_bytes) == (90, 100, 100)
    assert usage.held_bytes[MemoryUse.KERNELS] == 0


def test_what_is_noted_is_in_the_peak_alone():
    account = MemoryAccount(OrtDevice("cuda"))
    account.take(MemoryUse.ARENA, 70, "an arena")
    account.note(20)
    account.give_back(MemoryUse.ARENA, 60)
    account.note(25)
    usage = account.usage("P")
    assert (usage.total_bytes, usage.peak_bytes) == (10, 90)
    held = account.hold(MemoryUse.KERNELS, 100, "an output")
    assert account.usage("P").total_bytes == account.usage("P").peak_bytes == 110
    del held
    assert account.usage("P").total_bytes == 10


def test_limits_are_read_from_provider_options():
    assert memory_limit({}) is None
    assert memory_limit({"gpu_mem_limit": ""}) is None
    assert memory_limit({"gpu_mem_limit": "18446744073709551615"}) == (1 << 64) - 1
