"""How a session treats code that is not compiled yet: its config entry, or what the environment says."""

from __future__ import annotations

import os
from collections.abc import Mapping

from ort_sdk.api import InvalidArgument
from ort_sdk.config_keys import COMPILATION

__all__ = ["COMPILATION_VARIABLE", "MODES", "compilation_mode"]

COMPILATION_VARIABLE = "ORT_SDK_COMPILATION"
"""Environment variable: the mode of sessions that set none."""
MODES = ("background", "wait", "never")


def compilation_mode(config: Mapping[str, str]) -> str:
    """One of ``MODES``: what the entry ``session.compilation`` says, else the environment variable, else ``background``.

    Raises:
        InvalidArgument: it is another text.
    """
    source, mode = f"config entry {COMPILATION}", config.get(COMPILATION, "")
    if not mode:
        source, mode = f"environment variable {COMPILATION_VARIABLE}", os.environ.get(COMPILATION_VARIABLE) or COMPILATION.default
    if mode not in MODES:
        raise InvalidArgument(f"{source} is {mode!r}; it takes one of {', '.join(MODES)}")
    return mode
