"""ONNX Runtime's severities on Python's logging."""

from __future__ import annotations

import logging
import operator

from ort_sdk.api import InvalidArgument

__all__ = ["LEVELS", "SessionLog", "set_default_logger_severity", "set_default_logger_verbosity"]

LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)
"""Severity (0 verbose … 4 fatal) → Python's level."""

_root = logging.getLogger("ort_sdk")
_logger = logging.getLogger("ort_sdk.session")


def set_default_logger_severity(severity: int) -> None:
    """Least severity that is logged: 0 verbose, 1 info, 2 warning, 3 error, 4 fatal.

    Raises:
        InvalidArgument: another number.
    """
    if severity not in range(len(LEVELS)):
        raise InvalidArgument(f"Invalid logging severity. 0:Verbose, 1:Info, 2:Warning, 3:Error, 4:Fatal; got {severity!r}")
    _root.setLevel(LEVELS[severity])


def set_default_logger_verbosity(verbosity: int) -> None:
    """Accepted: verbose messages have one level."""
    operator.index(verbosity)


class SessionLog:
    """Log of one session.

    Args:
        logid: name of the session; may be empty.
        severity: least severity logged; negative for the process's.
    """

    def __init__(self, logid: str, severity: int) -> None:
        self._prefix = f"[{logid}] " if logid else ""
        self._level = LEVELS[min(severity, len(LEVELS) - 1)] if severity >= 0 else logging.NOTSET

    def is_enabled_for(self, level: int) -> bool:
        """Whether messages of a level are logged."""
        return level >= self._level and bool(self._level or _logger.isEnabledFor(level))

    def log(self, level: int, message: str, *arguments: object) -> None:
        """Log a message of one of Python's levels."""
        if not self.is_enabled_for(level):
            return
        record = _logger.makeRecord(_logger.name, level, __file__, 0, self._prefix + message, arguments, None)
        _logger.handle(record)
