"""Arguments that name input files, and say how to prepare images."""

from __future__ import annotations

import argparse
from typing import Any

from ort_sdk.api import InvalidArgument
from ort_sdk.graph import Model

__all__ = ["add_input_arguments", "input_files"]


def add_input_arguments(parser: argparse.ArgumentParser) -> None:
    """Input files, and how to prepare images."""
    parser.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="[NAME=]FILE",
        help="input from a file: .npy, .npz, .txt, .json, or an image (.png, .jpg, .jpeg, .bmp). The name may be left out if "
        "the model has one input. Repeat for other inputs; repeat a name for a batch",
    )
    parser.add_argument(
        "--dtype", default="auto", metavar="TYPE", help="convert inputs to this element type (default: the input's)"
    )
    images = parser.add_argument_group("images", "auto (the default) takes what the model's input says")
    images.add_argument("--resize", default="auto", metavar="WxH", help="size in pixels")
    images.add_argument("--layout", choices=["auto", "nchw", "nhwc"], default="auto")
    images.add_argument("--channels", choices=["auto", "gray", "rgb", "bgr", "rgba"], default="auto")
    images.add_argument("--scale", default="auto", metavar="FACTOR", help="factor for pixel values, such as 1/255")
    images.add_argument("--mean", metavar="A,B,C", help="subtracted after scaling; one number, or one per channel")
    images.add_argument("--std", metavar="A,B,C", help="divides after --mean; one number, or one per channel")


def input_files(arguments: argparse.Namespace, model: Model) -> dict[str, Any]:
    """The feeds that ``--input`` names."""
    from ort_sdk.cli.inputs.feeds import read_feeds
    from ort_sdk.cli.inputs.images import ImageOptions

    images = ImageOptions(
        size=_size(arguments.resize),
        layout=_given(arguments.layout),
        channels=_given(arguments.channels),
        scale=None if arguments.scale == "auto" else _number(arguments.scale, "--scale"),
        mean=_numbers(arguments.mean, "--mean"),
        std=_numbers(arguments.std, "--std"),
    )
    if 0 in images.std:
        raise InvalidArgument(f"--std divides, so none of its numbers may be 0, got {arguments.std!r}")
    return read_feeds(arguments.input, model.graph.inputs, images, _given(arguments.dtype))


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
