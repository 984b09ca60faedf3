"""Which module binds or computes which operator, so that a module is imported when an operator needs it."""

from __future__ import annotations

import importlib

__all__ = ["MODULES", "load"]

MICROSOFT = "com.microsoft"

MODULES: dict[str, dict[str, tuple[str, ...]]] = {
    "elementwise": {
        "": (
            *("Abs", "Acos", "Acosh", "Add", "And", "Asin", "Asinh", "Atan", "Atanh", "BitwiseAnd", "BitwiseNot", "BitwiseOr"),
            *("BitwiseXor", "Ceil", "Cos", "Cosh", "Div", "Equal", "Exp", "Floor", "Greater", "GreaterOrEqual", "IsNaN", "Less"),
            *("LessOrEqual", "Log", "Max", "Mean", "Min", "Mul", "Neg", "Not", "Or", "PRelu", "Pow", "Reciprocal", "Round"),
            *("Sign", "Sin", "Sinh", "Sqrt", "Sub", "Sum", "Tan", "Tanh", "Xor"),
        ),
    },
    "activation": {
        "": (
            *("Celu", "Clip", "Elu", "Erf", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Mish", "Relu", "Selu", "Shrink"),
            *("Sigmoid", "Softplus", "Softsign", "Swish", "ThresholdedRelu"),
        ),
        MICROSOFT: ("BiasGelu", "FastGelu", "Gelu", "QuickGelu"),
    },
    "normalization": {
        "": ("BatchNormalization", "LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization", "Softmax"),
        MICROSOFT: ("BiasSoftmax", "SkipLayerNormalization", "SkipSimplifiedLayerNormalization"),
    },
    "channel_normalization": {"": ("GroupNormalization", "InstanceNormalization")},
    "matrix": {
        "": ("Gemm", "MatMul"),
        MICROSOFT: ("FusedGemm", "FusedMatMul", "FusedMatMulActivation", "TransposeMatMul"),
    },
    "einsum": {"": ("Einsum",)},
    "linear_regressor": {"ai.onnx.ml": ("LinearRegressor",)},
    "attention": {MICROSOFT: ("MultiHeadAttention",)},
    "attention_over_cache": {"": ("Attention",)},
    "rotary": {"": ("RotaryEmbedding",), MICROSOFT: ("RotaryEmbedding",)},
    "group_query_attention": {MICROSOFT: ("GroupQueryAttention",)},
    "conv": {"": ("Conv", "ConvTranspose"), MICROSOFT: ("FusedConv",)},
    "pool": {"": ("AveragePool", "GlobalAveragePool", "GlobalMaxPool", "MaxPool")},
    "matmul_nbits": {MICROSOFT: ("MatMulNBits",)},
    "features": {"ai.onnx.ml": ("ArrayFeatureExtractor", "Imputer", "Normalizer", "OneHotEncoder", "Scaler")},
    "indexing": {
        "": ("GatherElements", "GatherND", "OneHot", "ReverseSequence", "Scatter", "ScatterElements", "ScatterND", "Tile"),
    },
    "nonzero": {"": ("NonZero",)},
    "conversion": {"": ("Cast",)},
    "movement": {
        "": (
            *("Concat", "DepthToSpace", "Expand", "Flatten", "Gather", "Reshape", "SpaceToDepth", "Squeeze"),
            *("Transpose", "Unsqueeze", "Where"),
        ),
    },
    "pad": {"": ("Pad",)},
    "quantized": {
        "": (
            *("ConvInteger", "DequantizeLinear", "DynamicQuantizeLinear", "MatMulInteger", "QLinearConv", "QLinearMatMul"),
            "QuantizeLinear",
        ),
        MICROSOFT: (
            *("DequantizeLinear", "DynamicQuantizeMatMul", "MatMulIntegerToFloat", "QGemm", "QLinearConv", "QuantizeLinear"),
        ),
    },
    "quantized_elementwise": {
        MICROSOFT: (
            *("QLinearAdd", "QLinearAveragePool", "QLinearConcat", "QLinearGlobalAveragePool", "QLinearLeakyRelu", "QLinearMul"),
            *("QLinearSigmoid", "QLinearSoftmax", "QLinearWhere"),
        ),
    },
    "quantized_recurrent": {MICROSOFT: ("DynamicQuantizeLSTM",)},
    "recurrent": {"": ("GRU", "LSTM", "RNN")},
    "resize": {"": ("Resize", "Upsample")},
    "suppression": {"": ("NonMaxSuppression",)},
    "classifiers": {
        "ai.onnx.ml": ("LinearClassifier", "TreeEnsemble", "TreeEnsembleClassifier", "TreeEnsembleRegressor"),
    },
    "row_functions": {"": ("CumSum", "LogSoftmax", "LpNormalization", "ReduceLogSumExp", "Trilu")},
    "support_vectors": {"ai.onnx.ml": ("SVMClassifier", "SVMRegressor")},
    "deform_conv": {"": ("DeformConv",)},
    "distances": {MICROSOFT: ("CDist",)},
    "sampling": {"": ("GridSample", "RoiAlign")},
    "selection": {"": ("TopK",)},
    "reduction": {
        "": (
            *("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum"),
            *("ReduceSumSquare", "ArgMax", "ArgMin"),
        ),
    },
}
"""Module → domain → operators it binds, or computes in another way."""

_MODULE_OF = {
    (domain, op_type): module for module, domains in MODULES.items() for domain, names in domains.items() for op_type in names
}


def load(domain: str, op_type: str) -> bool:
    """Import the module an operator is in; False if there is none."""
    module = _MODULE_OF.get((domain, op_type))
    if module is None:
        return False
    importlib.import_module(f"{__package__}.{module}")
    return True
