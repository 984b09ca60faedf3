"""Shape inference: what is known of shapes, and of the elements of small integer tensors, before a model runs.

Dimensions are numbers, symbols (``batch``) or None. A rule for each operator says how output shapes follow from input
shapes; rules are in modules by family and are found by domain and op type.
"""

from __future__ import annotations

from . import contents
from .infer import infer_shapes
from .node_call import Contents
from .rules import convolution, elementwise, indexing, matrix, movement, normalization, reduction

__all__ = [
    "Contents",
    "contents",
    "convolution",
    "elementwise",
    "indexing",
    "infer_shapes",
    "matrix",
    "movement",
    "normalization",
    "reduction",
]
