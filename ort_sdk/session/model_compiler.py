"""Optimizing a model ahead of time, and classes of ONNX Runtime's that have no use here."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from ort_sdk.api import Fail, InvalidArgument, NoSuchFile
from ort_sdk.api import NotImplemented as OrtNotImplemented
from ort_sdk.api.data_classes import dataclass
from ort_sdk.api.foreign_errors import public_class
from ort_sdk.config_keys import (
    OPTIMIZED_MODEL_EXTERNAL_INITIALIZERS_FILE_NAME,
    OPTIMIZED_MODEL_EXTERNAL_INITIALIZERS_MIN_SIZE_IN_BYTES,
)

from .enums import OrtCompileApiFlags
from .inference_session import InferenceSession
from .option_enums import GraphOptimizationLevel
from .options.session_options import SessionOptions

__all__ = ["AdapterFormat", "LoraAdapter", "ModelCompiler", "OrtExternalInitializerInfo"]


@dataclass(frozen=True, slots=True)
class OrtExternalInitializerInfo:
    """Where an initializer is in an external file."""

    filepath: str
    file_offset: int
    byte_size: int


@public_class()
class ModelCompiler:
    """Takes a model through the stages for the providers of some options, and writes it as the optimizer leaves it.

    Providers compile when a session is made; nothing of that is written into the model.

    Args:
        sess_options: a copy is taken.
        input_model_path_or_bytes: model file, or its content.
        embed_compiled_data_into_model: accepted.
        external_initializers_file_path: file beside the output that takes the weights; None keeps them inline.
        external_initializers_size_threshold: smallest tensor that goes there, in bytes.
        flags: what counts as an error.
        graph_optimization_level: how far the optimizer goes.
        get_initializer_location_func: not supported.

    Raises:
        NoSuchFile: no such model.
        NotImplemented: a function for the location of initializers was given.
    """

    def __init__(
        self,
        sess_options: SessionOptions,
        input_model_path_or_bytes: str | os.PathLike[str] | bytes,
        embed_compiled_data_into_model: bool = False,
        external_initializers_file_path: str | os.PathLike[str] | None = None,
        external_initializers_size_threshold: int = 1024,
        flags: int = OrtCompileApiFlags.NONE,
        graph_optimization_level: GraphOptimizationLevel = GraphOptimizationLevel.ORT_DISABLE_ALL,
        get_initializer_location_func: Callable[..., Any] | None = None,
    ) -> None:
        del embed_compiled_data_into_model
        if not isinstance(sess_options, SessionOptions):
            raise TypeError(f"incompatible constructor arguments: sess_options must be SessionOptions, got {sess_options!r}")
        if not isinstance(input_model_path_or_bytes, (str, bytes, os.PathLike)):
            raise TypeError(f"Unable to load from type '{type(input_model_path_or_bytes)}'")
        if not isinstance(input_model_path_or_bytes, bytes) and not Path(input_model_path_or_bytes).is_file():
            raise NoSuchFile(f"Load model from {os.fspath(input_model_path_or_bytes)!r} failed. File doesn't exist")
        if get_initializer_location_func is not None:
            raise OrtNotImplemented("get_initializer_location_func: name one external_initializers_file_path instead")
        self._source = input_model_path_or_bytes
        self._flags = OrtCompileApiFlags(flags)
        self._options = sess_options.snapshot()
        self._options.graph_optimization_level = graph_optimization_level
        if external_initializers_file_path is not None:
            self._options.add_session_config_entry(
                OPTIMIZED_MODEL_EXTERNAL_INITIALIZERS_FILE_NAME, Path(external_initializers_file_path).name
            )
            self._options.add_session_config_entry(
                OPTIMIZED_MODEL_EXTERNAL_INITIALIZERS_MIN_SIZE_IN_BYTES, str(external_initializers_size_threshold)
            )

    def compile_to_file(self, output_model_path: str | os.PathLike[str] | None = None) -> None:
        """Write the model to a file; by default beside the input, as ``<name>_ctx.onnx``.

        Raises:
            InvalidArgument: no path, and the input came as bytes; or the file exists and that counts as an error.
            Fail: no provider compiled nodes and that counts as an error.
        """
        if output_model_path is None:
            if isinstance(self._source, bytes):
                raise InvalidArgument("compile_to_file needs output_model_path for a model given as bytes")
            source = Path(self._source)
            output_model_path = source.with_name(f"{source.stem}_ctx.onnx")
        target = Path(output_model_path)
        if self._flags & OrtCompileApiFlags.ERROR_IF_OUTPUT_FILE_EXISTS and target.exists():
            raise InvalidArgument(f"output file '{target}' exists and the flag ERROR_IF_OUTPUT_FILE_EXISTS is set")
        if self._flags & OrtCompileApiFlags.ERROR_IF_NO_NODES_COMPILED:
            raise Fail(
                "Unable to compile any nodes. Compiled nodes are not written into models here: they are compiled when a session "
                "is made; leave out the flag ERROR_IF_NO_NODES_COMPILED to write the optimized model"
            )
        options = self._options.snapshot()
        options.optimized_model_filepath = str(target)
        InferenceSession(self._source, options).close()

    def compile_to_bytes(self) -> bytes:
        """The model as bytes, weights inline.

        Raises:
            Fail: as ``compile_to_file``.
        """
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder) / "model.onnx"
            self.compile_to_file(target)
            return target.read_bytes()

    def compile_to_stream(self, write_function: Callable[[bytes], Any]) -> None:
        """Hand the model's bytes to a function."""
        write_function(self.compile_to_bytes())

    def set_ep_context_data_write_func(self, write_func: Callable[..., Any]) -> None:
        """Not possible: no provider writes EPContext nodes.

        Raises:
            NotImplemented: always.
        """
        raise OrtNotImplemented("set_ep_context_data_write_func: no EPContext data is written")

    def clear_ep_context_data_write_func(self) -> None:
        """Nothing is set, so nothing is cleared."""


class LoraAdapter:
    """Not supported: feed an adapter's parameters as inputs of the run."""

    def Load(self, path: str) -> NoReturn:  # noqa: N802 - ORT's name
        """Not possible.

        Raises:
            NotImplemented: always.
        """
        raise OrtNotImplemented(
            f"LoraAdapter.Load({path!r}): LoRA adapter files are not supported; feed their parameters as inputs"
        )


class AdapterFormat:
    """Not supported: LoRA adapter files.

    Raises:
        NotImplemented: always.
    """

    def __init__(self, adapter: Any = None) -> None:
        raise OrtNotImplemented("AdapterFormat: LoRA adapter files are not supported; feed the adapter's parameters as inputs")

    @staticmethod
    def read_adapter(file_path: str | os.PathLike[str]) -> NoReturn:
        """Not possible.

        Raises:
            NotImplemented: always.
        """
        raise OrtNotImplemented(f"AdapterFormat.read_adapter({os.fspath(file_path)!r}): LoRA adapter files are not supported")
