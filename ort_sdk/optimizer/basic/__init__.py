"""Level 1: passes before partition, which use ONNX operators only."""

from __future__ import annotations

from ort_sdk.optimizer.transformer import GraphTransformer

from .batch_norm_elimination import BatchNormElimination
from .cast_elimination import CastChainElimination, CastElimination
from .common_subexpression_elimination import CommonSubexpressionElimination
from .constant_folding import ConstantFolding
from .conv_fusion import ConvAddFusion, ConvBNFusion, ConvMulFusion
from .conv_transpose_elimination import ConvTransposeElimination
from .conv_transpose_phases import ConvTransposeToDepthToSpace
from .dq_matmul_nbits_fusion import DQMatMulNBitsFusion
from .einsum_decomposition import EinsumDecomposition
from .elementwise_fusion import DivMulFusion, FuseReluClip, NotWhereFusion, PreShapeNodeElimination
from .gemm_fusion import GemmSumFusion, GemmTransposeFusion, MatMulAddFusion
from .identity_elimination import EliminateDropout, EliminateIdentity
from .loop_invariant_motion import LoopInvariantCodeMotion
from .loop_invariants import LoopInvariantElimination
from .noop_elimination import NoopElimination
from .pad_fusion import PadFusion
from .parallel_conv_fusion import ParallelConvFusion
from .reshape_fusion import ExpandElimination, ReshapeFusion, UnsqueezeElimination
from .reshape_target import ReshapeTargetFusion
from .shape_inference import ShapeInference
from .size_naming import SizeNaming
from .slice_elimination import ConcatSliceElimination, EliminateSlice
from .transpose_optimizer import TransposeOptimizer
from .transpose_sinking import TransposeSinking
from .unused_removal import UnusedRemoval

__all__ = ["transformers"]


def transformers() -> list[GraphTransformer]:
    """The passes, in the order they run."""
    return [
        ShapeInference(),
        SizeNaming(),
        EliminateIdentity(),  # first: what is folded is a constant of its own, equal to others or not
        ConstantFolding(),
        EliminateDropout(),
        LoopInvariantElimination(),
        LoopInvariantCodeMotion(),
        CastChainElimination(),
        CastElimination(),
        NoopElimination(),
        EliminateSlice(),
        ConcatSliceElimination(),
        UnsqueezeElimination(),
        ExpandElimination(),
        DQMatMulNBitsFusion(),
        EinsumDecomposition(),
        ReshapeFusion(),
        ReshapeTargetFusion(),
        TransposeSinking(),
        TransposeOptimizer(),
        CommonSubexpressionElimination(),
        PreShapeNodeElimination(),
        NotWhereFusion(),
        FuseReluClip(),
        DivMulFusion(),
        ConvTransposeElimination(),
        PadFusion(),
        ConvBNFusion(),
        ConvMulFusion(),
        ConvAddFusion(),
        ParallelConvFusion(),
        ConvTransposeToDepthToSpace(),
        BatchNormElimination(),
        MatMulAddFusion(),
        GemmSumFusion(),
        GemmTransposeFusion(),
        UnusedRemoval(),
    ]
