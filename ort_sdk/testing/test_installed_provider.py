"""The kit for an installed provider, with no test file of its own.

``pytest --ort-provider npu --pyargs ort_sdk.testing``
"""

from __future__ import annotations

from .conformance import ProviderConformance


class TestInstalledProvider(ProviderConformance):
    """The provider that ``--ort-provider`` names."""
