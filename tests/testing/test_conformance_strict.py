"""The strict provider through the kit: its devices find the host's faults, the kit finds its own."""

from ort_sdk.testing import ProviderConformance
from ort_sdk.testing.strict.memory import peek
from ort_sdk.testing.strict.provider import StrictProvider
from ort_sdk.testing.suites.allocator import AllocatorSuite
from ort_sdk.testing.suites.data_transfer import DataTransferSuite
from ort_sdk.testing.suites.provider import DiscoverySuite
from ort_sdk.testing.suites.session import SessionSuite


class TestAsynchronousStrict(DiscoverySuite, AllocatorSuite, DataTransferSuite, SessionSuite):
    """Runs end before their work. Kernels are those of the other."""

    plugin = StrictProvider(is_asynchronous=True)

    @classmethod
    def pytest_generate_tests(cls, metafunc):
        ProviderConformance.pytest_generate_tests.__func__(cls, metafunc)

    def read_back(self, tensor):
        return peek(tensor)


class TestStrict(ProviderConformance):
    plugin = StrictProvider()
    kernels_without_cases = {
        "com.microsoft::*": "the shared operator set's; tested over NumPy in tests/opset",
        "ai.onnx.ml::*": "the shared operator set's; tested over NumPy in tests/opset",
        "ai.onnx::*": "the shared operator set's; tested over NumPy in tests/opset",
    }

    def read_back(self, tensor):
        return peek(tensor)
