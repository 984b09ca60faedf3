"""Packages that an installation may lack, since models in ORT format run without them."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager

from .errors import Fail

__all__ = ["is_installed", "needs_package"]


@contextmanager
def needs_package(package: str, purpose: str) -> Iterator[None]:
    """Wraps the import of a package.

    Args:
        package: the name by which pip installs it.
        purpose: what it is needed for, "reading a model in ONNX format".

    Raises:
        Fail: it cannot be found, or a module that it needs; the text says what to install.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise Fail(f"{purpose} needs the package '{package}', which is missing here ({error}): pip install {package}") from error


def is_installed(module: str) -> bool:
    """Whether a top-level module can be found. It is not imported."""
    return importlib.util.find_spec(module) is not None
