"""MatMul with dequantized 4-bit weights as MatMulNBits, for any provider."""

from __future__ import annotations

from ort_sdk.config_keys import ENABLE_DQ_MATMULNBITS_FUSION
from ort_sdk.graph import Node
from ort_sdk.optimizer.pattern import FusionPass, GraphMatcher
from ort_sdk.optimizer.transformer import TransformerContext

__all__ = ["DQMatMulNBitsFusion"]


class DQMatMulNBitsFusion(FusionPass):
    """ORT's ``DQMatMulNBitsFusion``, if the config entry ``session.enable_dq_matmulnbits_fusion`` is 1.

    MatMul or Gemm by a uint4 weight that is [K, N] in blocks along K, or [N, blocks, block size] in blocks along the last
    axis and then reshaped and transposed, becomes ``com.microsoft`` MatMulNBits.
    """

    name = "DQMatMulNBitsFusion"
    anchors = ("MatMul", "Gemm")

    def is_enabled(self, context: TransformerContext) -> bool:
        """Only if the config asks for it."""
        return context.config.get(ENABLE_DQ_MATMULNBITS_FUSION) == "1"

    def fuse(self, matcher: GraphMatcher, node: Node) -> object:
        """See the class."""
        from .dq_matmul_nbits_patterns import fuse_product

        return fuse_product(matcher, node)
