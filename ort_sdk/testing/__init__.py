"""The conformance kit for providers, and devices that find faults without hardware.

``from ort_sdk.testing import ProviderConformance`` and subclass it; nothing heavy is imported before that name is used.
``KernelTypeStrResolver`` says what a kernel's type constraints speak of, as look-up sees it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ort_sdk.kernels import KernelTypeStrResolver

    from .conformance import ProviderConformance

__all__ = ["KernelTypeStrResolver", "ProviderConformance"]

_HOMES = {"KernelTypeStrResolver": "ort_sdk.kernels", "ProviderConformance": "ort_sdk.testing.conformance"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOMES[name]), name)
