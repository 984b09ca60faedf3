"""The provider through ort_sdk's conformance kit. It is found by its entry point, so install it first."""

from ort_sdk.testing import ProviderConformance


class TestExampleNpu(ProviderConformance):
    provider_name = "example-npu"

    def read_back(self, tensor):
        return tensor.memory.copy()
