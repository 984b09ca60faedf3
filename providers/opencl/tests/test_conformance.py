"""The OpenCL provider through the kit that every provider goes through."""

import numpy as np
import pyopencl as cl
import pytest

from ort_sdk.testing import ProviderConformance

pytestmark = pytest.mark.opencl


class TestOpenCl(ProviderConformance):
    provider_name = "opencl"

    def read_back(self, tensor):
        host = np.empty(tensor.shape, tensor.dtype)
        if host.nbytes:
            cl.enqueue_copy(tensor.context.queue, host, tensor.buffer, is_blocking=True)
        return host
