"""The OpenCL provider through the kit that every provider goes through, on each platform's device."""

import numpy as np
import pyopencl as cl
import pytest

from ort_sdk.testing import ProviderConformance

pytestmark = pytest.mark.opencl


class _OpenCl(ProviderConformance):
    provider_name = "opencl"
    kernels_without_cases = {
        "com.microsoft::*": "the shared operator set's; compared with onnxruntime in tests/opset/test_contrib_*.py",
        "ai.onnx::Constant": "made an initializer when the model is loaded",
        "ai.onnx::GlobalLpPool": "the shared operator set's; compared with onnxruntime in tests/opset/test_nn_pool.py",
        "ai.onnx::*Sequence*": "moves whole arrays; compared with onnxruntime in tests/opset/test_sequence.py",
        "ai.onnx::MaxRoiPool": "the shared operator set's; compared with onnxruntime in tests/opset/test_tensor.py",
        "ai.onnx::Multinomial": "draws; their distribution is measured in tests/opset/test_generator.py",
        "ai.onnx::Random*": "draws; their distributions are measured in tests/opset/test_generator.py",
        "ai.onnx.ml::*": "the shared operator set's; compared with onnxruntime and scikit-learn in tests/opset/test_ml*.py",
        "ai.onnx::Optional": "moves whole arrays; compared with the specification in tests/opset/test_sequence.py",
    } | {
        f"ai.onnx::{op_type}": "ONNX Runtime's own, of the shared operator set; compared with it in tests/opset/test_contrib_*.py"
        for op_type in (
            *("Affine", "Crop", "DynamicSlice", "ImageScaler", "ParametricSoftplus", "Scale", "ScaledTanh"),
            "SimplifiedLayerNormalization",
        )
    }

    def read_back(self, tensor):
        host = np.empty(tensor.shape, tensor.dtype)
        if host.nbytes:
            queue = tensor.context.launcher.queue.queue
            cl.enqueue_copy(queue, host.reshape(-1).view(np.uint8), tensor.dense().memory.handle, is_blocking=True)
        return host


class TestPoCL(_OpenCl):
    platform_key = "pocl"
    provider_options = {"platform": "Portable Computing Language"}


class TestIntel(_OpenCl):
    platform_key = "intel"
    provider_options = {"platform": "Intel(R) OpenCL", "dialect": "opencl+subgroups"}
