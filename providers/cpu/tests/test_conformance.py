"""The CPU provider through the kit that every provider goes through."""

from ort_sdk.testing import ProviderConformance


class TestCpu(ProviderConformance):
    provider_name = "cpu"
    kernels_without_cases = {
        "com.microsoft::*": "not of ONNX; compared with onnxruntime in tests/opset/test_contrib_*.py",
        "ai.onnx.ml::*": "compared with onnxruntime and scikit-learn in tests/opset/test_ml*.py",
        "ai.onnx::Constant": "made an initializer when the model is loaded",
        "ai.onnx::GlobalLpPool": "compared with onnxruntime in tests/opset/test_nn_pool.py",
        "ai.onnx::MaxRoiPool": "compared with onnxruntime in tests/opset/test_tensor.py",
        "ai.onnx::Multinomial": "draws; their distribution is measured in tests/opset/test_generator.py",
        "ai.onnx::Optional": "compared with the specification in tests/opset/test_sequence.py",
        "ai.onnx::Random*": "draws; their distributions are measured in tests/opset/test_generator.py",
        "ai.onnx::*Sequence*": "compared with onnxruntime in tests/opset/test_sequence.py",
    } | {
        f"ai.onnx::{op_type}": "ONNX Runtime's own; compared with it in tests/opset/test_contrib_*.py"
        for op_type in (
            *("Affine", "Crop", "DynamicSlice", "ImageScaler", "ParametricSoftplus", "Scale", "ScaledTanh"),
            "SimplifiedLayerNormalization",
        )
    }

    def read_back(self, tensor):
        return tensor
