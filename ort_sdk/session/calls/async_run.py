"""Runs in the background: ``run_async``'s threads, and their callbacks."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ort_sdk.api import OrtSdkError

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

__all__ = ["AsyncCallback", "AsyncRuns"]

logger = logging.getLogger("ort_sdk.session")

AsyncCallback = Callable[[list[Any], Any, str], None]
"""Gets (results, user_data, error text); no results and a text if the run failed."""


class AsyncRuns:
    """A session's pool of threads, made when the first run is submitted.

    Args:
        threads: how many runs go on at once; 0 for one per processor.
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads or os.cpu_count() or 1
        self._pool: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()

    def submit(self, run: Callable[[], list[Any]], callback: AsyncCallback, user_data: Any) -> None:
        """Run on a thread of the pool and hand the results to the callback."""
        with self._lock:
            if self._pool is None:
                from concurrent.futures import ThreadPoolExecutor

                self._pool = ThreadPoolExecutor(max_workers=self._threads, thread_name_prefix="ort_sdk-run")
            self._pool.submit(_run_and_call_back, run, callback, user_data)

    def close(self) -> None:
        """Start no more runs; those that were submitted finish."""
        with self._lock:
            if self._pool is not None:
                self._pool.shutdown(wait=False)
                self._pool = None


def _run_and_call_back(run: Callable[[], list[Any]], callback: AsyncCallback, user_data: Any) -> None:
    results: list[Any] = []
    text = ""
    try:
        results = run()
    except Exception as error:  # noqa: BLE001 - every failure is the callback's to hear
        text = error.text if isinstance(error, OrtSdkError) else f"{type(error).__name__}: {error}"
    try:
        callback(results, user_data, text)
    except Exception:
        logger.exception("the callback of run_async raised")
