"""Normalization of each channel, or group of channels, of each sample by its own mean and variance, as a compiled task."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo
from ort_sdk_cpu.jit.arguments import Operand
from ort_sdk_cpu.kernel.bindable import bindable
from ort_sdk_cpu.kernel.layouts.contiguous import contiguous_first
from ort_sdk_cpu.kernel.task_writer import TaskWriter, are_floats, is_worth_a_task, threads_for
from ort_sdk_cpu.kernel.writer import MakeWriter, Writer, copying_writer
from ort_sdk_cpu.memory.workspace import workspace_of

from .arguments.rows import MODULE, GroupNormalization, InstanceNormalization
from .select import ChannelAlgorithm, select_channels

__all__: list[str] = []

NCHW, GROUPS = "instance_normalization_nchw", "group_normalization"
_TASKS = {ChannelAlgorithm.NCHW: NCHW, ChannelAlgorithm.NHWC: "instance_normalization_nhwc"}
CHANNEL_WORK = 4
"""Elements of a few instructions each that one takes as long as: it is read three times."""


@bindable("InstanceNormalization", any_layout=True)
def instance_normalization(info: KernelInfo, compute: Any) -> MakeWriter | None:
    """NCHW or NHWC, of any number of spatial axes."""
    epsilon, workspace = float(info.attribute("epsilon", 1e-5)), workspace_of(info)

    def make(inputs: Sequence[Any], outputs: Sequence[HostArray]) -> Writer:
        x, scale, shift = inputs
        fits = x.ndim > 2 and scale.shape == shift.shape == x.shape[1:2]
        if not fits or not are_floats((*inputs, *outputs)) or not is_worth_a_task(x.size, MODULE, NCHW):
            return copying_writer(compute)
        writer = _ChannelWriter(x.shape, epsilon, copying_writer(compute))
        return contiguous_first(writer, x, workspace) if outputs[0].flags.c_contiguous else writer

    return make


@bindable("GroupNormalization")
def group_normalization(info: KernelInfo, compute: Any) -> MakeWriter | None:
    """Data (N, C, *spatial), in the order of its axes."""
    epsilon, groups = float(info.attribute("epsilon", 1e-5)), int(info.attribute("num_groups"))
    is_per_group, workspace = info.since_version < 21, workspace_of(info)

    def make(inputs: Sequence[Any], outputs: Sequence[HostArray]) -> Writer:
        x, scale, shift = inputs
        samples, channels = x.shape[:2]
        if not are_floats((*inputs, *outputs)) or channels % groups or not is_worth_a_task(x.size, MODULE, GROUPS):
            return copying_writer(compute)
        count = channels // groups
        shared = count if is_per_group else 1
        if not scale.shape == shift.shape == (channels // shared,):
            return copying_writer(compute)
        sizes = (samples, groups, count, math.prod(x.shape[2:]), shared)
        arguments = GroupNormalization(Operand(0), Operand(3), Operand(1), Operand(2), *sizes, epsilon)
        threads = min(threads_for(x.size * CHANNEL_WORK), samples * groups)
        return contiguous_first(TaskWriter(MODULE, GROUPS, arguments, copying_writer(compute), threads), x, workspace)

    return make


class _ChannelWriter:
    """A writer of arrays that are both NCHW or both NHWC.

    Args:
        shape: (N, C, *spatial).
        epsilon: what is added to variances.
        otherwise: writes other arrays.
    """

    def __init__(self, shape: tuple[int, ...], epsilon: float, otherwise: Writer) -> None:
        from ort_sdk_cpu.jit.task import TaskCall

        samples, channels, *axes = shape
        arguments = InstanceNormalization(None, None, None, None, samples, channels, math.prod(axes), epsilon)
        threads = threads_for(math.prod(shape) * CHANNEL_WORK)
        self._calls = {name: TaskCall(MODULE, name, arguments, threads) for name in _TASKS.values()}
        self._otherwise = otherwise
        self.algorithm: str | None = None

    def __call__(self, *arrays: Any) -> None:
        """Write the output."""
        call = self._pointed(arrays)
        if call is None:
            self._otherwise(*arrays)
        else:
            call.run()

    def bind_arrays(self, *arrays: Any) -> Callable[[], Any] | None:
        """The call on arrays that stay the same; None if they are not of one layout."""
        call = self._pointed(arrays)
        return None if call is None else call.bound_call(*arrays)

    def _pointed(self, arrays: Sequence[HostArray]) -> Any:
        """The task for the layout of the arrays, pointed at them."""
        x, scale, shift, out = arrays
        if not scale.flags.c_contiguous or not shift.flags.c_contiguous:
            return None
        algorithm = _algorithm(x, out)
        if algorithm is ChannelAlgorithm.NUMPY:
            return None
        self.algorithm = algorithm.value
        call = self._calls[_TASKS[algorithm]]
        call.point(InstanceNormalization.x, x)
        call.point(InstanceNormalization.out, out)
        call.point(InstanceNormalization.scale, scale)
        call.point(InstanceNormalization.shift, shift)
        return call


def _algorithm(x: HostArray, out: HostArray) -> ChannelAlgorithm:
    """For the layout that both have."""
    is_nchw = x.flags.c_contiguous and out.flags.c_contiguous
    is_nhwc = not is_nchw and all(np.moveaxis(array, 1, -1).flags.c_contiguous for array in (x, out))
    return select_channels(is_float32=True, is_nchw=is_nchw, is_nhwc=is_nhwc)
