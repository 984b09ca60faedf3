"""A provider of the host, given as an object."""

from ort_sdk.api import ExecutionProvider, OrtDevice, ProviderHooks, hookimpl


class Provider(ProviderHooks):
    name = "AlsoGoodExecutionProvider"
    api_version = 1

    @hookimpl
    def get_supported_devices(self):
        return [OrtDevice("cpu", 0)]

    @hookimpl
    def create_execution_provider(self, device, provider_options, session_options):
        return ExecutionProvider(self.name, device, provider_options)


PROVIDER = Provider()
