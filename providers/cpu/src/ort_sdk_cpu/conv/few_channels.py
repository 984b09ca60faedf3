"""Convolutions of few input channels, or into few output channels: the first and the last of networks for images.

With few input channels, vectors are of output channels, and X is read from NCHW: NHWC would leave its own vectors mostly empty.
With few output channels, vectors are along the rows of windows of NHWC, whose products are summed across lanes at last.
"""

from __future__ import annotations

import math

import numpy as np

from ort_sdk.api import HostArray
from ort_sdk_cpu.memory.workspace import aligned_bytes
from ort_sdk_cpu.platform import libraries

from .arguments import few_input_channels, few_output_channels
from .arguments.direct import POINTED_LATER
from .arguments.few_input_channels import FewInputChannels
from .arguments.few_output_channels import FewOutputChannels
from .base import Variant
from .direct import DirectConvKernel, Positions, TaskPlan
from .problem import ConvAlgorithm

__all__ = ["FewInputChannelsKernel", "FewOutputChannelsKernel"]

PIXELS = 8
"""Columns of output that the task computes together."""
_LANES, _FLOAT_BYTES = 16, 4
_FLOAT = np.dtype(np.float32)


class FewInputChannelsKernel(DirectConvKernel):
    """activation(Conv(X, W, B) + Z) for constant weights of few input channels. Arguments as for ``ConvKernel``."""

    own_algorithm = ConvAlgorithm.FEW_INPUT_CHANNELS
    identity = "stem"
    positions = Positions.of(FewInputChannels)
    reads_nchw = True

    def pack_weight(self, weight: HostArray) -> HostArray:
        """Weights (M, C, *kernel) as (C, *kernel, M in whole vectors): uint8."""
        outputs, *window = self.constant_shape
        result = aligned_bytes(math.prod(window) * _whole(outputs) * _FLOAT_BYTES)
        packed_rows = result.view(_FLOAT).reshape(-1, _whole(outputs))
        packed_rows[:, outputs:] = 0
        source = np.frombuffer(weight.tobytes(), _FLOAT)
        packed_rows[:, :outputs] = source.reshape(outputs, -1).T
        return result

    def unpack_weight(self, packed: HostArray) -> HostArray:
        """The inverse."""
        outputs = self.constant_shape[0]
        packed_rows = packed.view(_FLOAT).reshape(-1, _whole(outputs))
        return np.ascontiguousarray(packed_rows[:, :outputs].T).reshape(self.constant_shape)

    def plan(self, variant: Variant, out_shape: tuple[int, ...]) -> TaskPlan | None:
        """The task, but for the arrays of a call; None if the output is too narrow."""
        (samples, channels, height, width), (_, outputs, rows, columns) = variant.x_shape, out_shape
        if columns < PIXELS:
            return None
        padding, (taps_down, taps_right) = self.geometry.padding(variant.x_shape, variant.weight_shape), variant.weight_shape[2:]
        length = -(-((columns - 1) * padding.strides[1] + taps_right) // _LANES) * _LANES
        work_bytes, threads = channels * taps_down * length * _FLOAT_BYTES, libraries.thread_count()
        arguments = FewInputChannels(
            **POINTED_LATER,
            samples=samples,
            height=height,
            width=width,
            channels=channels,
            outputs=outputs,
            rows=rows,
            columns=columns,
            taps_down=taps_down,
            taps_right=taps_right,
            step_down=padding.strides[0],
            step_right=padding.strides[1],
            top=padding.begins[0],
            left=padding.begins[1],
            work_bytes=work_bytes,
            epilogue=self.epilogue().arguments,
        )
        return TaskPlan(few_input_channels.MODULE, "few_input_channels", arguments, self.positions, threads, work_bytes * threads)

    def _can_follow(self, variant: Variant) -> bool:
        is_wide = self.geometry.output_shape(variant.x_shape, variant.weight_shape)[3] >= PIXELS
        return is_wide and super()._can_follow(variant)


class FewOutputChannelsKernel(DirectConvKernel):
    """activation(Conv(X, W, B) + Z) for constant weights of few output channels. Arguments as for ``ConvKernel``."""

    own_algorithm = ConvAlgorithm.FEW_OUTPUT_CHANNELS
    identity = "few-outputs"
    positions = Positions.of(FewOutputChannels)

    def pack_weight(self, weight: HostArray) -> HostArray:
        """Weights (M, C, *kernel) as (M, *kernel, C): uint8."""
        source = np.frombuffer(weight.tobytes(), _FLOAT).reshape(self.constant_shape)
        result = aligned_bytes(source.nbytes)
        packed_rows = np.moveaxis(source, 1, -1)
        np.copyto(result.view(_FLOAT).reshape(packed_rows.shape), packed_rows)
        return result

    def unpack_weight(self, packed: HostArray) -> HostArray:
        """The inverse."""
        outputs, channels, *kernel = self.constant_shape
        return np.ascontiguousarray(np.moveaxis(packed.view(_FLOAT).reshape(outputs, *kernel, channels), -1, 1))

    def plan(self, variant: Variant, out_shape: tuple[int, ...]) -> TaskPlan:
        """The task, but for the arrays of a call."""
        (samples, channels, height, width), (_, outputs, rows, columns) = variant.x_shape, out_shape
        padding, (taps_down, taps_right) = self.geometry.padding(variant.x_shape, variant.weight_shape), variant.weight_shape[2:]
        arguments = FewOutputChannels(
            **POINTED_LATER,
            samples=samples,
            height=height,
            width=width,
            channels=channels,
            outputs=outputs,
            rows=rows,
            columns=columns,
            taps_down=taps_down,
            taps_right=taps_right,
            step_down=padding.strides[0],
            step_right=padding.strides[1],
            top=padding.begins[0],
            left=padding.begins[1],
            work_bytes=0,
            epilogue=self.epilogue().arguments,
        )
        threads = libraries.thread_count()
        return TaskPlan(few_output_channels.MODULE, "few_output_channels", arguments, self.positions, threads, 0)


def _whole(outputs: int) -> int:
    return -(-outputs // _LANES) * _LANES
