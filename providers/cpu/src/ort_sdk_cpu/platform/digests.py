"""Digests of files and sources."""

from __future__ import annotations

from ort_sdk.api.sealed_files import DIGEST_BYTES, digest, sealed, unsealed

__all__ = ["DIGEST_BYTES", "digest", "sealed", "short_digest", "unsealed"]

_SHORT_BYTES = 12


def short_digest(*parts: str | bytes) -> str:
    """Digest of concatenated texts and bytes for a file's name: 24 hexadecimal digits."""
    return digest(*(part.encode() if isinstance(part, str) else part for part in parts)).hex()[: 2 * _SHORT_BYTES]
