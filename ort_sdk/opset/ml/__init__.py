"""Operators of the ml family: ai.onnx.ml."""

from . import encoders, features, linear, maps, svm, tree_ensemble

__all__ = ["encoders", "features", "linear", "maps", "svm", "tree_ensemble"]
