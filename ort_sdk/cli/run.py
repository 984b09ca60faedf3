"""``ort-sdk run``: one run of a model on files."""

from __future__ import annotations

import argparse
from typing import Any

from ort_sdk.api import InvalidArgument
from ort_sdk.graph import Model

from .arguments import add_model_argument, add_provider_arguments, count, provider_entries
from .exit_codes import ExitCode
from .output import progress

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    add_model_argument(parser)
    add_input_arguments(parser)
    parser.add_argument("--output", metavar="FOLDER", help="write each output to FOLDER/NAME.npy")
    parser.add_argument("--top", type=count, default=5, metavar="N", help="scores to list of a classifier (default: 5)")
    add_provider_arguments(parser)


def add_input_arguments(parser: argparse.ArgumentParser) -> None:
    """Input files, and how to prepare pictures."""
    parser.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="[NAME=]FILE",
        help="input from a file: .npy, .npz, .txt, .json, or a picture (.png, .jpg, .jpeg, .bmp). The name may be left out if "
        "the model has one input. Repeat for other inputs; repeat a name for a batch",
    )
    parser.add_argument(
        "--dtype", default="auto", metavar="TYPE", help="convert inputs to this element type (default: the input's)"
    )
    pictures = parser.add_argument_group("pictures", "auto (the default) takes what the model's input says")
    pictures.add_argument("--resize", default="auto", metavar="WxH", help="size in pixels")
    pictures.add_argument("--layout", choices=["auto", "nchw", "nhwc"], default="auto")
    pictures.add_argument("--channels", choices=["auto", "gray", "rgb", "bgr", "rgba"], default="auto")
    pictures.add_argument("--scale", default="auto", metavar="FACTOR", help="factor for pixel values, such as 1/255")
    pictures.add_argument("--mean", metavar="A,B,C", help="subtracted after scaling; one number, or one per channel")
    pictures.add_argument("--std", metavar="A,B,C", help="divides after --mean; one number, or one per channel")


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from .building import read_model
    from .results import print_results, save_outputs
    from .sessions import open_session

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
    from .feeds import input_lines

    feeds = input_files(arguments, model)
    inputs = model.graph.inputs
    missing = [argument for argument in inputs if argument.name not in feeds and argument.name not in model.graph.initializers]
    if missing:
        raise InvalidArgument(f"give each of these inputs a file with --input NAME=FILE:\n{input_lines(missing)}")
    return feeds


def input_files(arguments: argparse.Namespace, model: Model) -> dict[str, Any]:
    """The feeds that ``--input`` names."""
    from .feeds import read_feeds
    from .pictures import PictureOptions

    pictures = PictureOptions(
        size=_size(arguments.resize),
        layout=_given(arguments.layout),
        channels=_given(arguments.channels),
        scale=None if arguments.scale == "auto" else _number(arguments.scale, "--scale"),
        mean=_numbers(arguments.mean, "--mean"),
        std=_numbers(arguments.std, "--std"),
    )
    if 0 in pictures.std:
        raise InvalidArgument(f"--std divides, so none of its numbers may be 0, got {arguments.std!r}")
    return read_feeds(arguments.input, model.graph.inputs, pictures, _given(arguments.dtype))


def _given(text: str) -> str | None:
    return None if text == "auto" else text


def _size(text: str) -> tuple[int, int] | None:
    if text == "auto":
        return None
    width, _, height = text.lower().partition("x")
    if not (width.isdigit() and height.isdigit() and int(width) and int(height)):
        raise InvalidArgument(f"--resize takes WIDTHxHEIGHT in pixels, such as 224x224, got {text!r}")
    return int(width), int(height)


def _number(text: str, option: str) -> float:
    try:
        numerator, _, denominator = text.partition("/")
        return float(numerator) / float(denominator or 1)
    except (ValueError, ZeroDivisionError):
        raise InvalidArgument(f"{option} takes numbers such as 0.5 or 1/255, got {text!r}") from None


def _numbers(text: str | None, option: str) -> tuple[float, ...]:
    return () if text is None else tuple(_number(word, option) for word in text.split(","))
