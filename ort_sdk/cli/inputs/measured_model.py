"""The model, the session's options and the feeds of the commands that measure."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ort_sdk.api import InvalidArgument, NodeArg, Shape
from ort_sdk.cli.arguments import add_model_argument, add_provider_arguments, count
from ort_sdk.cli.output import shape_text
from ort_sdk.graph import Model

from .arguments import add_input_arguments, input_files

__all__ = ["add_feed_arguments", "add_measuring_arguments", "measured_feeds"]


def add_feed_arguments(parser: argparse.ArgumentParser) -> None:
    """Inputs from files, and sizes of those that are made up."""
    add_input_arguments(parser)
    parser.add_argument(
        "--dim", action="append", default=[], metavar="NAME=N", help="size of a symbolic dimension of made-up inputs (default: 1)"
    )


def add_measuring_arguments(parser: argparse.ArgumentParser, runs: int) -> None:
    """Model, inputs, number of runs and providers."""
    add_model_argument(parser)
    add_feed_arguments(parser)
    parser.add_argument("--runs", type=count, default=runs, metavar="N", help=f"measured runs (default: {runs})")
    parser.add_argument("--warmup", type=count, default=3, metavar="N", help="runs before them (default: 3)")
    add_provider_arguments(parser)


def measured_feeds(
    arguments: argparse.Namespace,
    model: Model,
    makes_up: Callable[[NodeArg], bool] = lambda _argument: True,
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> dict[str, Any]:
    """Feeds from files, and made-up ones for the other inputs.

    Args:
        arguments: of the command.
        model: to be fed.
        makes_up: whether to make a value up for an input.
        shapes: input name → shape of the value that is made up.

    Raises:
        InvalidArgument: a file does not fit, or no value can be made up.
    """
    import numpy as np

    from .generated_feeds import generated_feed, read_dimensions

    dimensions = read_dimensions(arguments.dim, model.graph.inputs)
    feeds = input_files(arguments, model)
    generator = np.random.default_rng(0)
    shapes = shapes or {}
    for argument in model.graph.inputs:
        if argument.name not in feeds and argument.name not in model.graph.initializers and makes_up(argument):
            feeds[argument.name] = generated_feed(_shaped(argument, shapes), dimensions, generator)
    unknown = [name for name in shapes if name not in feeds]
    if unknown:
        known = ", ".join(argument.name for argument in model.graph.inputs)
        raise InvalidArgument(f"--shape names {', '.join(unknown)}; the model's inputs are {known}")
    return feeds


def _shaped(argument: NodeArg, shapes: Mapping[str, Sequence[int]]) -> NodeArg:
    """An input with the shape that is wanted of it.

    Raises:
        InvalidArgument: the model declares another one.
    """
    wanted, declared = shapes.get(argument.name), argument.shape
    if wanted is None:
        return argument
    if declared is not None and not _fits(wanted, declared):
        raise InvalidArgument(f"--shape {argument.name}:{'x'.join(map(str, wanted))}: the model declares {shape_text(declared)}")
    return NodeArg(argument.name, argument.type, tuple(wanted))


def _fits(shape: Sequence[int], declared: Shape) -> bool:
    """Whether a shape has the sizes that are declared as numbers."""
    same = len(declared) == len(shape)
    return same and all(not isinstance(dim, int) or dim == size for dim, size in zip(declared, shape, strict=True))
