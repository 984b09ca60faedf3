"""Input files of every kind made the feeds of a run."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, InvalidArgument, NodeArg, TensorElementType
from ort_sdk.cli.output import shape_text

from .images import IMAGE_SUFFIXES, ImageOptions, image_tensor

__all__ = ["input_lines", "read_feeds"]

_SUFFIXES = (".npy", ".npz", ".txt", ".json", *sorted(IMAGE_SUFFIXES))


def read_feeds(
    texts: Sequence[str],
    inputs: Sequence[NodeArg],
    images: ImageOptions,
    dtype: str | None = None,
) -> dict[str, Any]:
    """The feeds of a run.

    Args:
        texts: ``NAME=FILE`` each, or ``FILE`` where the model has one input or the file names its arrays (.npz). A name
            given several times makes a batch.
        inputs: the model's inputs.
        images: how to prepare images.
        dtype: element type to convert to; None converts text and images to the input's type, and nothing else.

    Raises:
        InvalidArgument: unknown input, unreadable file, or a value that does not fit the input.
        FileNotFoundError: no such file.
    """
    by_name = {argument.name: argument for argument in inputs}
    found: dict[str, list[Any]] = {}
    for text in texts:
        for name, value in _values(text, by_name, images, dtype):
            found.setdefault(name, []).append(value)
    return {name: _batched(by_name[name], values) for name, values in found.items()}


def input_lines(inputs: Sequence[NodeArg]) -> str:
    """The model's inputs, one line each, for messages."""
    return "\n".join(f"  {argument.name}: {argument.type} {shape_text(argument.shape)}" for argument in inputs)


def _values(text: str, inputs: Mapping[str, NodeArg], images: ImageOptions, dtype: str | None) -> list[tuple[str, Any]]:
    name, path = _split(text, inputs)
    if path.suffix.lower() == ".npz" and not name:
        arrays = _archive(path)
        unknown = sorted(set(arrays) - set(inputs))
        if unknown:
            raise InvalidArgument(
                f"{str(path)!r} has arrays {unknown}, which are no inputs. Inputs:\n{input_lines([*inputs.values()])}"
            )
        return [(key, _checked(inputs[key], array, dtype)) for key, array in arrays.items()]
    return [(name, _value(path, inputs[name], images, dtype))]


def _split(text: str, inputs: Mapping[str, NodeArg]) -> tuple[str, Path]:
    """Name and file; the name is empty for an archive that names its arrays."""
    name, separator, rest = text.partition("=")
    if separator and name in inputs:
        return name, Path(rest)
    if (separator and not Path(text).exists()) or (len(inputs) != 1 and Path(text).suffix.lower() != ".npz"):
        problem = f"the model has no input '{name}'" if separator else f"--input takes NAME=FILE, got {text!r}"
        raise InvalidArgument(f"{problem}. Inputs:\n{input_lines([*inputs.values()])}")
    is_archive = Path(text).suffix.lower() == ".npz"
    return "" if is_archive else next(iter(inputs)), Path(text)


def _value(path: Path, argument: NodeArg, images: ImageOptions, dtype: str | None) -> Any:
    suffix = path.suffix.lower()
    if suffix in IMAGE_SUFFIXES:
        return _converted(image_tensor(path, argument, images), dtype)
    if suffix == ".npy":
        return _checked(argument, _load_npy(path), dtype)
    if suffix == ".npz":
        return _checked(argument, _member(path, argument.name), dtype)
    if suffix == ".json":
        return _from_json(_json(path), argument, dtype, path)
    if suffix == ".txt":
        return _from_text(path, argument, dtype)
    raise InvalidArgument(f"cannot read {str(path)!r} for input '{argument.name}': its name must end in {', '.join(_SUFFIXES)}")


def _load_npy(path: Path) -> HostArray:
    try:
        return np.asarray(np.load(path, allow_pickle=False))
    except (ValueError, EOFError) as error:
        raise InvalidArgument(f"cannot read {str(path)!r} as .npy: {error}") from error


def _archive(path: Path) -> dict[str, HostArray]:
    import zipfile

    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (ValueError, EOFError, AttributeError, zipfile.BadZipFile) as error:
        raise InvalidArgument(f"cannot read {str(path)!r} as .npz: {error}") from error


def _member(path: Path, name: str) -> HostArray:
    arrays = _archive(path)
    if name in arrays:
        return arrays[name]
    if len(arrays) == 1:
        return next(iter(arrays.values()))
    raise InvalidArgument(f"{str(path)!r} has no array '{name}'; it has {sorted(arrays)}")


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InvalidArgument(f"cannot read {str(path)!r} as JSON: {error}") from error


def _from_json(value: Any, argument: NodeArg, dtype: str | None, path: Path) -> Any:
    """A tensor, a list of tensors for a sequence, a dictionary for a map."""
    sequence = re.fullmatch(r"seq\((tensor\(.*\))\)", argument.type or "")
    if sequence and isinstance(value, list):
        return [_array(item, NodeArg(argument.name, sequence[1]), dtype, path) for item in value]
    mapping = re.fullmatch(r"map\((\w+),.*\)", argument.type or "")
    if mapping and isinstance(value, dict):
        return {key if mapping[1] == "string" else int(key): item for key, item in value.items()}
    return _fitted(_array(value, argument, dtype, path), argument, path)


def _from_text(path: Path, argument: NodeArg, dtype: str | None) -> HostArray:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"{str(path)!r} is no UTF-8 text: {error}") from error
    if argument.element_type == TensorElementType.STRING:
        return _fitted(np.array(lines, dtype=object), argument, path)
    rows = [line.replace(",", " ").split() for line in lines if line.strip()]
    if len({len(row) for row in rows}) > 1:
        rows = [[word for row in rows for word in row]]
    return _fitted(_array(rows[0] if len(rows) == 1 else rows, argument, dtype, path), argument, path)


def _array(value: Any, argument: NodeArg, dtype: str | None, path: Path) -> HostArray:
    element_type = _element_type(dtype) if dtype else argument.element_type
    if element_type is None:
        raise InvalidArgument(f"input '{argument.name}' is {argument.type}, which {str(path)!r} cannot give")
    target = element_type.numpy_dtype
    try:
        # Text goes through Python's numbers: dtypes of ml_dtypes read no text.
        numbers = np.array(value) if element_type != TensorElementType.STRING else np.array(value, dtype=object)
        if numbers.dtype.kind == "U":
            numbers = numbers.astype(np.int64 if target.kind in "iub" else np.float64)
        return numbers.astype(target)
    except (ValueError, TypeError, OverflowError) as error:
        raise InvalidArgument(f"{str(path)!r} has no {element_type.onnx_name} numbers for '{argument.name}': {error}") from error


def _fitted(array: HostArray, argument: NodeArg, path: Path) -> HostArray:
    """Reshaped to the input's dimensions; of several unknown ones the last takes what is left, the others are 1."""
    shape = argument.shape
    if shape is None or (
        array.ndim == len(shape) and all(not isinstance(d, int) or d == n for d, n in zip(shape, array.shape, strict=True))
    ):
        return array
    unknown = [index for index, dim in enumerate(shape) if not isinstance(dim, int)]
    target = [dim if isinstance(dim, int) else 1 for dim in shape]
    if unknown:
        target[unknown[-1]] = -1
    try:
        return array.reshape(target)
    except ValueError:
        raise InvalidArgument(
            f"{str(path)!r} has {array.size} elements {shape_text(array.shape)}, which do not fill input "
            f"'{argument.name}' {shape_text(shape)}"
        ) from None


def _checked(argument: NodeArg, array: HostArray, dtype: str | None) -> HostArray:
    """An array from a file of arrays: its type and its dimensions must be the input's."""
    array = _converted(array, dtype)
    if array.dtype.kind in "US":
        array = array.astype(str).astype(object)
    expected = argument.element_type
    if expected is not None and TensorElementType.from_numpy_dtype(array.dtype) != expected:
        raise InvalidArgument(
            f"input '{argument.name}' is {argument.type}, its file has {array.dtype}: "
            f"convert it with --dtype {expected.onnx_name}"
        )
    shape = argument.shape
    if shape is not None and (
        len(shape) != array.ndim
        or any(isinstance(dim, int) and dim != found for dim, found in zip(shape, array.shape, strict=True))
    ):
        raise InvalidArgument(f"input '{argument.name}' is {shape_text(shape)}, its file has {shape_text(array.shape)}")
    return array


def _converted(array: HostArray, dtype: str | None) -> HostArray:
    return array if dtype is None else array.astype(_element_type(dtype).numpy_dtype)


def _element_type(name: str) -> TensorElementType:
    """By ONNX's name (``float``) or NumPy's (``float32``)."""
    for element_type in TensorElementType:
        if name == element_type.onnx_name and element_type:
            return element_type
    try:
        return TensorElementType.from_numpy_dtype(name)
    except TypeError:
        raise InvalidArgument(f"--dtype {name!r} is no element type; for example float, float16, int64") from None


def _batched(argument: NodeArg, values: Sequence[Any]) -> Any:
    if len(values) == 1:
        return values[0]
    try:
        return np.concatenate(values)
    except ValueError as error:
        raise InvalidArgument(f"the {len(values)} files for input '{argument.name}' make no batch: {error}") from error
