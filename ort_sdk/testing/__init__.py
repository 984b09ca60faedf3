"""The conformance kit for providers, and devices that find faults without hardware.

``from ort_sdk.testing import ProviderConformance`` and subclass it; nothing heavy is imported before that name is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .conformance import ProviderConformance

__all__ = ["ProviderConformance"]


def __getattr__(name: str) -> Any:
    if name != "ProviderConformance":
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    from .conformance import ProviderConformance

    return ProviderConformance
