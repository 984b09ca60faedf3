"""The device layer's provider over launchers without a device: what is waited for, and where errors are raised."""

import contextlib
import threading

import numpy as np
import pytest

from ort_sdk.api import Fail, InvalidArgument, OrtDevice, TensorElementType
from ort_sdk.device import CUDA, GPU_CLASS, DeviceContext, DeviceExecutionProvider, RunEvent, SupportsRuns
from ort_sdk.device.run_events import MOST_RUNS_AHEAD, UnreadRuns
from ort_sdk.device.status import GATHER_INDEX, SCATTER_INDEX
from tests.device.recording_launcher import RecordingLauncher

DEVICE = OrtDevice("recording", 0)


class WaitingLauncher(RecordingLauncher):
    """One that can only wait for all; its kernels may have reported."""

    def __init__(self):
        super().__init__(GPU_CLASS, CUDA)
        self.finished, self.reported = 0, False

    def finish(self):
        self.finished += 1
        reported, self.reported = self.reported, False
        if reported:
            raise InvalidArgument("an index is out of bounds")


class Event(RunEvent):
    """Happens when a test says so."""

    def __init__(self, bits=0, earlier=None):
        super().__init__("a device that is none", earlier)
        self.bits, self.happened, self.waits = bits, threading.Event(), 0

    def is_reached(self):
        return self.happened.is_set()

    def reached(self):
        self.waits += 1
        assert self.happened.wait(20)
        if self.bits is None:
            raise Fail("the device failed")
        return self.bits


class QueueingLauncher(WaitingLauncher):
    """One whose runs end before their work. ``bits`` is what kernels will have reported of the runs that are recorded next."""

    def __init__(self):
        super().__init__()
        self.events, self.followed, self.open_runs, self.bits = [], [], 0, 0

    @contextlib.contextmanager
    def run(self):
        self.open_runs += 1
        try:
            yield
        finally:
            self.open_runs -= 1

    def record_event(self):
        assert self.open_runs
        self.events.append(Event(self.bits))
        return self.events[-1]

    def order_after(self, event):
        self.followed.append(event)

    def stamp(self):
        return len(self.events)

    def seconds_between(self, start, end):
        return (end - start) * 0.5


def provider_of(launcher):
    return DeviceExecutionProvider("RecordingExecutionProvider", DEVICE, {}, DeviceContext(launcher))


def test_the_end_of_a_run_waits_where_the_launcher_knows_no_runs():
    launcher = WaitingLauncher()
    provider = provider_of(launcher)
    assert not isinstance(launcher, SupportsRuns)
    with provider.run_scope():
        event = provider.record_event()
        assert not launcher.finished
    assert launcher.finished == 1
    event.wait()
    launcher.reported = True
    with pytest.raises(InvalidArgument, match="out of bounds"), provider.run_scope():
        pass
    provider.synchronize()


def test_the_first_error_is_raised_where_the_launcher_knows_no_runs():
    launcher = WaitingLauncher()
    launcher.reported = True
    with pytest.raises(ZeroDivisionError), provider_of(launcher).run_scope():
        raise ZeroDivisionError
    assert launcher.finished == 1


def test_steps_are_timed_by_the_hosts_clock_where_the_launcher_has_none():
    launcher = WaitingLauncher()
    provider = provider_of(launcher)
    start, end = provider.stamp(), provider.stamp()
    assert launcher.finished == 2
    assert 0 <= provider.seconds_between(start, end) < 20


def test_runs_end_without_waiting():
    launcher = QueueingLauncher()
    provider = provider_of(launcher)
    with provider.run_scope():
        event = provider.record_event()
    assert not launcher.open_runs
    assert not launcher.finished
    assert not event.is_done
    assert all(not each.waits for each in launcher.events)
    other = Event()
    provider.order_after(other)
    assert launcher.followed == [other]
    assert provider.seconds_between(1, 3) == 1.0


def test_a_run_that_fails_is_waited_for():
    launcher = QueueingLauncher()
    with pytest.raises(ZeroDivisionError), provider_of(launcher).run_scope():
        raise ZeroDivisionError
    assert launcher.finished == 1
    assert not launcher.open_runs


def test_synchronize_raises_the_first_error_that_nobody_was_told():
    launcher = QueueingLauncher()
    provider = provider_of(launcher)
    for launcher.bits in (0, GATHER_INDEX, SCATTER_INDEX, 0, GATHER_INDEX):
        with provider.run_scope():
            pass
    for event in launcher.events:
        event.happened.set()
    with pytest.raises(InvalidArgument, match="picks elements"):
        launcher.events[1].wait()
    with pytest.raises(InvalidArgument, match="puts elements"):
        provider.synchronize()
    assert launcher.finished == 1
    provider.synchronize()
    with pytest.raises(InvalidArgument, match="picks elements"):
        launcher.events[4].wait()


def test_runs_that_went_well_are_forgotten():
    launcher = QueueingLauncher()
    provider = provider_of(launcher)
    kept = []
    for number in range(100):
        launcher.bits = GATHER_INDEX if number == 3 else 0
        with provider.run_scope():
            pass
        kept.append(len(provider._unread._events))
        launcher.events[-1].happened.set()
    assert max(kept) <= 2
    with pytest.raises(InvalidArgument, match="picks elements"):
        provider.synchronize()


def test_runs_do_not_get_ahead_without_end():
    launcher = QueueingLauncher()
    provider = provider_of(launcher)

    def run(count):
        for _ in range(count):
            with provider.run_scope():
                pass

    run(MOST_RUNS_AHEAD)
    assert not any(event.waits for event in launcher.events)
    thread = threading.Thread(target=run, args=(1,))
    thread.start()
    thread.join(0.2)
    assert thread.is_alive()
    launcher.events[0].happened.set()
    thread.join()
    assert [event.waits for event in launcher.events[:2]] == [1, 0]


def test_an_event_is_waited_for_once_and_raises_each_time():
    event = Event(GATHER_INDEX)
    event.happened.set()
    for _ in range(3):
        with pytest.raises(InvalidArgument, match=r"kernels on a device that is none: .*picks elements"):
            event.wait()
    assert event.waits == 1
    assert event.was_raised


def test_an_event_raises_what_its_run_reported_before():
    first = Event(SCATTER_INDEX)
    second = Event(GATHER_INDEX, first)
    for event in (first, second):
        event.happened.set()
    with pytest.raises(InvalidArgument, match="puts elements"):
        second.wait()


def test_a_device_that_fails_raises_at_each_wait():
    event = Event(None)
    event.happened.set()
    unread = UnreadRuns()
    unread.add(event)
    unread.add(Event())
    for _ in range(2):
        with pytest.raises(Fail, match="the device failed"):
            event.wait()


def test_many_threads_wait_for_one_event():
    event, told = Event(GATHER_INDEX), []

    def wait():
        try:
            event.wait()
        except InvalidArgument:
            told.append(True)

    threads = [threading.Thread(target=wait) for _ in range(6)]
    for thread in threads:
        thread.start()
    event.happened.set()
    for thread in threads:
        thread.join()
    assert len(told) == 6
    assert event.waits == 1


def test_a_copy_to_the_host_counts_as_read():
    launcher = QueueingLauncher()
    provider = provider_of(launcher)
    event = Event()
    event.happened.set()
    event.wait()
    launcher.record_event = lambda: event
    with provider.run_scope():
        np.testing.assert_array_equal(provider.context.download(provider.context.new((2,), TensorElementType.FLOAT)), np.zeros(2))
    assert not provider._unread._events
