"""A provider that prints whenever it is asked anything."""

import sys

from ort_sdk.api import ExecutionProvider, KernelRegistry, OrtDevice, ProviderHooks, hookimpl

sys.stdout.write("noise of the import\n")


class Provider(ProviderHooks):
    name = "PrintingExecutionProvider"
    api_version = 1

    @hookimpl
    def get_supported_devices(self):
        sys.stdout.write("noise of the devices\n")
        return [OrtDevice("cpu", 0)]

    @hookimpl
    def create_execution_provider(self, device, provider_options, session_options):
        sys.stdout.write("noise of the session\n")
        return ExecutionProvider(self.name, device, provider_options)

    @hookimpl
    def get_kernel_registry(self, execution_provider):
        return KernelRegistry(self.name)
