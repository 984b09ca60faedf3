"""No device is here."""

from ort_sdk.api import ExecutionProvider, ProviderHooks, hookimpl


class Provider(ProviderHooks):
    name = "NoDeviceExecutionProvider"
    api_version = 1

    @hookimpl
    def get_supported_devices(self):
        return []

    @hookimpl
    def create_execution_provider(self, device, provider_options, session_options):
        return ExecutionProvider(self.name, device, provider_options)
