"""Level 1: passes before partition, which use ONNX operators only."""

from __future__ import annotations

from ort_sdk.optimizer.transformer import deferred

__all__ = ["TRANSFORMERS"]

_CONVS, _RESHAPES = {"Conv", "ConvTranspose"}, {"Flatten", "Reshape", "Squeeze", "Unsqueeze"}

TRANSFORMERS = deferred(
    __name__,
    ("shape_inference", ("ShapeInference",), ()),
    ("size_naming", ("SizeNaming",), ()),
    # First: what is folded is a constant of its own, equal to others or not.
    ("identity_elimination", ("EliminateIdentity",), ({"Identity"},)),
    ("constant_folding", ("ConstantFolding",), ()),
    ("identity_elimination", ("EliminateSingleInput",), ({"Concat", "Max", "Mean", "Min", "Sum"},)),
    ("identity_elimination", ("EliminateDropout",), ({"Dropout"},)),
    ("loop_invariants", ("LoopInvariantElimination",), ({"Loop"},)),
    ("loop_invariant_motion", ("LoopInvariantCodeMotion",), ({"Loop"},)),
    ("cast_elimination", ("CastChainElimination",), ({"Cast"},)),
    ("cast_elimination", ("CastElimination",), ({"Cast", "CastLike"},)),
    ("noop_elimination", ("NoopElimination",), ({"Add", "Div", "Mul", "Sub"},)),
    ("slice_elimination", ("EliminateSlice",), ({"Slice"},)),
    ("slice_elimination", ("ConcatSliceElimination",), ({"Slice"}, {"Concat"})),
    ("reshape_fusion", ("UnsqueezeElimination",), ({"Squeeze"}, {"Unsqueeze"})),
    ("reshape_fusion", ("ExpandElimination",), ({"Expand"},)),
    ("dq_matmul_nbits_fusion", ("DQMatMulNBitsFusion",), ({"DequantizeLinear"}, {"Gemm", "MatMul"})),
    ("einsum_decomposition", ("EinsumDecomposition",), ({"Einsum"},)),
    ("reshape_fusion", ("ReshapeFusion",), (_RESHAPES,)),
    ("reshape_target", ("ReshapeTargetFusion",), ({"Reshape"},)),
    ("transpose_sinking", ("TransposeSinking",), ({"Transpose"},)),
    ("transpose_optimizer", ("TransposeOptimizer",), ({"Transpose"},)),
    ("common_subexpression_elimination", ("CommonSubexpressionElimination",), ()),
    ("elementwise_fusion", ("PreShapeNodeElimination",), ({"Shape", "Size"}, {"Cast"})),
    ("elementwise_fusion", ("NotWhereFusion",), ({"Where"}, {"Not"})),
    ("elementwise_fusion", ("FuseReluClip",), ({"Relu"}, {"Clip"})),
    ("elementwise_fusion", ("DivMulFusion",), ({"Div"}, {"Mul"})),
    ("conv_transpose_elimination", ("ConvTransposeElimination",), ({"ConvTranspose"},)),
    ("pad_fusion", ("PadElimination",), ({"Pad"},)),
    ("pad_fusion", ("PadFusion",), ({"Pad"}, {"AveragePool", "Conv"})),
    ("conv_fusion", ("ConvBNFusion",), (_CONVS, {"BatchNormalization"})),
    ("conv_fusion", ("ConvMulFusion",), (_CONVS, {"Mul"})),
    ("conv_fusion", ("ConvAddFusion",), (_CONVS, {"Add"})),
    ("parallel_conv_fusion", ("ParallelConvFusion",), ({"Conv"}, {"Add"})),
    ("conv_transpose_phases", ("ConvTransposeToDepthToSpace",), ({"ConvTranspose"},)),
    ("batch_norm_elimination", ("BatchNormElimination",), ({"BatchNormalization"},)),
    ("gemm_fusion", ("MatMulAddFusion",), ({"MatMul"}, {"Add"})),
    ("gemm_fusion", ("GemmSumFusion",), ({"Gemm"}, {"Add"})),
    ("gemm_fusion", ("GemmTransposeFusion",), ({"Gemm"}, {"Transpose"})),
    ("unused_removal", ("UnusedRemoval",), ()),
)
"""Modules, passes and what they need, in the order the passes run."""
