"""The operator families, one module or package each, imported when the operator set is first used."""

from __future__ import annotations

import functools
import importlib

__all__ = ["load"]

FAMILIES = (
    "activation",
    "math",
    "nn",
    "tensor",
    "reduction",
    "generator",
    "quantization",
    "controlflow",
    "sequence",
    "text",
    "image",
    "ml",
    "llm",
    "training",
    "contrib",
)


@functools.cache
def load() -> None:
    """Import every family, which declares its operators."""
    for family in FAMILIES:
        importlib.import_module(f"{__package__}.{family}")
