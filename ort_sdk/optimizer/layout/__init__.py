"""Level 3: passes for providers that choose the layout of data, where a value less between nodes is a copy less."""

from __future__ import annotations

from ort_sdk.optimizer.transformer import deferred

__all__ = ["TRANSFORMERS"]

TRANSFORMERS = deferred(__name__, ("conv_sum_fusion", ("ConvSumFusion",), ({"Conv"}, {"Add"})))
"""Modules, passes and what they need, in the order the passes run."""
