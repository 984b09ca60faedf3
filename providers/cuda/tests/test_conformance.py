"""The CUDA provider through the kit that every provider goes through, on the stand-in."""

import numpy as np
import pytest
from ort_sdk_cuda.driver import use_cuda
from stand_in.plugin import StandInCudaProvider

from ort_sdk.testing import ProviderConformance


class TestCuda(ProviderConformance):
    plugin = StandInCudaProvider
    kernels_without_cases = {"*": "those of the shared operator set; the OpenCL provider's tests say what tests each of them"}

    @classmethod
    def pytest_generate_tests(cls, metafunc):
        super().pytest_generate_tests(metafunc)
        use_cuda(None)

    @pytest.fixture(autouse=True)
    def _all_programs_are_captured(self, caplog):
        yield
        assert "is not replayed as a CUDA graph" not in caplog.text

    def read_back(self, tensor):
        host = np.empty(tensor.shape, tensor.dtype)
        if host.nbytes:
            tensor.context.launcher.queue.download([(tensor.data_ptr, host)])
        return host
