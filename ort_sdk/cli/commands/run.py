"""``ort-sdk run``: one run of a model on files."""

from __future__ import annotations

import argparse
from typing import Any

from ort_sdk.api import InvalidArgument
from ort_sdk.cli.arguments import add_model_argument, add_provider_arguments, count, provider_entries
from ort_sdk.cli.exit_codes import ExitCode
from ort_sdk.cli.inputs.arguments import add_input_arguments, input_files
from ort_sdk.cli.output import progress
from ort_sdk.graph import Model

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    add_model_argument(parser)
    add_input_arguments(parser)
    parser.add_argument("--output", metavar="FOLDER", help="write each output to FOLDER/NAME.npy")
    parser.add_argument("--top", type=count, default=5, metavar="N", help="scores to list of a classifier (default: 5)")
    add_provider_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from ort_sdk.cli.models.building import read_model
    from ort_sdk.cli.models.sessions import open_session
    from ort_sdk.cli.results import print_results, save_outputs

    entries = provider_entries(arguments)
    model = read_model(arguments.model, lambda: entries)
    feeds = feeds_of(arguments, model)
    with progress(f"loading {arguments.model}"):
        session = open_session(arguments, entries)
    with progress(f"running {arguments.model}"):
        values = session.run(None, feeds)
    outputs = {argument.name: value for argument, value in zip(session.get_outputs(), values, strict=True)}
    files = save_outputs(outputs, arguments.output) if arguments.output else {}
    print_results(outputs, model.metadata, files, top=arguments.top, as_json=arguments.json)
    return ExitCode.OK


def feeds_of(arguments: argparse.Namespace, model: Model) -> dict[str, Any]:
    """The feeds of a run, all of them from files.

    Raises:
        InvalidArgument: an input without a file, or a file that does not fit.
    """
    from ort_sdk.cli.inputs.feeds import input_lines

    feeds = input_files(arguments, model)
    inputs = model.graph.inputs
    missing = [argument for argument in inputs if argument.name not in feeds and argument.name not in model.graph.initializers]
    if missing:
        raise InvalidArgument(f"give each of these inputs a file with --input NAME=FILE:\n{input_lines(missing)}")
    return feeds
