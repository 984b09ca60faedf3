"""Strings of which few are different, as those that say what each node of a tree does: each different one is made once."""

from __future__ import annotations

import numpy as np

from ort_sdk.api import HostArray

__all__ = ["FewStrings", "codes_of"]

_MOST = 32
"""Different strings that are few."""


class FewStrings:
    """The different strings that were found so far."""

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self._codes: dict[bytes, int] = {}

    def code(self, value: bytes) -> int:
        """Position of a string among the different ones; -1 if they are not few any more."""
        found = self._codes.setdefault(value, len(self.values))
        if found == len(self.values):
            if found == _MOST:
                del self._codes[value]
                return -1
            self.values.append(value)
        return found


def codes_of(content: HostArray, starts: HostArray, lengths: HostArray, known: FewStrings) -> HostArray | None:
    """Which of few strings each of many is.

    Args:
        content: uint8; all bytes.
        starts: position of each string's first byte.
        lengths: bytes of each, which are all in ``content``.
        known: different ones found before; new ones are added.

    Returns:
        A code for each string, uint8; None if too many are different.
    """
    codes = np.zeros(starts.size, np.uint8)
    counts = np.bincount(lengths)
    for length in np.flatnonzero(counts).tolist():
        at = np.flatnonzero(lengths == length) if counts[length] < starts.size else None
        own = _codes_of_length(content, starts if at is None else starts[at], length, known)
        if own is None:
            return None
        codes[slice(None) if at is None else at] = own
    return codes


def _codes_of_length(content: HostArray, starts: HostArray, length: int, known: FewStrings) -> HostArray | None:
    """The same for strings of one length."""
    if not length:
        code = known.code(b"")
        return None if code < 0 else np.full(starts.size, code, np.uint8)
    codes = np.zeros(starts.size, np.uint8)
    # Zeros at its end do not count in a comparison of this type, but equal lengths leave no doubt.
    strings = np.ndarray((content.size - length + 1,), f"S{length}", content, strides=(1,))[starts]
    left = np.arange(starts.size)
    while left.size:
        first = int(starts[left[0]])
        code = known.code(content[first : first + length].tobytes())
        if code < 0:
            return None
        is_same = strings == strings[0]
        codes[left[is_same]] = code
        strings, left = strings[~is_same], left[~is_same]
    return codes
