"""The status word: what kernels met in contents that they cannot take.

A kernel cannot raise. It reports a bit of the word with ``report(status, bits)``, goes on without touching what is not its own, and
the launcher raises when it next waits for the queue.
"""

from __future__ import annotations

from ort_sdk.api import InvalidArgument

__all__ = ["GATHER_INDEX", "SCATTER_INDEX", "report_error"]

GATHER_INDEX = 1
SCATTER_INDEX = 2

_TEXTS = {
    GATHER_INDEX: "an index of an operator that picks elements (Gather, GatherElements, GatherND or the like) is out of bounds",
    SCATTER_INDEX: "an index of an operator that puts elements (ScatterElements, ScatterND or the like) is out of bounds",
}


def report_error(bits: int, device: str) -> InvalidArgument:
    """The error for a status word that is not 0.

    Args:
        bits: the word.
        device: name of the device.
    """
    found = [text for bit, text in _TEXTS.items() if bits & bit]
    found += [f"report {bits & ~sum(_TEXTS):#x}"] if bits & ~sum(_TEXTS) else []
    allowed = "an index into an axis of a size must be within [-size, size - 1]"
    return InvalidArgument(f"kernels on {device} met contents that they cannot take: {'; '.join(found)}; {allowed}")
