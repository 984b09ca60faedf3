"""Digests that tell files and sources apart."""

from __future__ import annotations

try:
    # Of hashlib's own modules, because hashlib loads OpenSSL: half a megabyte, and more time than a kernel takes to load.
    from _blake2 import blake2b
except ImportError:
    from hashlib import blake2b

__all__ = ["DIGEST_BYTES", "digest", "short_digest"]

DIGEST_BYTES = 32
_SHORT_BYTES = 12


def digest(*parts: bytes | memoryview) -> bytes:
    """Digest of parts, one after the other (BLAKE2b, 32 bytes)."""
    found = blake2b(digest_size=DIGEST_BYTES)
    for part in parts:
        found.update(part)
    return found.digest()


def short_digest(*parts: str | bytes) -> str:
    """Digest of texts and bytes for a file's name: 24 hexadecimal digits."""
    return digest(*(part.encode() if isinstance(part, str) else part for part in parts)).hex()[: 2 * _SHORT_BYTES]
