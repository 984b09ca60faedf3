"""Written for a later host."""

from ort_sdk.api import ExecutionProvider, OrtDevice, ProviderHooks, hookimpl


class Provider(ProviderHooks):
    name = "TooNewExecutionProvider"
    api_version = 99

    @hookimpl
    def get_supported_devices(self):
        return [OrtDevice("fake", 0)]

    @hookimpl
    def create_execution_provider(self, device, provider_options, session_options):
        return ExecutionProvider(self.name, device, provider_options)
