"""``ort-sdk convert``: a model written anew, in ORT or ONNX format."""

from __future__ import annotations

import argparse
from pathlib import Path

from ort_sdk.api import InvalidArgument
from ort_sdk.cli.arguments import add_model_argument, add_provider_arguments, provider_entries
from ort_sdk.cli.exit_codes import ExitCode
from ort_sdk.cli.models.sessions import OPTIMIZATION_LEVELS
from ort_sdk.cli.output import print_json, print_text, progress
from ort_sdk.config_keys import MINIMAL_BUILD_OPTIMIZATIONS, SAVE_MODEL_FORMAT
from ort_sdk.session.inference_session import InferenceSession
from ort_sdk.session.options.session_options import SessionOptions

__all__ = ["add_arguments", "run"]

_LEVELS_WITH_FUSIONS = ("extended", "all")
_FORMATS = {".ort": "ORT", ".onnx": "ONNX"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    add_model_argument(parser)
    parser.add_argument("output", metavar="OUTPUT", help="file to write; its extension, .ort or .onnx, decides the format")
    add_provider_arguments(parser, level="basic")
    parser.add_argument(
        "--record",
        action="store_true",
        help="with --level extended or all, and OUTPUT in ORT format: record fusions that ONNX Runtime's minimal builds can "
        "make, instead of making them",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the command.

    Raises:
        InvalidArgument: the output has another extension, or is the model itself, or fusions are to be recorded at a level
            without any.
        NoModel: the model is none.
    """
    from ort_sdk.cli.models.building import read_model

    source, output = Path(arguments.model), Path(arguments.output)
    model_format = _FORMATS.get(output.suffix.lower())
    if model_format is None:
        raise InvalidArgument(f"OUTPUT must end in .ort or .onnx, which decides the format, got '{output}'")
    if source.exists() and output.exists() and source.samefile(output):
        raise InvalidArgument(f"OUTPUT is the model itself: '{output}'; write another file")
    if arguments.record and arguments.level not in _LEVELS_WITH_FUSIONS:
        raise InvalidArgument(f"--record needs --level {' or '.join(_LEVELS_WITH_FUSIONS)}, got '{arguments.level}'")
    entries = provider_entries(arguments)
    read_model(source, lambda: entries)
    options = SessionOptions()
    options.graph_optimization_level = OPTIMIZATION_LEVELS[arguments.level]
    options.optimized_model_filepath = str(output)
    options.add_session_config_entry(SAVE_MODEL_FORMAT, model_format)
    if arguments.record:
        options.add_session_config_entry(MINIMAL_BUILD_OPTIMIZATIONS, "save")
    with progress("converting"):
        InferenceSession(source, options, providers=entries).close()
    size = output.stat().st_size
    if arguments.json:
        print_json({"output": str(output), "format": model_format, "bytes": size})
    else:
        print_text(f"{output}: {model_format} format, {size} bytes")
    return ExitCode.OK
