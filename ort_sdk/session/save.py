"""Writing a session's optimized model, and compiling models ahead of time."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ort_sdk.api import Fail, InvalidArgument
from ort_sdk.api import NotImplemented as OrtNotImplemented
from ort_sdk.graph import Model
from ort_sdk.loader.model_writer import write_model

__all__ = ["save_optimized"]

EXTERNAL_FILE_KEY = "session.optimized_model_external_initializers_file_name"
EXTERNAL_SIZE_KEY = "session.optimized_model_external_initializers_min_size_in_bytes"
FORMAT_KEY = "session.save_model_format"


def save_optimized(model: Model, path: str, config: Mapping[str, str]) -> None:
    """Write a model as ONNX, its weights inline or in an external file as the config says.

    Raises:
        InvalidArgument: a size that is no number, or a folder that does not exist.
        NotImplemented: another format.
        Fail: the file cannot be written.
    """
    if config.get(FORMAT_KEY, "ONNX").upper() != "ONNX":
        raise OrtNotImplemented(f"{FORMAT_KEY}={config[FORMAT_KEY]!r}: only ONNX models are written; leave the entry out")
    size = config.get(EXTERNAL_SIZE_KEY, "1024")
    if not size.isdigit():
        raise InvalidArgument(f"{EXTERNAL_SIZE_KEY} must be a number of bytes, got {size!r}")
    target = Path(path)
    if not target.parent.is_dir():
        raise InvalidArgument(f"cannot write the optimized model to '{path}': there is no folder '{target.parent}'")
    try:
        write_model(model, target, external_file_name=config.get(EXTERNAL_FILE_KEY) or None, min_external_bytes=int(size))
    except OSError as error:
        raise Fail(f"cannot write the optimized model to '{path}': {error.strerror or error}") from error
