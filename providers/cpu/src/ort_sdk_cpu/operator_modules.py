"""Which module has the kernels of which operator, so that a module is imported when a node needs it."""

from __future__ import annotations

import importlib

__all__ = ["MODULES", "load"]

MICROSOFT = "com.microsoft"

MODULES: dict[str, dict[str, tuple[str, ...]]] = {
    "elementwise.operators": {
        "": (
            *("Abs", "Acos", "Acosh", "Add", "And", "Asin", "Asinh", "Atan", "Atanh", "BitwiseAnd", "BitwiseNot", "BitwiseOr"),
            *("BitwiseXor", "Ceil", "Cos", "Cosh", "Div", "Equal", "Exp", "Floor", "Greater", "GreaterOrEqual", "IsNaN", "Less"),
            *("LessOrEqual", "Log", "Max", "Mean", "Min", "Mul", "Neg", "Not", "Or", "PRelu", "Pow", "Reciprocal", "Round"),
            *("Sign", "Sin", "Sinh", "Sqrt", "Sub", "Sum", "Tan", "Tanh", "Xor"),
        ),
    },
    "elementwise.activation": {
        "": (
            *("Celu", "Clip", "Elu", "Erf", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Mish", "Relu", "Selu", "Shrink"),
            *("Sigmoid", "Softplus", "Softsign", "Swish", "ThresholdedRelu"),
        ),
        MICROSOFT: ("BiasGelu", "FastGelu", "Gelu", "QuickGelu"),
    },
    "normalization.operators": {
        "": ("BatchNormalization", "LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization", "Softmax"),
        MICROSOFT: ("BiasSoftmax", "SkipLayerNormalization", "SkipSimplifiedLayerNormalization"),
    },
    "normalization.channels": {"": ("GroupNormalization", "InstanceNormalization")},
    "gemm.operators": {
        "": ("Gemm", "MatMul"),
        MICROSOFT: ("FusedGemm", "FusedMatMul", "FusedMatMulActivation", "TransposeMatMul"),
    },
    "gemm.einsum": {"": ("Einsum",)},
    "ml.linear_regressor": {"ai.onnx.ml": ("LinearRegressor",)},
    "attention.multi_head": {MICROSOFT: ("MultiHeadAttention",)},
    "attention.operators": {"": ("Attention",)},
    "attention.rotary": {"": ("RotaryEmbedding",), MICROSOFT: ("RotaryEmbedding",)},
    "attention.group_query": {MICROSOFT: ("GroupQueryAttention",)},
    "conv.operators": {"": ("Conv", "ConvTranspose"), MICROSOFT: ("FusedConv",)},
    "pool.operators": {"": ("AveragePool", "GlobalAveragePool", "GlobalMaxPool", "MaxPool")},
    "gemm.nbits.operators": {MICROSOFT: ("MatMulNBits",)},
    "ml.features": {"ai.onnx.ml": ("ArrayFeatureExtractor", "Imputer", "Normalizer", "OneHotEncoder", "Scaler")},
    "movement.gather_scatter": {
        "": ("GatherElements", "GatherND", "OneHot", "ReverseSequence", "Scatter", "ScatterElements", "ScatterND", "Tile"),
    },
    "movement.gather": {"": ("Gather",)},
    "movement.nonzero": {"": ("NonZero",)},
    "elementwise.cast": {"": ("Cast",)},
    "movement.operators": {
        "": (
            *("Concat", "DepthToSpace", "Expand", "Flatten", "Reshape", "SpaceToDepth", "Squeeze"),
            *("Transpose", "Unsqueeze"),
        ),
    },
    "movement.where": {"": ("Where",)},
    "movement.pad": {"": ("Pad",)},
    "quantized.operators": {
        "": (
            *("ConvInteger", "DequantizeLinear", "DynamicQuantizeLinear", "MatMulInteger", "QLinearConv", "QLinearMatMul"),
            "QuantizeLinear",
        ),
        MICROSOFT: (
            *("DequantizeLinear", "DynamicQuantizeMatMul", "MatMulIntegerToFloat", "QGemm", "QLinearConv", "QuantizeLinear"),
        ),
    },
    "quantized.elementwise": {
        MICROSOFT: (
            *("QLinearAdd", "QLinearAveragePool", "QLinearConcat", "QLinearGlobalAveragePool", "QLinearLeakyRelu", "QLinearMul"),
            *("QLinearSigmoid", "QLinearSoftmax", "QLinearWhere"),
        ),
    },
    "rnn.quantized": {MICROSOFT: ("DynamicQuantizeLSTM",)},
    "rnn.operators": {"": ("GRU", "LSTM", "RNN")},
    "image.resize": {"": ("Resize", "Upsample")},
    "image.non_max_suppression": {"": ("NonMaxSuppression",)},
    "ml.operators": {
        "ai.onnx.ml": ("LinearClassifier", "TreeEnsemble", "TreeEnsembleClassifier", "TreeEnsembleRegressor"),
    },
    "normalization.rows": {"": ("CumSum", "LogSoftmax", "LpNormalization", "ReduceLogSumExp", "Trilu")},
    "ml.svm": {"ai.onnx.ml": ("SVMClassifier", "SVMRegressor")},
    "conv.im2row.deformable": {"": ("DeformConv",)},
    "ml.distances": {MICROSOFT: ("CDist",)},
    "image.sampling": {"": ("GridSample", "RoiAlign")},
    "reduction.top_k": {"": ("TopK",)},
    "reduction.operators": {
        "": (
            *("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum"),
            *("ReduceSumSquare", "ArgMax", "ArgMin"),
        ),
    },
}
"""Module, below the package → domain → operators that it has kernels of."""

_MODULE_OF = {
    (domain, op_type): module for module, domains in MODULES.items() for domain, names in domains.items() for op_type in names
}


def load(domain: str, op_type: str) -> bool:
    """Import the module that has an operator's kernels; False if the shared operator set alone has them."""
    module = _MODULE_OF.get((domain, op_type))
    if module is None:
        return False
    importlib.import_module(f"{__package__}.{module}")
    return True
