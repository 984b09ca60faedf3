"""Outputs in the memory of inputs, where the caller of a run gave the same memory for both (ONNX Runtime's MayInplace)."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator

from .kernel import Array

__all__ = ["is_overwriting", "may_overwrite", "overwriting"]


class _Current(threading.local):
    arrays: tuple[Array, ...] = ()
    """Kept, so that no other array gets one of the identities."""
    identities: frozenset[int] = frozenset()


_current = _Current()


def may_overwrite(array: Array | None) -> bool:
    """Whether a kernel that declares ``in_place`` may write its output into this input's memory in the run of this thread."""
    return array is not None and id(array) in _current.identities


def is_overwriting() -> bool:
    """Whether kernels may overwrite any input in the run of this thread: it cannot be begun again then."""
    return bool(_current.identities)


@contextlib.contextmanager
def overwriting(arrays: Iterable[Array]) -> Iterator[None]:
    """Let kernels overwrite inputs, for the host: nothing else reads them, and the caller wants the outputs there."""
    before = _current.arrays, _current.identities
    _current.arrays, _current.identities = tuple(arrays), frozenset(map(id, arrays))
    try:
        yield
    finally:
        _current.arrays, _current.identities = before
