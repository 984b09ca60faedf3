"""Model file or bytes → Model."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ort_sdk.api import Fail, InvalidArgument, NoSuchFile, OrtSdkError, Tensor
from ort_sdk.api.foreign_errors import restated
from ort_sdk.formats.files.byte_source import ByteSource, map_descriptor, wrap_buffer
from ort_sdk.formats.files.external_file import ExternalFiles
from ort_sdk.formats.files.loaded_tensor import ExternalLoaders
from ort_sdk.formats.onnx.reader.from_proto import convert_model
from ort_sdk.formats.onnx.reader.messages import parse_model
from ort_sdk.formats.onnx.reader.tensor_proto import TensorReader
from ort_sdk.formats.ort import is_ort_format
from ort_sdk.graph import Model
from ort_sdk.graph.operator_schemas import TABLE_SCHEMAS, OperatorSchemas
from ort_sdk.graph.type_strings import TypeStrings

from .nchwc import restore_nchw

__all__ = ["load_model", "load_type_strings"]


def load_model(
    path_or_bytes: str | os.PathLike[str] | bytes,
    *,
    external_data_folder: Path | None = None,
    in_memory_files: Mapping[str, Any] | None = None,
    external_initializers: Mapping[str, Tensor] | None = None,
    external_loaders: ExternalLoaders | None = None,
    model_format: str = "",
    schemas: OperatorSchemas = TABLE_SCHEMAS,
) -> Model:
    """Load a model in ONNX or ORT format. Weights refer to the file's one shared read-only map, or to the caller's bytes.

    Args:
        path_or_bytes: path of an ``.onnx`` or ``.ort`` file, or its content, which the model then keeps.
        external_data_folder: folder of external data instead of the model's own (or of the current directory for bytes).
        in_memory_files: external data location → contiguous buffer to use instead of the file; kept, not copied. Locations
            that are not in it are files.
        external_initializers: name → value to use instead of an external initializer of the main graph.
        external_loaders: asked for external tensors before their files are read; a file they do without may be missing.
        model_format: ``"ORT"`` or ``"ONNX"``; empty to decide by the path's extension or the bytes' identifier. A model in ORT
            format has no external data.
        schemas: of the operators that the model may have.

    Returns:
        The model: nodes in topological order, every weight's range, path and size checked, none read.

    Raises:
        TypeError: the argument is neither a path nor bytes.
        NoSuchFile: no such file.
        InvalidProtobuf: the bytes are no ONNX model.
        InvalidArgument: there is no graph in it, a given initializer does not fit, or the format is none of the two.
        InvalidGraph: the graph breaks a rule of ONNX.
        Fail: the IR version or an opset version is newer than supported, a file cannot be read or must not be, or the bytes are
            no model in ORT format.
    """
    path, source = _source(path_or_bytes)
    source.drop_pages_later()
    with _errors_that_name(path):
        if is_ort_format(path_or_bytes, model_format):
            if external_initializers:
                given = sorted(external_initializers)
                raise InvalidArgument(f"values are given for {given}; models in ORT format have none outside")
            from ort_sdk.formats.ort.reader.model import read_ort_model

            model = read_ort_model(source, schemas)
        else:
            external = ExternalFiles(path, external_data_folder, in_memory_files)
            reader = TensorReader(source, external, external_initializers, external_loaders)
            model = convert_model(parse_model(source.array.data), reader, schemas)
        restore_nchw(model)
    model.path = path
    return model


@contextlib.contextmanager
def _errors_that_name(path: Path | None) -> Iterator[None]:
    """Errors of reading a file name the file."""
    try:
        yield
    except OrtSdkError as error:
        if path is not None and str(path) not in error.text:
            error.text = f"Load model from {str(path)!r} failed: {error.text}"
        raise


def load_type_strings(path_or_bytes: str | os.PathLike[str] | bytes) -> dict[str, TypeStrings]:
    """What a file in ORT format says of its operators, read without the rest of the model.

    Args:
        path_or_bytes: path of the file, whatever its extension, or its content.

    Returns:
        Op id → constraint name → formal parameters.

    Raises:
        TypeError: the argument is neither a path nor bytes.
        NoSuchFile: no such file.
        Fail: the file is none in ORT format, is damaged, or is of a version that does not describe its operators.
    """
    from ort_sdk.formats.ort.reader.model import read_ort_type_strings

    _, source = _source(path_or_bytes)
    return read_ort_type_strings(source)


def _source(path_or_bytes: Any) -> tuple[Path | None, ByteSource]:
    if isinstance(path_or_bytes, bytes):
        return None, wrap_buffer(path_or_bytes)
    name = _file_name(path_or_bytes)
    return Path(name), _open(name)


def _file_name(path: Any) -> str:
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"Unable to load from type '{type(path)}'")
    return os.fsdecode(path)


def _open(path: str) -> ByteSource:
    flags = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(path, flags)
    except (FileNotFoundError, NotADirectoryError, ValueError) as error:
        raise NoSuchFile(f"Load model from {path!r} failed. File doesn't exist") from error
    except OSError as error:
        raise restated(error, Fail, f"Load model from {path!r} failed: {error.strerror}") from error
    try:
        return map_descriptor(descriptor, f"'{path}'")
    finally:
        os.close(descriptor)
