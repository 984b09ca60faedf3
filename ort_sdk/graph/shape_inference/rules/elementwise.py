"""Operators whose output has the shape of an input, or what the inputs broadcast to."""

from __future__ import annotations

from ort_sdk.api import Shape
from ort_sdk.graph.shape_inference.dimensions import broadcast
from ort_sdk.graph.shape_inference.node_call import NodeCall, shape_rule


@shape_rule(
    *("Abs", "Acos", "Acosh", "Affine", "Asin", "Asinh", "Atan", "Atanh", "Bernoulli", "BitCast", "BitwiseNot", "Cast"),
    *("CastLike", "Ceil", "Celu", "Clip", "Cos", "Cosh", "CumProd", "CumSum", "Elu", "Erf", "Exp", "EyeLike", "Floor", "Gelu"),
    *("HardSigmoid", "HardSwish", "Hardmax", "Identity", "ImageScaler", "IsInf", "IsNaN", "LeakyRelu", "Log", "LogSoftmax"),
    *("Mish", "Neg", "Not", "PRelu", "ParametricSoftplus", "RandomNormalLike", "RandomUniformLike", "Reciprocal", "Relu"),
    *("ReverseSequence", "Round", "ScaledTanh", "Scale", "Selu", "Shrink", "Sigmoid", "Sign", "Sin", "Sinh", "Softmax"),
    *("Softplus", "Softsign", "Sqrt", "Swish", "Tan", "Tanh", "ThresholdedRelu", "Trilu"),
    *("DequantizeLinear", "QuantizeLinear"),
)
@shape_rule(
    *("BiasAdd", "BiasGelu", "BiasSoftmax", "ComplexMul", "ComplexMulConj", "FastGelu", "Gelu", "Inverse", "QuickGelu"),
    *("ScaledSiLU", "Trilu"),
    domain="com.microsoft",
)
@shape_rule("Binarizer", "LabelEncoder", "Normalizer", "Scaler", "Imputer", domain="ai.onnx.ml")
def like_first(call: NodeCall) -> list[Shape | None]:
    """Shape of the first input."""
    return [call.shape(0)]


@shape_rule("Dropout")
@shape_rule("BiasDropout", "BitmaskDropout", domain="com.microsoft")
def dropout(call: NodeCall) -> list[Shape | None]:
    """Data and mask."""
    is_bitmask = call.node.op_type == "BitmaskDropout"
    return [call.shape(0), None if is_bitmask else call.shape(0)]


@shape_rule("Max", "Mean", "Min", "Sum", "Where", "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Mod")
@shape_rule("GreaterOrEqual", "LessOrEqual")
def broadcasting(call: NodeCall) -> list[Shape | None]:
    """What all inputs broadcast to."""
    return [broadcast(call.shapes)]


@shape_rule("Add", "And", "Div", "Equal", "Greater", "Less", "Mul", "Or", "Pow", "Sub", "Xor")
def binary(call: NodeCall) -> list[Shape | None]:
    """What both inputs broadcast to; before opset 7 the first one's shape."""
    return [call.shape(0) if call.node.since_version < 7 else broadcast(call.shapes)]


@shape_rule("BiasSplitGelu", domain="com.microsoft")
def half_of_last(call: NodeCall) -> list[Shape | None]:
    """The last axis is halved."""
    shape = call.shape(0)
    if shape is None or not isinstance(shape[-1], int):
        return [None]
    return [(*shape[:-1], shape[-1] // 2)]
