"""A model and its external data file put in place together, so that no moment shows one without the other."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

from .unfinished_file import UnfinishedFile, locked_folder, remove_leftovers, write_whole

__all__ = ["publish_model"]

_INTERIM_DIGITS = 16
_COMPARED_BYTES = 1 << 20


def publish_model(path: Path, weights: UnfinishedFile, name: str, serialized: Callable[[str], bytes]) -> None:
    """Put both files in place. Whenever this is interrupted, ``path`` is the old model with the old weights or the new one.

    An older model of the same path would read the new weights for the time between the two renames. So the new model
    first refers to the weights under a name of their own, and to the final name once they have that, too.

    Args:
        path: the model's file.
        weights: complete but for its name.
        name: the weights' file beside the model.
        serialized: external file name → bytes of the model that refers to it.

    Raises:
        OSError: the file system refuses.
    """
    folder = path.parent
    target = folder / name
    weights.complete()
    with locked_folder(folder):
        if path.exists() and target.exists() and not _has_content(target, weights):
            interim = folder / f"{name}.{os.urandom(_INTERIM_DIGITS // 2).hex()}"
            weights.publish(interim)
            write_whole(path, serialized(interim.name))
        weights.publish(target)
        write_whole(path, serialized(name))
        _remove_interims(folder, name)
        remove_leftovers(folder, name)
        remove_leftovers(folder, path.name)


def _has_content(path: Path, weights: UnfinishedFile) -> bool:
    file = weights.file
    if path.stat().st_size != os.fstat(file.fileno()).st_size:
        return False
    file.seek(0)
    with path.open("rb") as other:
        while part := file.read(_COMPARED_BYTES):
            if part != other.read(_COMPARED_BYTES):
                return False
    return True


def _remove_interims(folder: Path, name: str) -> None:
    pattern = re.compile(rf"{re.escape(name)}\.[0-9a-f]{{{_INTERIM_DIGITS}}}")
    for file in folder.iterdir():
        if pattern.fullmatch(file.name):
            file.unlink(missing_ok=True)
