"""Entries of ``TensorProto.external_data``, parsed strictly."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ort_sdk.api import Fail
from ort_sdk.api.data_classes import dataclass

__all__ = ["ExternalEntries", "parse_entries"]

_IGNORED = ("checksum", "basepath")
_ALLOWED = ("location", "offset", "length", *_IGNORED)
_MAX_DIGITS = 19


@dataclass(frozen=True, slots=True)
class ExternalEntries:
    """What a tensor says of its external data."""

    location: str
    offset: int = 0
    length: int = 0
    """0 if the tensor does not say it."""
    prepacked: tuple[str, ...] = ()
    """Values of the ``prepacked_N`` entries, in order."""


def parse_entries(protos: Iterable[Any], owner: str) -> ExternalEntries:
    """Parse ``external_data`` entries.

    Args:
        protos: ``StringStringEntryProto`` messages.
        owner: the tensor, for messages.

    Raises:
        Fail: an unknown key, a key twice, an empty value, a number that is none, or no location.
    """
    values: dict[str, str] = {}
    prepacked: list[str] = []
    for entry in protos:
        key, value = entry.key, entry.value
        if key.startswith("prepacked"):
            prepacked.append(value)
            continue
        if key not in _ALLOWED:
            raise Fail(f"model format error! External data of {owner} has the unknown key {key[:50]!r}; allowed: {_ALLOWED}")
        if key in values:
            raise Fail(f"model format error! External data of {owner} has duplicate '{key}' entries")
        if not value and key != "basepath":
            raise Fail(f"model format error! External data {key} of {owner} cannot be empty")
        values[key] = value
    if "location" not in values:
        raise Fail(f"model format error! Missing 'location' in the external data of {owner}")
    return ExternalEntries(
        values["location"], _number(values, "offset", owner), _number(values, "length", owner), tuple(prepacked)
    )


def _number(values: dict[str, str], key: str, owner: str) -> int:
    digits = values.get(key, "0")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _MAX_DIGITS):
        raise Fail(f"Failed to parse value: {digits[:50]!r} as {key} of the external data of {owner}; decimal digits are needed")
    return int(digits)
