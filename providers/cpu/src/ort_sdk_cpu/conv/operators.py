"""Conv, FusedConv and ConvTranspose: registration, and the kernel of the algorithm that ``select`` chooses."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ort_sdk.api import HostArray, InvalidArgument, InvalidGraph, KernelInfo
from ort_sdk.opset.contrib.fused_activation import fused_activation
from ort_sdk.opset.nn.windows import Windows
from ort_sdk.opset.numpy_namespace import NumpyNamespace
from ort_sdk_cpu.elementwise.activation import InPlace, in_place_activation
from ort_sdk_cpu.kernel.bindable import BindableKernel, bindable, early_kernel_maker, kernel_maker
from ort_sdk_cpu.kernel.bound import stores_packed_weights
from ort_sdk_cpu.kernel.task_writer import are_floats
from ort_sdk_cpu.kernel.writer import MakeWriter, Writer, copying_writer
from ort_sdk_cpu.memory.workspace import workspace_of

from .problem import ConvAlgorithm, ConvProblem
from .select import choose_general, choose_small, choose_specialized

__all__: list[str] = []

KERNELS = {
    ConvAlgorithm.WINOGRAD: "winograd:WinogradKernel",
    ConvAlgorithm.POINTWISE: "pointwise:PointwiseKernel",
    ConvAlgorithm.DEPTHWISE: "depthwise:DepthwiseKernel",
    ConvAlgorithm.FEW_INPUT_CHANNELS: "few_channels:FewInputChannelsKernel",
    ConvAlgorithm.FEW_OUTPUT_CHANNELS: "few_channels:FewOutputChannelsKernel",
    ConvAlgorithm.ONEDNN: "onednn.kernel:OneDnnConvKernel",
    ConvAlgorithm.ONEDNN_BIAS_APART: "onednn.bias:BiasApartKernel",
    ConvAlgorithm.GEMM_1D: "one_dimensional.gemm:Gemm1dKernel",
    ConvAlgorithm.DEPTHWISE_1D: "one_dimensional.depthwise:Depthwise1dKernel",
    ConvAlgorithm.PATCH_EMBEDDING: "im2row.patch_embedding:PatchEmbeddingKernel",
    ConvAlgorithm.TRANSPOSED_GEMM: "transposed.gemm:TransposedGemmKernel",
    ConvAlgorithm.TRANSPOSED_COL2IM: "transposed.col2im:Col2imKernel",
}
"""Algorithm → module in this folder and class of its kernel, imported when a model needs it."""


def kernel_class(algorithm: ConvAlgorithm) -> Any:
    """The class of an algorithm's kernel."""
    module, _, name = KERNELS[algorithm].partition(":")
    return getattr(importlib.import_module(f"{__package__}.{module}"), name)


@early_kernel_maker("Conv", "ConvTranspose")
@early_kernel_maker("FusedConv", domain="com.microsoft")
def specialized_kernel(info: KernelInfo, make_general: Callable[[], Any]) -> Any:
    """The kernel of an algorithm of ``SPECIALIZED``; None if none of them is chosen."""
    problem = _problem_of(info)
    algorithm = _chosen(choose_specialized, problem)
    return None if algorithm is None else kernel_class(algorithm)(info, make_general, problem)


@kernel_maker("Conv", "ConvTranspose")
@kernel_maker("FusedConv", domain="com.microsoft")
def general_kernel(info: KernelInfo, kernel: Any, make_writer: MakeWriter) -> Any:
    """The kernel of another algorithm, with what computes small problems as its fallback."""
    fallback = SmallConvKernel(kernel, make_writer)
    algorithm = _chosen(choose_general, _problem_of(info))
    if algorithm is None:
        return None if stores_packed_weights(info) else fallback
    try:
        return kernel_class(algorithm)(info, fallback, _activation(info))
    except (InvalidArgument, InvalidGraph):
        return None  # The fallback says so when it is run, as it does for shapes that are known only then.


def _problem_of(info: KernelInfo) -> ConvProblem | None:
    """A node's; None where attributes do not fit together, which the operator set says when it is run."""
    try:
        return ConvProblem.of(info)
    except (InvalidArgument, InvalidGraph):
        return None


def _chosen(choose: Callable[[ConvProblem], ConvAlgorithm | None], problem: ConvProblem | None) -> ConvAlgorithm | None:
    try:
        return None if problem is None else choose(problem)
    except (InvalidArgument, InvalidGraph):
        return None


class SmallConvKernel(BindableKernel):
    """What computes a node without a packed weight: by the algorithm that ``select.choose_small`` chooses for a run's shapes.

    Args:
        kernel: of the operator set.
        make_writer: a ``_Writers``.
    """

    def __init__(self, kernel: Any, make_writer: MakeWriter) -> None:
        super().__init__(kernel, make_writer)
        self._writers = make_writer

    @property
    def algorithm(self) -> str | None:
        """The algorithm that it was bound for last; None before shapes are known, and step by step."""
        return getattr(self._writers, "algorithm", None)


@bindable("Conv", has_weight=True)
@bindable("FusedConv", domain="com.microsoft", has_weight=True)
@bindable("ConvTranspose")
def small_convolution(info: KernelInfo, compute: Any) -> MakeWriter:
    """activation(Conv(X, W, B) + Z), or ConvTranspose(X, W, B), without a packed weight."""
    return _Writers(info, compute)


class _Writers:
    """Makes writers for inputs of some shapes.

    Args:
        info: the node.
        compute: the operator set's function.
    """

    def __init__(self, info: KernelInfo, compute: Any) -> None:
        self._info, self._compute, self._workspace = info, compute, workspace_of(info)
        self.algorithm: str | None = None
        """Of the last writer."""

    @functools.cached_property  # most nodes are computed by another kernel
    def _node(self) -> tuple[ConvProblem, InPlace | None]:
        return ConvProblem.of(self._info), _activation(self._info)

    def __call__(self, inputs: Sequence[Any], _outputs: Sequence[HostArray]) -> Writer:
        """A writer for inputs of these shapes and types."""
        node, activate = self._node
        x, weight = inputs[:2]
        problem = replace(
            node,
            x_shape=x.shape,
            weight_shape=weight.shape,
            is_float32=are_floats(inputs),
            has_added=len(inputs) > 3 and inputs[3] is not None,
        )
        geometry, sizes = problem.geometry, (x.shape[2:], weight.shape[2:])
        windows = geometry.windows.windows(*sizes) if geometry.transpose is None else geometry.transpose.windows(*sizes)
        self.algorithm = algorithm = choose_small(problem, windows)
        write = self._general(problem, windows, inputs, activate)
        if algorithm is ConvAlgorithm.FEW_WINDOWS:
            from .small.few_windows import few_windows_writer

            return few_windows_writer(problem, windows, inputs, write)
        if algorithm is ConvAlgorithm.NAIVE:
            from .small.naive import naive_writer

            return naive_writer(problem, windows, inputs, write)
        return write

    def _general(self, problem: ConvProblem, windows: Windows, inputs: Sequence[Any], activate: InPlace | None) -> Writer:
        """What writes arrays that are not contiguous, and all other problems."""
        if problem.is_transposed:
            return copying_writer(self._compute)
        from .small.im2col import im2col_writer

        return im2col_writer(problem, windows, inputs, activate, self._workspace)


def _activation(info: KernelInfo) -> InPlace | None:
    if not info.attribute("activation", ""):
        return None
    parameters = info.attribute("activation_params", None) or ()
    return in_place_activation(info, parameters, fused_activation(info, NumpyNamespace(), parameters))
