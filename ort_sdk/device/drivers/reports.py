"""What kernels report in the status word."""

from __future__ import annotations

from ort_sdk.api import InvalidArgument

__all__ = ["report_error"]

_TEXTS = {1: "an index of a Gather or Scatter operator is out of bounds"}
"""Bit → what a kernel that sets it has met."""


def report_error(bits: int, device: str) -> InvalidArgument:
    """The error for a status word that is not 0.

    Args:
        bits: the word.
        device: name of the device.
    """
    found = [text for bit, text in _TEXTS.items() if bits & bit]
    found += [f"report {bits & ~sum(_TEXTS):#x}"] if bits & ~sum(_TEXTS) else []
    return InvalidArgument(f"kernels on {device} met contents that they cannot take: {'; '.join(found)}")
