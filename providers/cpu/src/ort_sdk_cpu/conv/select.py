"""Which algorithm computes a convolution: the one place that chooses, with all thresholds of the family.

``choose_specialized``, and then ``choose_general``, decide once, when a kernel is made, from what a model says of its node;
``is_worth_it`` and ``choose_small`` when the shapes of a run are known, and ``choose_dynamic`` when shapes turn out to vary. A
member of ``ConvAlgorithm`` says which kernel is made (``conv.operators.KERNELS``); kernels report the one that they used last.

Thresholds without figures balance the two costs that they name. What whole algorithms gain was measured with one node, each
switched off by its own predicate and both sessions timed in turns, on a busy machine (2 cores with AVX-512 VNNI, 2026-11), so
that only large differences count: Winograd x1.5 to 1.7 against oneDNN's direct convolution, few output channels x2.3 to 8,
transposed col2im x4.1, few windows and naive x3.5 to 4.1 against im2col, tiled 1-D x1.03 at 20,000 elements and x1.7 at 100,000,
few input channels x1.44 for 3 x 3 with stride 2 and x1.09 for 7 x 7. Pointwise and depthwise are within 15 % of oneDNN alone:
they are there for what is fused around them (``conv.inverted_bottleneck``), and as their tasks take sizes as arguments, so that
inputs of another shape need no new primitive.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ort_sdk.opset.nn.windows import Windows
from ort_sdk_cpu.gemm.arguments.epilogue import EPILOGUE_KINDS
from ort_sdk_cpu.kernel.activation import IDENTITY, ActivationKind
from ort_sdk_cpu.kernel.task_writer import is_worth_a_task
from ort_sdk_cpu.platform import libraries

from .geometry import AxisWindows, ConvGeometry
from .packing import panel_width
from .problem import ConvAlgorithm, ConvProblem

__all__ = [
    "choose_dynamic",
    "choose_general",
    "choose_small",
    "choose_specialized",
    "is_worth_it",
    "windows_of",
    "work_of",
]


def choose_specialized(problem: ConvProblem) -> ConvAlgorithm | None:
    """One of ``SPECIALIZED``; None for a node of another kind."""
    if problem.packable is None:
        return None
    if problem.is_transposed:
        if _is_transposed_gemm(problem):
            return ConvAlgorithm.TRANSPOSED_GEMM
        return ConvAlgorithm.TRANSPOSED_COL2IM if _is_transposed_col2im(problem) else None
    if _is_gemm_1d(problem):
        return ConvAlgorithm.GEMM_1D
    if _is_depthwise_1d(problem):
        return ConvAlgorithm.DEPTHWISE_1D
    return ConvAlgorithm.PATCH_EMBEDDING if _is_patch_embedding(problem) else None


def choose_general(problem: ConvProblem) -> ConvAlgorithm | None:
    """An algorithm for inputs of any size, but for ``SPECIALIZED``; None where only ``choose_small``'s are left."""
    if not problem.is_float32:
        return None
    # From the most special to the most general: 1 x 1 of few channels is both, and the special task has no empty lanes.
    for algorithm, is_fit in _DIRECT:
        if is_fit(problem):
            return algorithm
    if not problem.has_onednn:
        return None
    return ConvAlgorithm.ONEDNN_BIAS_APART if _needs_bias_apart(problem) else ConvAlgorithm.ONEDNN


# Direct convolutions on NHWC


WINOGRAD_CHANNELS = 16
"""Fewest channels, in and out: the transforms' work per channel is the same, however many channels are on the other side."""
WINOGRAD_SIZE = 6
"""Smallest height and width of which few of the outputs of 2 x 2 tiles fall outside."""


def _dense_2d(problem: ConvProblem) -> tuple[int, ...] | None:
    """Shape of the constant weight of a 2-D convolution with one group; None if it is of another kind."""
    shape = problem.packable
    is_dense = not problem.is_transposed and problem.geometry.groups == 1 and problem.rank == 2
    return shape if shape is not None and is_dense and problem.has_direct_epilogue else None


def _is_winograd(problem: ConvProblem) -> bool:
    """3 x 3 with stride 1, and enough channels and pixels.

    With few output channels only where images may have any size: a panel is half empty then, and oneDNN's primitive, which is
    made where sizes are known, does half of the work.
    """
    shape = _dense_2d(problem)
    if shape is None or shape[2:] != (3, 3) or min(shape[:2]) < WINOGRAD_CHANNELS:
        return False
    if {*problem.per_axis("strides"), *problem.per_axis("dilations")} != {1}:
        return False
    sizes = [size for size in (problem.x_shape or ())[2:] if size is not None]
    if len(sizes) == problem.rank and problem.has_onednn and not _fills_panels(shape[0]):
        return False
    return all(size >= WINOGRAD_SIZE for size in sizes)


def _fills_panels(outputs: int) -> bool:
    """Whether more than half of a panel is output channels."""
    return 2 * outputs > panel_width()


FEW_INPUTS = 4
"""Most input channels: NHWC of so few would leave vectors of channels mostly empty, and these are read from NCHW."""
FEW_INPUTS_OUTPUTS = 8
"""Fewest output channels that fill half a vector."""
FEW_INPUTS_WINDOW = 256
"""Most elements of a window: the weights of a vector of output channels are 16 KiB then, and stay in the first cache."""


def _is_few_input_channels(problem: ConvProblem) -> bool:
    shape = _dense_2d(problem)
    if shape is None or set(problem.per_axis("dilations")) != {1}:
        return False
    outputs, channels, *kernel = shape
    is_fit = 0 < channels <= FEW_INPUTS and outputs >= FEW_INPUTS_OUTPUTS
    return is_fit and 1 < math.prod(kernel) * channels <= FEW_INPUTS_WINDOW


FEW_OUTPUTS = 4
"""Most output channels: vectors of output channels would be mostly empty."""
FEW_OUTPUTS_RUN = 16
"""Fewest elements of a row of a window of NHWC that fill a vector along it."""


def _is_few_output_channels(problem: ConvProblem) -> bool:
    shape = _dense_2d(problem)
    if shape is None or set(problem.per_axis("dilations")) != {1}:
        return False
    outputs, channels, *kernel = shape
    return 0 < outputs <= FEW_OUTPUTS and channels * kernel[1] >= FEW_OUTPUTS_RUN and math.prod(kernel) > 1


DEPTHWISE_CHANNELS = 8
"""Fewest channels that fill half a vector."""
DEPTHWISE_LINES = 64
"""Most lines under a row of windows: so many addresses a thread keeps."""


def _is_depthwise(problem: ConvProblem) -> bool:
    shape = problem.packable
    if shape is None or problem.is_transposed or problem.rank not in {2, 3} or not problem.has_direct_epilogue:
        return False
    channels, depth, *rows, _ = shape
    is_fit = depth == 1 and channels == problem.geometry.groups >= DEPTHWISE_CHANNELS
    return is_fit and math.prod(rows) <= DEPTHWISE_LINES


POINTWISE_CHANNELS = 8
"""Fewest channels, in and out, that fill half a vector."""


def _is_pointwise(problem: ConvProblem) -> bool:
    shape = problem.packable
    if shape is None or problem.is_transposed or problem.geometry.groups != 1 or not problem.has_direct_epilogue:
        return False
    outputs, channels, *kernel = shape
    windows = problem.geometry.windows
    reads_all = bool(kernel) and {*kernel, *(windows.strides or ())} <= {1} and not any(windows.pads or ())
    return reads_all and min(outputs, channels) >= POINTWISE_CHANNELS


_DIRECT = (
    (ConvAlgorithm.WINOGRAD, _is_winograd),
    (ConvAlgorithm.FEW_INPUT_CHANNELS, _is_few_input_channels),
    (ConvAlgorithm.FEW_OUTPUT_CHANNELS, _is_few_output_channels),
    (ConvAlgorithm.DEPTHWISE, _is_depthwise),
    (ConvAlgorithm.POINTWISE, _is_pointwise),
)
"""Algorithms of compiled tasks, and whether they are for a problem; the first that is."""


# oneDNN


SPLIT_CHANNELS = 64
"""Most input channels of a group that oneDNN reads as one piece."""
SPLIT_WEIGHTS = 1 << 15
"""Elements of a weight that oneDNN reads at once whatever the size of the caches."""


def _needs_bias_apart(problem: ConvProblem) -> bool:
    """Whether oneDNN's result with a bias may be wrong.

    Where it reads weights of a strided transposed convolution in pieces of their input channels, it adds the bias wrongly (3.2:
    kernels of 4 x 4 in steps of 4, or 3 x 3 in steps of 2, with 256 and more channels).
    """
    if not problem.is_transposed or not problem.has_bias or max(problem.geometry.windows.strides or (1,)) == 1:
        return False
    shape = problem.weight_shape
    if shape is None or problem.rank < 1 or not problem.is_weight_constant:
        return True
    return shape[0] // problem.geometry.groups > SPLIT_CHANNELS and math.prod(shape) > SPLIT_WEIGHTS


# Specialized kernels


GEMM_1D_WINDOW = 16
"""Fewest elements of a window: a GEMM has too little to do for each result below that."""
GEMM_1D_PANEL = 32
"""Output channels that a GEMM makes at a time."""
GEMM_1D_UNUSED, GEMM_1D_UNUSED_COVERED = 1 / 4, 1
"""For each output channel, those computed that are none: more where windows cover an axis, which others take step by step."""


def _is_gemm_1d(problem: ConvProblem) -> bool:
    """Windows along one axis, of channels that fill a GEMM's panels."""
    if problem.has_added or problem.activation is None or problem.activation.kind not in EPILOGUE_KINDS:
        return False
    found = AxisWindows.of(problem.geometry, problem.weight_shape or (), problem.x_shape)
    if found is None or found.taps * found.channels < GEMM_1D_WINDOW:
        return False
    unused = -found.outputs % GEMM_1D_PANEL / found.outputs
    most = GEMM_1D_UNUSED if found.covered is None else GEMM_1D_UNUSED_COVERED
    return found.outputs == found.channels == 1 or unused <= most


def _is_depthwise_1d(problem: ConvProblem) -> bool:
    """One filter per channel of a 1-D input, with ReLU at most."""
    activation, shape = problem.activation, problem.weight_shape or ()
    if problem.has_added or activation is None or problem.rank != 1:
        return False
    if activation.kind not in {ActivationKind.IDENTITY, ActivationKind.LEAKY_RELU}:
        return False
    windows = problem.geometry.windows
    if shape[1] != 1 or not shape[0] == problem.geometry.groups > 1 or windows.auto_pad not in {"NOTSET", "VALID"}:
        return False
    (begin,), (end,) = windows.explicit_pads(1)
    return min(begin, end) >= 0


PATCH_CHANNELS = 4
"""Most input channels, read from NCHW: others are NHWC, so that patches have no long rows to copy."""
PATCH_ELEMENTS = 128
"""Fewest elements of a patch: below, the weights of a vector of channels stay in the first cache, and nothing need be copied."""


def _is_patch_embedding(problem: ConvProblem) -> bool:
    """Windows side by side, of an image or a video."""
    shape = problem.weight_shape or ()
    if problem.rank not in {2, 3} or problem.geometry.groups != 1 or problem.has_added or problem.activation != IDENTITY:
        return False
    if shape[1] > PATCH_CHANNELS or math.prod(shape[1:]) < PATCH_ELEMENTS:
        return False
    windows = problem.geometry.windows
    is_unpadded = windows.auto_pad in {"NOTSET", "VALID"} and not any(windows.pads or ())
    return is_unpadded and problem.per_axis("strides") == shape[2:] and set(problem.per_axis("dilations")) == {1}


TRANSPOSED_OUTPUTS = 16
"""Most output channels: oneDNN leaves most of its vectors empty with fewer."""
TRANSPOSED_WINDOW = 4
"""Fewest elements of a window and its channels: a row of the GEMM leaves as much of a vector empty below that."""
TRANSPOSED_FEW_OUTPUTS, TRANSPOSED_WINDOW_OF_FEW = 4, 64
"""Output channels of which col2im's task makes vectors of neighbours, and elements from which on the GEMM is faster than it."""
COL2IM_WINDOW = 1024
"""Most elements of a window and its channels, for each of which the task keeps results of some rows."""


def _is_transposed_gemm(problem: ConvProblem) -> bool:
    """Windows side by side into few channels, with a constant bias, which is repeated for each element of a window."""
    shape, geometry = problem.weight_shape or (), problem.geometry
    if problem.rank != 2 or (problem.has_bias and not problem.is_bias_constant) or geometry.transpose is None:
        return False
    outputs, window = shape[1], math.prod(shape[1:])
    least = TRANSPOSED_WINDOW_OF_FEW if outputs <= TRANSPOSED_FEW_OUTPUTS else TRANSPOSED_WINDOW
    if outputs > TRANSPOSED_OUTPUTS or window < least or geometry.groups != 1 or geometry.transpose.output_shape:
        return False
    padding = geometry.padding((1, shape[0], 1, 1), shape)
    has_gaps = any((*padding.begins, *padding.ends)) or set(padding.dilations) != {1}
    return padding.strides == shape[2:] and not has_gaps


def _is_transposed_col2im(problem: ConvProblem) -> bool:
    """Windows that may overlap, into few channels."""
    shape = problem.weight_shape or ()
    if problem.rank not in {1, 2} or problem.geometry.groups != 1 or set(problem.per_axis("dilations")) != {1}:
        return False
    return 0 < shape[1] <= TRANSPOSED_FEW_OUTPUTS and 0 < math.prod(shape[1:]) <= COL2IM_WINDOW


# Shapes of a run


MINIMUM_WORK = 1 << 20
"""Multiplications and additions that are worth packing a weight, or loading oneDNN. What is NHWC already is convolved whatever
the size: the alternatives are for NCHW."""
MINIMUM_WORK_OF_MANY = 1 << 16
"""The same for more windows than ``FEW_WINDOWS`` takes, for which the alternative is im2col."""
MINIMUM_DEPTHWISE_WORK = 1 << 13
"""The same for one filter per channel: im2col has a GEMM of one row for each channel."""
MINIMUM_TRANSPOSED_WORK = 1 << 12
"""The same for oneDNN's transposed convolution once the library is loaded: the operator set's adds windows up tap by tap."""
MINIMUM_FUSED_WORK = 1 << 16
"""The same for a convolution that also does what follows it, which saves a step."""
TEAM_WORK = 1 << 20
"""Multiplications and additions that take about as long on one thread as waking another."""


def work_of(geometry: ConvGeometry, x_shape: tuple[int, ...], weight_shape: tuple[int, ...]) -> int:
    """Multiplications and additions."""
    return 2 * windows_of(geometry, x_shape, weight_shape) * math.prod(weight_shape)


def windows_of(geometry: ConvGeometry, x_shape: tuple[int, ...], weight_shape: tuple[int, ...]) -> int:
    """How often all weights are multiplied."""
    shape = x_shape if geometry.transpose is not None else geometry.output_shape(x_shape, weight_shape)
    return x_shape[0] * math.prod(shape[2:])


def is_worth_it(
    algorithm: ConvAlgorithm, geometry: ConvGeometry, x_shape: tuple[int, ...], weight_shape: tuple[int, ...]
) -> bool:
    """Whether a convolution of these shapes is worth its kernel, whose weight is not packed yet; else ``choose_small`` is asked.

    Args:
        algorithm: of the kernel.
        geometry: of the node.
        x_shape: of X.
        weight_shape: of the weight.
    """
    is_few = windows_of(geometry, x_shape, weight_shape) <= FEW_WINDOWS
    least = MINIMUM_WORK if is_few else MINIMUM_WORK_OF_MANY
    if algorithm is ConvAlgorithm.DEPTHWISE:
        least = MINIMUM_DEPTHWISE_WORK
    elif geometry.transpose is not None and _is_onednn_loaded():
        least = MINIMUM_TRANSPOSED_WORK
    return work_of(geometry, x_shape, weight_shape) >= least


def _is_onednn_loaded() -> bool:
    from ort_sdk_cpu.onednn.library import is_loaded

    return is_loaded()


FEW_WINDOWS = 16
"""Most windows of a sample for which a GEMM hardly gains from packing its second operand."""
FEW_WINDOWS_DEPTH = 16
"""Fewest elements of a window: vectors are mostly empty below that."""
FEW_WINDOWS_WEIGHTS = 1 << 11
"""Fewest elements of a weight that are worth loading a task."""
FEW_WINDOWS_WORK_BYTES = 1 << 20
"""Most of the copied windows of a thread: they are read once for each row of the weight, and are to stay in the second cache."""
FEW_WINDOWS_KINDS = frozenset(
    {
        ActivationKind.IDENTITY,
        ActivationKind.CLIP,
        ActivationKind.LEAKY_RELU,
        ActivationKind.SIGMOID,
        ActivationKind.TANH,
        ActivationKind.HARD_SIGMOID,
    }
)
"""Activations of its task."""
NAIVE_AXES = 3
"""Most spatial axes of its task."""
NAIVE_WORK = 1 << 20
"""Multiplications from which on GEMMs are faster, whatever they cost to call."""
NAIVE_SPAN = 1 << 16
"""Most elements of what windows span, with padding, that are copied for them: 256 KiB."""
_FLOAT_BYTES = 4


def choose_small(problem: ConvProblem, windows: Windows) -> ConvAlgorithm:
    """The algorithm of a run that no other is worth: on the weight where it is, without a packed copy.

    Args:
        problem: with the shapes of the run, all known, and ``is_float32`` of all arrays.
        windows: of it; of a ConvTranspose, those of the convolution that it transposes.
    """
    if problem.is_float32 and problem.has_compiler and _shapes_fit(problem):
        if not problem.is_transposed and _is_few_windows(problem, windows):
            return ConvAlgorithm.FEW_WINDOWS
        # Loops over taps have no setup at all, which is what small problems pay for elsewhere.
        if _is_naive(problem, windows):
            return ConvAlgorithm.NAIVE
    return ConvAlgorithm.OPSET if problem.is_transposed else ConvAlgorithm.IM2COL_GEMM


def _shapes_fit(problem: ConvProblem) -> bool:
    """Whether neither X nor the weight is empty, and their channels fit together: what does not is others' to refuse."""
    x_shape, shape, groups = problem.x_shape or (), problem.weight_shape or (), problem.geometry.groups
    if len(x_shape) != len(shape) or len(shape) < 3 or 0 in (*x_shape, *shape) or groups < 1:
        return False
    return x_shape[1] == problem.geometry.input_channels(shape) and shape[0] % groups == 0


def _is_few_windows(problem: ConvProblem, windows: Windows) -> bool:
    """For one window, as of gates of channels, also where the task is just there, as it needs no Python."""
    shape = problem.weight_shape or ()
    if problem.activation is None or problem.activation.kind not in FEW_WINDOWS_KINDS or problem.rank > 2:
        return False
    count, depth = math.prod(windows.output_shape), math.prod(shape[1:])
    if not 0 < count <= FEW_WINDOWS or count * depth * _FLOAT_BYTES > FEW_WINDOWS_WORK_BYTES:
        return False
    is_large = depth >= FEW_WINDOWS_DEPTH and math.prod(shape) >= FEW_WINDOWS_WEIGHTS
    return is_large or (count == 1 and is_worth_a_task(1, "conv.few_windows", "few_windows"))


def _is_naive(problem: ConvProblem, windows: Windows) -> bool:
    shape, x_shape = problem.weight_shape or (), problem.x_shape or ()
    activation = problem.activation
    if problem.has_added or activation is None or not 0 < problem.rank <= NAIVE_AXES:
        return False
    if activation.kind not in {ActivationKind.IDENTITY, ActivationKind.LEAKY_RELU}:
        return False
    # The task copies what windows span, with its padding, so that no tap has to look whether it is inside.
    positions, extents = windows.output_shape, windows.extents
    if problem.is_transposed:  # a convolution of X with zeros between its elements
        positions = windows.input_shape
        spans = ((taps - 1) * step for taps, step in zip(windows.kernel_shape, windows.dilations, strict=True))
        extents = tuple(size + span for size, span in zip(windows.input_shape, spans, strict=True))
    work = (x_shape[0] or 0) * math.prod(shape) * math.prod(positions)
    span = (x_shape[1] or 0) * math.prod(extents)
    return 0 < work < NAIVE_WORK and span <= NAIVE_SPAN and is_worth_a_task(work, "conv.naive", "naive_conv")


# Shapes that vary


def choose_dynamic(geometry: ConvGeometry, weight_shape: Sequence[int], activations: Sequence[Any]) -> ConvAlgorithm | None:
    """The algorithm for inputs whose shape is another in each run; None if there is none that takes sizes as arguments.

    Args:
        geometry: of the node.
        weight_shape: of its constant weight.
        activations: what follows the convolution.
    """
    if len(activations) > 1 or len(weight_shape) > 4 or not libraries.compiled_kernels().is_usable:
        return None
    kernel, windows = tuple(weight_shape[2:]), geometry.windows
    if geometry.transpose is not None:
        if geometry.groups != 1:
            return None
        is_apart = kernel == windows.per_axis("strides", len(kernel), 1)
        return ConvAlgorithm.DYNAMIC_TRANSPOSED_APART if is_apart else ConvAlgorithm.DYNAMIC_TRANSPOSED_OVERLAPPING
    if geometry.groups == 1:
        reads_all = not any(windows.pads or ()) and set(windows.strides or (1,)) == {1}
        is_pointwise = reads_all and math.prod(kernel) == 1
        return ConvAlgorithm.DYNAMIC_POINTWISE if is_pointwise else ConvAlgorithm.DYNAMIC_IM2ROW
    is_depthwise = weight_shape[1] == 1 and geometry.groups == weight_shape[0]
    return ConvAlgorithm.DYNAMIC_DEPTHWISE if is_depthwise else None
