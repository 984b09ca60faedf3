"""The status word: what kernels found in contents that they cannot take, told when a run ends.

A kernel cannot raise. It reports a bit of the word with ``report(status, bits)``, goes on without touching what is not its own,
and the launcher raises when it next waits for the queue.
"""

from __future__ import annotations

__all__ = ["GATHER_INDEX", "SCATTER_INDEX", "SEQUENCE_LENGTH", "fault_text"]

GATHER_INDEX = 1
SCATTER_INDEX = 2
SEQUENCE_LENGTH = 4

_RANGE = "an index into an axis of a size must be within [-size, size - 1]"
_TEXTS = {
    GATHER_INDEX: f"an index of an operator that picks elements (Gather, GatherElements, GatherND …) is out of bounds: {_RANGE}",
    SCATTER_INDEX: f"an index of an operator that puts elements (ScatterElements, ScatterND …) is out of bounds: {_RANGE}",
    SEQUENCE_LENGTH: "seqlens_k of a GroupQueryAttention contradicts its other inputs: each must be within [new tokens - 1,"
    " total_sequence_length - 1]",
}


def fault_text(bits: int) -> str:
    """What the bits of a status word say, with what is allowed.

    Args:
        bits: not zero.
    """
    found = "; and ".join(text for bit, text in _TEXTS.items() if bits & bit)
    return found or f"a kernel reported {bits:#x}, which stands for nothing that is known"
