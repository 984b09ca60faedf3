"""A provider that does everything right."""

from ort_sdk.api import ExecutionProvider, OrtDevice, ProviderHooks, hookimpl


class Provider(ProviderHooks):
    name = "GoodExecutionProvider"
    api_version = 1

    @hookimpl
    def get_supported_devices(self):
        return [OrtDevice("fake", 0)]

    @hookimpl
    def create_execution_provider(self, device, provider_options, session_options):
        return ExecutionProvider(self.name, device, provider_options)

    @hookimpl
    def get_capability(self, execution_provider, graph_viewer, kernel_lookup):
        return None

    @hookimpl
    def compile(self, execution_provider, fused_nodes):
        raise ValueError("compiler lost")
