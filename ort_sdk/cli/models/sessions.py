"""Sessions as users make them, from the command's arguments."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from ort_sdk.session.inference_session import InferenceSession
from ort_sdk.session.option_enums import GraphOptimizationLevel
from ort_sdk.session.options.session_options import SessionOptions

__all__ = ["OPTIMIZATION_LEVELS", "open_session"]

OPTIMIZATION_LEVELS = {
    "none": GraphOptimizationLevel.ORT_DISABLE_ALL,
    "basic": GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "all": GraphOptimizationLevel.ORT_ENABLE_ALL,
}
"""Names of the optimizer's levels → what session options call them."""


def open_session(arguments: argparse.Namespace, entries: Sequence[tuple[str, Mapping[str, Any]]]) -> InferenceSession:
    """A session for the model, level and (of ``bench``) threads of a command line, on these providers."""
    options = SessionOptions()
    options.graph_optimization_level = OPTIMIZATION_LEVELS[arguments.level]
    options.intra_op_num_threads = getattr(arguments, "threads", None) or 0
    return InferenceSession(arguments.model, options, providers=list(entries))
