"""A provider without its required hooks."""

from ort_sdk.api import ProviderHooks


class Provider(ProviderHooks):
    name = "IncompleteExecutionProvider"
    api_version = 1
