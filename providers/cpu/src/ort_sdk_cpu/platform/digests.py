"""Digests of files and sources."""

from __future__ import annotations

try:
    # The extension module behind hashlib: hashlib itself loads OpenSSL, which takes more time than loading a kernel.
    from _blake2 import blake2b
except ImportError:
    from hashlib import blake2b

__all__ = ["DIGEST_BYTES", "digest", "sealed", "short_digest", "unsealed"]

DIGEST_BYTES = 32
_SHORT_BYTES = 12


def digest(*parts: bytes | memoryview) -> bytes:
    """Digest of concatenated parts (BLAKE2b, 32 bytes)."""
    found = blake2b(digest_size=DIGEST_BYTES)
    for part in parts:
        found.update(part)
    return found.digest()


def sealed(name: str, content: bytes) -> bytes:
    """Content of a file with a digest over its name and content before it."""
    return digest(name.encode(), content) + content


def unsealed(name: str, file: bytes | memoryview) -> bytes | None:
    """The content that ``sealed`` was given; None if the file is damaged, or of another name."""
    content = memoryview(file)[DIGEST_BYTES:]
    return bytes(content) if digest(name.encode(), content) == file[:DIGEST_BYTES] else None


def short_digest(*parts: str | bytes) -> str:
    """Digest of concatenated texts and bytes for a file's name: 24 hexadecimal digits."""
    return digest(*(part.encode() if isinstance(part, str) else part for part in parts)).hex()[: 2 * _SHORT_BYTES]
