"""The ``ort-sdk`` command: one module per subcommand."""

from __future__ import annotations

from .command_line import main

__all__ = ["main"]
