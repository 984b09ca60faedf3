"""The strict provider through the kit: its devices find the host's faults, the kit finds its own."""

from ort_sdk.testing import ProviderConformance
from ort_sdk.testing.strict.memory import peek
from ort_sdk.testing.strict.provider import StrictProvider


class TestStrict(ProviderConformance):
    plugin = StrictProvider()
    kernels_without_cases = {
        "com.microsoft::*": "the shared operator set's; tested over NumPy in tests/opset",
        "ai.onnx.ml::*": "the shared operator set's; tested over NumPy in tests/opset",
        "ai.onnx::*": "the shared operator set's; tested over NumPy in tests/opset",
    }

    def read_back(self, tensor):
        return peek(tensor)
