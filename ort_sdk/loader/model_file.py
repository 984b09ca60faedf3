"""Model file or bytes → Model."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ort_sdk.api import Fail, InvalidArgument, InvalidProtobuf, NoSuchFile
from ort_sdk.graph import Model

from .from_proto import convert_model
from .tensor_proto import TensorReader

__all__ = ["load_model"]


def load_model(path_or_bytes: str | os.PathLike[str] | bytes, *, external_data_folder: Path | None = None) -> Model:
    """Load an ONNX model.

    Args:
        path_or_bytes: path of an ``.onnx`` file, or its content.
        external_data_folder: folder of external data instead of the model's own (or of the current directory for bytes).

    Returns:
        The model: nodes in topological order, weights as references.

    Raises:
        TypeError: the argument is neither a path nor bytes.
        NoSuchFile: no such file.
        InvalidProtobuf: the bytes are no ONNX model.
        InvalidArgument: there is no graph in it.
        InvalidGraph: the graph breaks a rule of ONNX.
        Fail: the IR version or an opset version is newer than supported, or a file cannot be read.
    """
    if isinstance(path_or_bytes, bytes):
        return convert_model(_parse(path_or_bytes, "the given bytes"), TensorReader())
    if not isinstance(path_or_bytes, (str, os.PathLike)):
        raise TypeError(f"Unable to load from type '{type(path_or_bytes)}'")
    path = Path(path_or_bytes)
    model = convert_model(_parse(_read(path), f"'{path}'"), TensorReader())
    model.path = path
    return model


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise NoSuchFile(f"Load model from {path} failed: File doesn't exist") from None
    except OSError as error:
        raise Fail(f"Load model from {path} failed: {error.strerror}") from error


def _parse(data: bytes, what: str) -> Any:
    import google.protobuf.message
    import onnx

    if not data:
        raise InvalidArgument("No graph was found in the protobuf.")
    try:
        return onnx.ModelProto.FromString(data)
    except google.protobuf.message.DecodeError as error:
        raise InvalidProtobuf(f"Load model from {what} failed: Protobuf parsing failed ({error})") from error
