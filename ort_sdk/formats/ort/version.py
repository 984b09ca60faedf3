"""Format versions of ORT-format files."""

from __future__ import annotations

from ort_sdk.api import Fail

__all__ = ["CURRENT_VERSION", "FIRST_VERSION_WITH_RESOLVER", "UNSET_MODEL_VERSION", "read_version"]

CURRENT_VERSION = 6
FIRST_VERSION_WITH_RESOLVER = 5
"""Older files say nothing of their operators' type constraints, which then come from the operators' schemas."""
UNSET_MODEL_VERSION = 2**63 - 1
"""Stands in a file for an ONNX model without a version of its own."""
_MAX_DIGITS = 9


def read_version(text: str | None) -> int:
    """Version of a file.

    Args:
        text: as the file says it; None if it says nothing.

    Raises:
        Fail: there is none, it is no plain decimal number, or it is not supported.
    """
    if text is None:
        raise Fail("Serialized version info is null. Invalid ORT format model.")
    if not (text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS) or text.startswith("0"):
        raise Fail(
            f"The ORT format model version [{text[:40]}] is not a decimal number from 1 to {CURRENT_VERSION}. "
            "Invalid ORT format model."
        )
    if int(text) > CURRENT_VERSION:
        raise Fail(
            f"The ORT format model version [{text}] is not supported in this build; supported are 1 to {CURRENT_VERSION}. "
            "Convert the ONNX model again with an older ONNX Runtime, or load the ONNX model itself."
        )
    return int(text)
