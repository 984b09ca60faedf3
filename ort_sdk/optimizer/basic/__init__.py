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
    ("loops.loop_invariants", ("LoopInvariantElimination",), ({"Loop"},)),
    ("loops.loop_invariant_motion", ("LoopInvariantCodeMotion",), ({"Loop"},)),
    ("cast_elimination", ("CastChainElimination",), ({"Cast"},)),
    ("cast_elimination", ("CastElimination",), ({"Cast", "CastLike"},)),
    ("noop_elimination", ("NoopElimination",), ({"Add", "Div", "Mul", "Sub"},)),
    ("movement.slice_elimination", ("EliminateSlice",), ({"Slice"},)),
    ("movement.slice_elimination", ("ConcatSliceElimination",), ({"Slice"}, {"Concat"})),
    ("movement.reshape_fusion", ("UnsqueezeElimination",), ({"Squeeze"}, {"Unsqueeze"})),
    ("movement.reshape_fusion", ("ExpandElimination",), ({"Expand"},)),
    ("gemm.dq_matmul_nbits_fusion", ("DQMatMulNBitsFusion",), ({"DequantizeLinear"}, {"Gemm", "MatMul"})),
    ("gemm.einsum_decomposition", ("EinsumDecomposition",), ({"Einsum"},)),
    ("movement.reshape_fusion", ("ReshapeFusion",), (_RESHAPES,)),
    ("movement.reshape_target", ("ReshapeTargetFusion",), ({"Reshape"},)),
    ("movement.transpose_sinking", ("TransposeSinking",), ({"Transpose"},)),
    ("movement.transpose_optimizer", ("TransposeOptimizer",), ({"Transpose"},)),
    ("common_subexpression_elimination", ("CommonSubexpressionElimination",), ()),
    ("elementwise_fusion", ("PreShapeNodeElimination",), ({"Shape", "Size"}, {"Cast"})),
    ("elementwise_fusion", ("NotWhereFusion",), ({"Where"}, {"Not"})),
    ("elementwise_fusion", ("FuseReluClip",), ({"Relu"}, {"Clip"})),
    ("elementwise_fusion", ("DivMulFusion",), ({"Div"}, {"Mul"})),
    ("conv.conv_transpose_elimination", ("ConvTransposeElimination",), ({"ConvTranspose"},)),
    ("conv.pad_fusion", ("PadElimination",), ({"Pad"},)),
    ("conv.pad_fusion", ("PadFusion",), ({"Pad"}, {"AveragePool", "Conv"})),
    ("conv.conv_fusion", ("ConvBNFusion",), (_CONVS, {"BatchNormalization"})),
    ("conv.conv_fusion", ("ConvMulFusion",), (_CONVS, {"Mul"})),
    ("conv.conv_fusion", ("ConvAddFusion",), (_CONVS, {"Add"})),
    ("conv.parallel_conv_fusion", ("ParallelConvFusion",), ({"Conv"}, {"Add"})),
    ("conv.conv_transpose_phases", ("ConvTransposeToDepthToSpace",), ({"ConvTranspose"},)),
    ("conv.batch_norm_elimination", ("BatchNormElimination",), ({"BatchNormalization"},)),
    ("gemm.gemm_fusion", ("MatMulAddFusion",), ({"MatMul"}, {"Add"})),
    ("gemm.gemm_fusion", ("GemmSumFusion",), ({"Gemm"}, {"Add"})),
    ("gemm.gemm_fusion", ("GemmTransposeFusion",), ({"Gemm"}, {"Transpose"})),
    ("unused_removal", ("UnusedRemoval",), ()),
)
"""Modules, passes and what they need, in the order the passes run."""
