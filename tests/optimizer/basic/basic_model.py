"""Level 1 in tests: which operators are left, and results that stay the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnxruntime

from ort_sdk.graph import Graph
from tests.optimizer.extended.fused_graph import feeds_of, open_session


def basic_graph(model: bytes, disabled: Sequence[str] = (), config: Mapping[str, str] | None = None) -> Graph:
    """The graph a session runs at level 1."""
    return open_session(model, 1, disabled, config)._state.model.graph


def basic_ops(model: bytes, disabled: Sequence[str] = (), config: Mapping[str, str] | None = None) -> list[str]:
    """Operators left at level 1, in order."""
    return [node.op_type for node in basic_graph(model, disabled, config).nodes]


def assert_equal_at_levels(
    model: bytes, feeds: Mapping[str, np.ndarray] | None = None, *, rtol: float = 1e-5, atol: float = 1e-6, ort: bool = True
) -> None:
    """Results at levels 1 and 3 are those at level 0, and ONNX Runtime's without optimization."""
    feeds = feeds_of(model) if feeds is None else feeds
    expected = [open_session(model, 0).run(None, feeds)]
    if ort:
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        expected.append(onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"]).run(None, feeds))
    for level in (1, 3):
        session = open_session(model, level)
        for _ in range(2):
            for reference in expected:
                for actual, wanted in zip(session.run(None, feeds), reference, strict=True):
                    assert actual.dtype == wanted.dtype
                    np.testing.assert_allclose(actual, wanted, rtol=rtol, atol=atol)
