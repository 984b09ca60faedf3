"""The folder of everything that is made once and kept: compiled kernels, packed weights."""

from __future__ import annotations

import os
import sys
from pathlib import Path

__all__ = ["CACHE_VARIABLE", "cache_subfolder", "user_cache"]

CACHE_VARIABLE = "ORT_SDK_CACHE_DIR"
"""Environment variable: the folder."""


def cache_subfolder(name: str) -> Path | None:
    """Where one kind of content is kept; None if the environment variable ``ORT_SDK_CACHE_DIR`` names no folder.

    Args:
        name: of the kind: ``weights`` for packed weights, a provider's name for what is its own.
    """
    folder = os.environ.get(CACHE_VARIABLE)
    return Path(folder).absolute() / name if folder else None


def user_cache() -> Path | None:
    """The user's folder for what all programs keep; None for a user without a home."""
    try:
        if sys.platform == "win32":
            base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
        elif sys.platform == "darwin":
            base = Path.home() / "Library" / "Caches"
        else:
            base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:
        return None
    # A relative path would be another folder in each working directory.
    return base if base.is_absolute() else None
