"""Arguments that several commands share."""

from __future__ import annotations

import argparse
from typing import Any

from ort_sdk.api import InvalidArgument

__all__ = [
    "LEVELS",
    "add_model_argument",
    "add_nodes_argument",
    "add_provider_arguments",
    "count",
    "key_value",
    "provider_entries",
]

LEVELS = {"none": 0, "basic": 1, "extended": 2, "all": 3}
"""Names of the optimizer's levels."""


def add_model_argument(parser: argparse.ArgumentParser) -> None:
    """The model file."""
    parser.add_argument("model", metavar="MODEL", help="model file (.onnx or .ort)")


def add_provider_arguments(parser: argparse.ArgumentParser, *, level: str = "all") -> None:
    """Providers, their options, and the optimizer's level, with its default."""
    parser.add_argument(
        "--provider",
        action="append",
        default=[],
        metavar="NAME",
        help="execution provider, by name or short name (cpu); repeat in order of preference. The CPU provider is "
        "always last, and alone by default",
    )
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="option of the first provider; NAME.KEY=VALUE for another one",
    )
    parser.add_argument(
        "--level",
        choices=list(LEVELS),
        default=level,
        help=f"how far the optimizer goes: {', '.join(f'{name} (default)' if name == level else name for name in LEVELS)}",
    )


def add_nodes_argument(parser: argparse.ArgumentParser) -> None:
    """Rows per node instead of per operator."""
    parser.add_argument("--nodes", action="store_true", help="list every node instead of operators")


def count(text: str) -> int:
    """A whole number above 0, for argparse."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"takes a whole number above 0, got {text!r}")
    return int(text)


def key_value(text: str, option: str) -> tuple[str, str]:
    """Both sides of ``KEY=VALUE``.

    Raises:
        InvalidArgument: there is no ``=``, or nothing before it.
    """
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise InvalidArgument(f"{option} takes KEY=VALUE, got {text!r}")
    return key, value


def provider_entries(arguments: argparse.Namespace) -> list[tuple[str, dict[str, Any]]]:
    """Provider names with their options, as ``InferenceSession`` takes them.

    Raises:
        InvalidArgument: an option of a provider that was not named.
    """
    from ort_sdk.plugins import plugin_manager

    named = arguments.provider or ["CPUExecutionProvider"]
    names = [plugin_manager().handle(name).name for name in named]
    options: dict[str, dict[str, Any]] = {name: {} for name in names}
    for text in arguments.option:
        key, value = key_value(text, "--option")
        owner, separator, own_key = key.partition(".")
        if separator and owner in (*named, *names):
            options[names[named.index(owner)] if owner in named else owner][own_key] = value
        else:
            options[names[0]][key] = value
    return list(options.items())
