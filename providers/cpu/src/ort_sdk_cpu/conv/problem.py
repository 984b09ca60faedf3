"""Convolution problems and algorithms as values: what ``conv.select`` maps from and to."""

from __future__ import annotations

import enum

from ort_sdk.api import KernelInfo, TensorElementType
from ort_sdk.api.data_classes import dataclass
from ort_sdk_cpu.kernel.activation import IDENTITY, Activation
from ort_sdk_cpu.platform import libraries

from .epilogue import ConvEpilogue, node_activation
from .geometry import ConvGeometry

__all__ = ["ADDED", "BIAS", "SPECIALIZED", "WEIGHT", "ConvAlgorithm", "ConvProblem"]

WEIGHT, BIAS, ADDED = 1, 2, 3


class ConvAlgorithm(enum.StrEnum):
    """How a convolution is computed."""

    WINOGRAD = "winograd"
    """F(2x2, 3x3) on NHWC."""
    POINTWISE = "pointwise"
    """1x1: GEMM of pixels with panels of weights."""
    DEPTHWISE = "depthwise"
    """One filter per channel, 2-D and 3-D."""
    FEW_INPUT_CHANNELS = "few_input_channels"
    """NCHW to NHWC, vectors of output channels."""
    FEW_OUTPUT_CHANNELS = "few_output_channels"
    """Vectors along the rows of a window."""
    ONEDNN = "onednn"
    """oneDNN's convolution or deconvolution."""
    ONEDNN_TILED_1D = "onednn_tiled_1d"
    """The same on tiles of a long 1-D input."""
    ONEDNN_BIAS_APART = "onednn_bias_apart"
    """oneDNN's deconvolution without its bias, which is added afterwards."""
    GEMM_1D = "gemm_1d"
    """GEMM whose rows are overlapping windows, without im2row."""
    DEPTHWISE_1D = "depthwise_1d"
    """One filter per channel along one axis."""
    PATCH_EMBEDDING = "patch_embedding"
    """im2row of windows side by side, and a GEMM."""
    TRANSPOSED_GEMM = "transposed_gemm"
    """GEMM into windows side by side, and depth-to-space."""
    TRANSPOSED_COL2IM = "transposed_col2im"
    """GEMM into overlapping windows, and col2im, some rows at a time."""
    FEW_WINDOWS = "few_windows"
    """Dot products of few windows with the rows of the weight."""
    NAIVE = "naive"
    """Loops over the taps of small problems, transposed ones as well."""
    IM2COL_GEMM = "im2col_gemm"
    """im2col and BLAS."""
    OPSET = "opset"
    """The operator set's, over NumPy."""
    DYNAMIC_POINTWISE = "dynamic_pointwise"
    """1x1 of inputs of any shape: GEMM."""
    DYNAMIC_IM2ROW = "dynamic_im2row"
    """im2row of lines, and a GEMM with overlapping rows."""
    DYNAMIC_DEPTHWISE = "dynamic_depthwise"
    """One filter per channel, sizes as arguments."""
    DYNAMIC_TRANSPOSED_APART = "dynamic_transposed_apart"
    """GEMMs into windows side by side."""
    DYNAMIC_TRANSPOSED_OVERLAPPING = "dynamic_transposed_overlapping"
    """GEMMs of gathered lines into the phases of the output."""
    INVERTED_BOTTLENECK = "inverted_bottleneck"
    """Expand, depthwise and project as one task: what fusion makes of three nodes."""


SPECIALIZED = frozenset(
    {
        ConvAlgorithm.GEMM_1D,
        ConvAlgorithm.DEPTHWISE_1D,
        ConvAlgorithm.PATCH_EMBEDDING,
        ConvAlgorithm.TRANSPOSED_GEMM,
        ConvAlgorithm.TRANSPOSED_COL2IM,
    }
)
"""Whose kernels have a general one in reserve, for inputs that they do not take; it is made when one comes."""


@dataclass(frozen=True, slots=True)
class ConvProblem:
    """All that the choice depends on."""

    geometry: ConvGeometry
    x_shape: tuple[int | None, ...] | None
    """(N, C, *spatial), None for sizes that are not known; None where not even the rank is."""
    weight_shape: tuple[int, ...] | None
    """(M, C / groups, *kernel), of ConvTranspose (C, M / groups, *kernel)."""
    activation: Activation | None = IDENTITY
    """None for one that no epilogue has."""
    is_float32: bool = True
    is_weight_constant: bool = True
    has_bias: bool = False
    is_bias_constant: bool = True
    has_added: bool = False
    """Whether FusedConv's Z is added before the activation."""
    is_channels_last: bool = False
    """Whether X is NHWC in memory: of the arrays of a run."""
    has_compiler: bool = True
    """Whether compiled tasks can be had."""
    has_onednn: bool = True

    @classmethod
    def of(cls, info: KernelInfo) -> ConvProblem:
        """Of a Conv, FusedConv or ConvTranspose node.

        Raises:
            InvalidArgument: attributes do not fit together.
            InvalidGraph: ``auto_pad`` has a value that ONNX does not know.
        """
        weight = info.constants.get(WEIGHT)
        known = _shape_of(info, WEIGHT) if weight is None else tuple(weight.shape)
        return cls(
            geometry=ConvGeometry.of(info),
            x_shape=_shape_of(info, 0),
            weight_shape=None if known is None or None in known else known,  # type: ignore[arg-type]
            activation=node_activation(info),
            is_float32=info.input_element_type(0) is TensorElementType.FLOAT,
            is_weight_constant=weight is not None,
            has_bias=info.has_input(BIAS),
            is_bias_constant=BIAS in info.constants,
            has_added=info.has_input(ADDED),
            has_compiler=libraries.compiled_kernels().is_usable,
            has_onednn=libraries.onednn().is_usable,
        )

    @property
    def is_transposed(self) -> bool:
        """Whether it is a ConvTranspose."""
        return self.geometry.transpose is not None

    @property
    def rank(self) -> int:
        """Spatial axes; 0 where the weight's shape is not known."""
        return 0 if self.weight_shape is None else len(self.weight_shape) - 2

    @property
    def packable(self) -> tuple[int, ...] | None:
        """Shape of a constant float32 weight that a compiled task may have packed; None if there is none."""
        is_packable = self.is_float32 and self.is_weight_constant and self.has_compiler and self.rank > 0
        return self.weight_shape if is_packable else None

    @property
    def has_direct_epilogue(self) -> bool:
        """Whether the direct convolutions' tasks compute its activation."""
        return self.activation is not None and ConvEpilogue.of_activations((self.activation,)) is not None

    def per_axis(self, name: str) -> tuple[int, ...]:
        """Strides or dilations."""
        return self.geometry.windows.per_axis(name, self.rank, 1)


def _shape_of(info: KernelInfo, index: int) -> tuple[int | None, ...] | None:
    argument = info.inputs[index] if index < len(info.inputs) else None
    if argument is None or argument.shape is None:
        return None
    return tuple(size if isinstance(size, int) else None for size in argument.shape)
