"""Writing a session's optimized model, with the weights its kernels packed if that is asked for.

What writes files is imported when there is something to write.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ort_sdk.api import Allocator, Fail, HostArray, InvalidArgument, Tensor
from ort_sdk.api.foreign_errors import restated
from ort_sdk.config_keys import (
    DISABLE_PREPACKING,
    MINIMAL_BUILD_OPTIMIZATIONS,
    OPTIMIZED_MODEL_EXTERNAL_INITIALIZERS_FILE_NAME,
    OPTIMIZED_MODEL_EXTERNAL_INITIALIZERS_MIN_SIZE_IN_BYTES,
    SAVE_EXTERNAL_PREPACKED_CONSTANT_INITIALIZERS,
    SAVE_MODEL_FORMAT,
)
from ort_sdk.formats.ort import is_ort_file_name, named_format
from ort_sdk.graph import Model

if TYPE_CHECKING:
    from ort_sdk.formats.onnx.writer.weights_file import WeightsFile

__all__ = ["OptimizedModelSaver", "check_minimal_build_optimizations"]


def check_minimal_build_optimizations(config: Mapping[str, str], *, writes_ort_format: bool) -> None:
    """Refuse a config that asks for optimizations to be recorded where no file can take them.

    Raises:
        InvalidArgument: it does, or the entry has a value that is none.
    """
    handling = config.get(MINIMAL_BUILD_OPTIMIZATIONS, "")
    if handling not in ("", "apply", "save"):
        raise InvalidArgument(
            f"Invalid value for {MINIMAL_BUILD_OPTIMIZATIONS}: {handling!r}; it can be 'save', 'apply' or empty"
        )
    if handling == "save" and not writes_ort_format:
        raise InvalidArgument(
            f"{MINIMAL_BUILD_OPTIMIZATIONS} value of 'save' is only valid when saving an ORT format model; "
            "set optimized_model_filepath to a path that ends in .ort"
        )


class OptimizedModelSaver:
    """Writes one session's optimized model: at once, or with its packed weights when the kernels have packed them.

    Args:
        path: file to write.
        config: the session's config entries.
    """

    def __init__(self, path: str, config: Mapping[str, str]) -> None:
        self._path = Path(path)
        self._config = config
        self._model: Model | None = None
        self._weights: WeightsFile | None = None
        self._saved: frozenset[int] = frozenset()
        self._is_ort = (named_format(config.get(SAVE_MODEL_FORMAT, ""), SAVE_MODEL_FORMAT) or _format_of(path)) == "ORT"

    @property
    def writes_ort_format(self) -> bool:
        """Whether the file is to be in ORT format."""
        return self._is_ort

    @property
    def saves_packed_weights(self) -> bool:
        """Whether ``save`` is to be called for packed weights, between ``begin`` and ``finish``."""
        asked = (
            self._config.get(SAVE_EXTERNAL_PREPACKED_CONSTANT_INITIALIZERS) == "1" and self._config.get(DISABLE_PREPACKING) != "1"
        )
        return asked and not self._is_ort and bool(self._config.get(OPTIMIZED_MODEL_EXTERNAL_INITIALIZERS_FILE_NAME))

    def begin(self, model: Model) -> None:
        """Take the optimized model; write it, unless packed weights are to come.

        Raises:
            InvalidArgument: a size that is no number, a folder that does not exist, or an external file for ORT format.
            Fail: the file cannot be written, or ORT format has no form for something in the model.
        """
        size = self._config.get(OPTIMIZED_MODEL_EXTERNAL_INITIALIZERS_MIN_SIZE_IN_BYTES, "1024")
        if not size.isdigit():
            raise InvalidArgument(
                f"{OPTIMIZED_MODEL_EXTERNAL_INITIALIZERS_MIN_SIZE_IN_BYTES} must be a number of bytes, got {size!r}"
            )
        if not self._path.parent.is_dir():
            raise InvalidArgument(f"cannot write the optimized model to '{self._path}': there is no folder '{self._path.parent}'")
        name = self._config.get(OPTIMIZED_MODEL_EXTERNAL_INITIALIZERS_FILE_NAME)
        if name and self._is_ort:
            raise InvalidArgument(
                f"{OPTIMIZED_MODEL_EXTERNAL_INITIALIZERS_FILE_NAME}={name!r}: a model in ORT format holds its weights; "
                "leave the entry out"
            )
        with self._errors():
            if self._is_ort:
                self._write_ort(model)
            else:
                self._begin_onnx(model, name, int(size))

    def _write_ort(self, model: Model) -> None:
        from ort_sdk.formats.ort.writer import write_ort_model

        from .function_bodies import with_portable_operators
        from .half_precision import with_portable_half

        write_ort_model(with_portable_half(with_portable_operators(model)), self._path)

    def _begin_onnx(self, model: Model, name: str | None, min_bytes: int) -> None:
        from ort_sdk.formats.onnx.writer.model import open_weights_file, write_model

        if name and self.saves_packed_weights:
            self._model = model.copy()
            self._saved = frozenset(id(tensor) for graph in model.graph.walk() for tensor in graph.initializers.values())
            self._weights = open_weights_file(self._path, name, min_bytes)
        else:
            write_model(model, self._path, external_file_name=name or None, min_external_bytes=min_bytes)

    def memory(self, tensor: Tensor) -> Allocator | None:
        """Memory to pack a weight in that is the model's external file's; None if the weight does not go there."""
        return self._weights.memory if self._weights is not None and self._takes(tensor) else None

    def save(
        self, tensor: Tensor, op_type: str, identity: str, buffers: tuple[HostArray, ...], *, is_tensor: bool
    ) -> tuple[HostArray, ...]:
        """Write a packed weight, if its weight is one of the model's external ones.

        Args:
            tensor: the weight.
            op_type: operator that reads it.
            identity: of its packed form.
            buffers: the packed form.
            is_tensor: whether that is the weight's own bytes.

        Returns:
            Views of the file instead of the buffers, or the buffers themselves if they were not written.

        Raises:
            Fail: the file cannot be written.
        """
        if self._weights is None or not self._takes(tensor):
            return buffers
        with self._errors():
            if is_tensor:
                return (self._weights.add_bytes(tensor, buffers[0]),)
            return self._weights.add_prepacked(tensor, op_type, identity, buffers)

    def _takes(self, tensor: Tensor) -> bool:
        return self._weights is not None and id(tensor) in self._saved and self._weights.takes(tensor)

    def finish(self) -> None:
        """Write model and weights under their final names, if they are not there yet.

        Raises:
            Fail: the file cannot be written.
        """
        if self._model is not None and self._weights is not None:
            from ort_sdk.formats.onnx.writer.model import write_model_with

            with self._errors():
                write_model_with(self._model, self._path, self._weights)
        self.close()

    def close(self) -> None:
        """Let go of everything; what is not finished is not written."""
        if self._weights is not None:
            self._weights.close()
        self._model = self._weights = None

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            text = f"cannot write the optimized model to '{self._path}': {error.strerror or error}"
            raise restated(error, Fail, text) from error


def _format_of(path: str) -> str:
    return "ORT" if is_ort_file_name(path) else "ONNX"
