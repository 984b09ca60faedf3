"""Which form of a computation is fastest on a device: compared by time, and kept for later processes.

Plans choose forms by what is known of a class of devices. On a certain device another one may be faster: larger tiles, rows that
are packed, sums in more parts. Forms give the same up to rounding, so that nothing but time depends on the choice.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping

from ort_sdk.api import DeviceReset, OrtSdkError
from ort_sdk.version import __version__

from .driver_store import DriverStore
from .forms import DeviceForm

__all__ = ["Tuning"]

_logger = logging.getLogger("ort_sdk.device")
_KIND = "tuning"
ROUNDS = 3
"""How often each form is timed; the least time counts."""
ROUND_SECONDS = 0.002
"""What a round takes at least, if the computation is short: it is repeated in it."""
MOST_REPETITIONS = 50
CLEARLY_FASTER = 0.95
"""Part of the preferred form's time that another one may take: what is about as fast is no reason."""

Key = tuple[str | int, ...]
"""What is computed."""


class Tuning:
    """Choices for one device in one form. Thread-safe.

    Args:
        store: keeps choices, by device and driver.
        form: in which kernels are written for the device.
        times: whether forms are compared where no choice is known; else only those of earlier processes count.
    """

    def __init__(self, store: DriverStore, form: DeviceForm, *, times: bool) -> None:
        self.times = times
        self._store, self._own = store, (f"{__version__} {form.text}", form.dialect.prelude)
        self._chosen: dict[Key, str | None] = {}
        self._lock = threading.RLock()

    def chosen(self, key: Key, forms: Collection[str]) -> str | None:
        """The form that was found to be fastest; None if none is known, or it is not one of these."""
        with self._lock:
            return self._known(key, forms)

    def compared(self, key: Key, forms: Mapping[str, Callable[[], None]], wait: Callable[[], None]) -> str:
        """The fastest form, which is kept.

        Args:
            key: what is computed.
            forms: name → queues the computation in this form; the first one is that which must work.
            wait: waits for what was queued.

        Raises:
            OrtSdkError: the first form fails, or the device is lost.
        """
        with self._lock:
            # another thread may have been here meanwhile
            known = self._known(key, forms)
            if known is not None:
                return known
            seconds = _seconds(key, forms, wait)
            preferred, fastest = next(iter(forms)), min(seconds, key=lambda name: seconds[name])
            if seconds[fastest] > seconds[preferred] * CLEARLY_FASTER:
                fastest = preferred
            self._chosen[key] = fastest
            found = {"form": fastest, "seconds": seconds}
            self._store.write(json.dumps(found).encode(), _KIND, *self._own, repr(key))
            return fastest

    def _known(self, key: Key, forms: Collection[str]) -> str | None:
        if key not in self._chosen:
            self._chosen[key] = self._read(key)
        name = self._chosen[key]
        return name if name in forms else None

    def _read(self, key: Key) -> str | None:
        content = self._store.read(_KIND, *self._own, repr(key))
        if content is None:
            return None
        try:
            name = json.loads(content)["form"]
        except (ValueError, TypeError, KeyError):
            name = None
        if not isinstance(name, str):
            _logger.warning("the form kept for %s in '%s' cannot be read: it is as if none were kept", key, self._store.folder)
            return None
        return name


def _seconds(key: Key, forms: Mapping[str, Callable[[], None]], wait: Callable[[], None]) -> dict[str, float]:
    """Least time of each form that works, in turns, so that what else the machine does concerns all of them."""
    repetitions: dict[str, int] = {}
    for name, queue in forms.items():
        try:
            _timed(queue, wait, 1)  # it may have to be compiled
            once = _timed(queue, wait, 1)
        except DeviceReset:
            raise
        except OrtSdkError as error:
            # a driver may have no room for a form, or not take it
            if not repetitions:
                raise
            _logger.debug("comparing forms of %s: '%s' fails: %s", key, name, error)
        else:
            repetitions[name] = max(1, min(MOST_REPETITIONS, int(ROUND_SECONDS / max(once, 1e-9))))
    rounds = [{name: _timed(forms[name], wait, count) for name, count in repetitions.items()} for _ in range(ROUNDS)]
    return {name: min(each[name] for each in rounds) for name in repetitions}


def _timed(queue: Callable[[], None], wait: Callable[[], None], repetitions: int) -> float:
    start = time.perf_counter()
    for _ in range(repetitions):
        queue()
    wait()
    return (time.perf_counter() - start) / repetitions
