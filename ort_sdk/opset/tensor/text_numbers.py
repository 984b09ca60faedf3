"""Numbers to and from strings, as Cast writes and reads them."""

from __future__ import annotations

import numpy as np

from ort_sdk.api import HostArray, InvalidArgument

__all__ = ["from_text", "to_text"]

_SPECIAL = {"nan": "NaN", "inf": "INF", "-inf": "-INF"}


def to_text(values: HostArray) -> HostArray:
    """An object array of strings: integers in full, True as 1, floats with eight significant digits (C's ``%.8g``).

    Special values are written NaN, INF and -INF.
    """
    if values.dtype.kind in "biu":
        texts = [str(int(value)) for value in values.reshape(-1).tolist()]
    else:
        plain = [f"{value:.8g}" for value in values.reshape(-1).astype(np.float64).tolist()]
        texts = [_SPECIAL.get(text, text) for text in plain]
    result = np.empty(len(texts), dtype=object)
    result[:] = texts
    return result.reshape(values.shape)


def from_text(values: HostArray, *, as_integers: bool) -> HostArray:
    """Numbers that strings spell, as float64, int64 or (if they fit no int64) uint64.

    Floating-point notation is read for integers too, and truncated. INF and NaN are known in any case.

    Raises:
        InvalidArgument: a string spells no number.
    """
    texts = np.strings.strip(values.astype(np.str_))
    try:
        if not as_integers:
            return texts.astype(np.float64)
        digits = np.strings.lstrip(texts, "+-")
        if np.all(np.strings.isdecimal(digits)):
            has_large = np.any(np.strings.str_len(digits) > 18) and not np.any(np.strings.startswith(texts, "-"))
            return texts.astype(np.uint64 if has_large else np.int64)
        return np.trunc(texts.astype(np.float64)).astype(np.int64)
    except (ValueError, OverflowError) as error:
        raise InvalidArgument(
            f"cannot cast strings to numbers: {error}; each must spell one, such as -2.5e3, INF or NaN"
        ) from error
