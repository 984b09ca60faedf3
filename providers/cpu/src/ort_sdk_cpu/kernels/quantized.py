"""Convolution of 8-bit data into a given output."""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk.api import KernelInfo

from .bindable import BindableKernel, MakeWriter, bindable, made_by

__all__: list[str] = []


@bindable("QLinearConv")
@bindable("QLinearConv", domain="com.microsoft")
def copied(_info: KernelInfo, compute: Any) -> MakeWriter:
    """The shared set's function; its result is copied."""

    def write(*arrays: Any) -> None:
        np.copyto(arrays[-1], compute(*arrays[:-1]))

    return lambda _inputs, _outputs: write


@made_by("QLinearConv")
@made_by("QLinearConv", domain="com.microsoft")
def qlinear_conv_over_onednn(info: KernelInfo, kernel: Any, make_writer: MakeWriter) -> Any:
    """The kernel over oneDNN where that computes the node."""
    from .qlinear_conv_onednn import with_onednn

    return with_onednn(info, BindableKernel(kernel, make_writer))
