"""The cyclic garbage collector in tests that ask whether something is gone."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

__all__ = ["only_new_objects"]


@contextlib.contextmanager
def only_new_objects() -> Iterator[None]:
    """Have ``gc.collect`` look through what is made inside only: all that there is, where there are many tests, takes it seconds.

    Decorates a test, too. Not for use in several threads.
    """
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
