"""A hook whose parameter has a default."""

from ort_sdk.api import ExecutionProvider, OrtDevice, ProviderHooks, hookimpl


class Provider(ProviderHooks):
    name = "DefaultedExecutionProvider"
    api_version = 1

    @hookimpl
    def get_supported_devices(self):
        return [OrtDevice("fake", 0)]

    @hookimpl
    def create_execution_provider(self, device, provider_options, session_options):
        return ExecutionProvider(self.name, device, provider_options)

    @hookimpl
    def create_allocator(self, execution_provider, memory_info=None):
        return None
