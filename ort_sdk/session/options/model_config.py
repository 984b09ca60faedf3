"""Session options that a model file carries in its metadata, read if the environment asks for it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

from ort_sdk.api import InvalidArgument
from ort_sdk.config_keys import LOAD_MODEL_FORMAT
from ort_sdk.loader import load_model
from ort_sdk.session.option_enums import ExecutionMode, GraphOptimizationLevel

from .build_settings import BuildSettings
from .session_options import SessionOptions

__all__ = ["LOAD_CONFIG_VARIABLE", "apply_model_config"]

LOAD_CONFIG_VARIABLE = "ORT_LOAD_CONFIG_FROM_MODEL"
"""Environment variable: ``1`` lets a model's metadata set options, over those the caller set."""
METADATA_KEY = "ort_config"

_KINDS: dict[str, type] = {
    "intra_op_num_threads": int,
    "inter_op_num_threads": int,
    "execution_mode": ExecutionMode,
    "graph_optimization_level": GraphOptimizationLevel,
    "enable_profiling": bool,
}


def apply_model_config(
    options: SessionOptions, source: str | os.PathLike[str] | bytes, make_settings: Callable[[], BuildSettings]
) -> None:
    """Set the options a model asks for; those this package does not know are ignored.

    Args:
        options: changed in place.
        source: model file, or its content.
        make_settings: gives the settings that say where the model's external data is.

    Raises:
        InvalidArgument: the metadata is no JSON, or a value does not fit its option.
        OrtSdkError: the model is refused.
    """
    if os.environ.get(LOAD_CONFIG_VARIABLE) != "1":
        return
    settings = make_settings()
    model = load_model(
        source,
        external_data_folder=settings.external_data_folder,
        in_memory_files=settings.external_files,
        external_initializers=settings.external_initializers,
        model_format=settings.config.get(LOAD_MODEL_FORMAT, ""),
    )
    text = model.metadata.get(METADATA_KEY)
    for name, value in ({} if text is None else _entries(text)).items():
        if name in _KINDS:
            setattr(options, name, _converted(name, value))


def _entries(text: str) -> dict[str, Any]:
    try:
        config = json.loads(text)
    except ValueError as error:
        raise InvalidArgument(f"Json stored in the `{METADATA_KEY}` key cannot be parsed. Error message: {error}") from error
    entries = config.get("session_options", {}) if isinstance(config, dict) else {}
    return entries if isinstance(entries, dict) else {}


def _converted(name: str, value: Any) -> Any:
    if not isinstance(value, int):
        raise InvalidArgument(f"{name} option in the model file must be an integer, got {value!r}")
    try:
        return _KINDS[name](value)
    except ValueError as error:
        raise InvalidArgument(f"Unsupported {name} value in ORT config: {value}") from error
