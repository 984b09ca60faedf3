"""Whether a model is, or is to be, in ORT format."""

from __future__ import annotations

import os

from ort_sdk.api import InvalidArgument
from ort_sdk.config_keys import LOAD_MODEL_FORMAT

__all__ = ["FILE_IDENTIFIER", "is_ort_file_name", "is_ort_format", "named_format"]

FILE_IDENTIFIER = b"ORTM"
"""Bytes 4 to 7 of every file."""
_EXTENSION = ".ort"
_FORMATS = ("ONNX", "ORT")
_IDENTIFIER_PLACE = slice(4, 8)


def is_ort_file_name(path: str | os.PathLike[str]) -> bool:
    """Whether a path's extension is ``.ort``, in whatever case."""
    name = os.fsdecode(path)
    return len(name) > len(_EXTENSION) and name.lower().endswith(_EXTENSION)


def is_ort_format(path_or_bytes: str | os.PathLike[str] | bytes, model_format: str = "") -> bool:
    """Whether a model is to be read as ORT format: what the caller says, else the path's extension or the bytes' identifier.

    Args:
        path_or_bytes: path of the model, or its content.
        model_format: ``"ORT"`` or ``"ONNX"``; empty to find out.

    Raises:
        InvalidArgument: another format is named.
    """
    named = named_format(model_format, LOAD_MODEL_FORMAT)
    if named:
        return named == "ORT"
    if isinstance(path_or_bytes, bytes):
        return len(path_or_bytes) > _IDENTIFIER_PLACE.stop and path_or_bytes[_IDENTIFIER_PLACE] == FILE_IDENTIFIER
    return is_ort_file_name(path_or_bytes)


def named_format(model_format: str, key: str) -> str:
    """The format a config entry names, in capitals; empty for none.

    Raises:
        InvalidArgument: there is no such format.
    """
    named = model_format.upper()
    if named and named not in _FORMATS:
        raise InvalidArgument(f"{key}={model_format!r} is no format of models; use 'ONNX' or 'ORT', or leave the entry out")
    return named
