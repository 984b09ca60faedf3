"""The folder of everything that is made once and kept: compiled kernels, packed weights."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["CACHE_VARIABLE", "cache_subfolder"]

CACHE_VARIABLE = "ORT_SDK_CACHE_DIR"
"""Environment variable: the folder."""


def cache_subfolder(name: str) -> Path | None:
    """Where one kind of content is kept; None if the environment variable ``ORT_SDK_CACHE_DIR`` names no folder.

    Args:
        name: of the kind: ``weights`` for packed weights, a provider's name for what is its own.
    """
    folder = os.environ.get(CACHE_VARIABLE)
    return Path(folder).absolute() / name if folder else None
