"""Writers of arrays of one layout, where input and output differ: one of both is copied into the other's."""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk.api import HostArray
from ort_sdk_cpu.kernel.copy import copy_elements
from ort_sdk_cpu.kernel.writer import Writer
from ort_sdk_cpu.memory.workspace import Workspace

__all__ = ["ChannelsLastOutput", "ContiguousInput", "contiguous_first"]

NAME = "contiguous copy"


class ContiguousInput:
    """Gives a writer its first input in row-major order.

    Args:
        writer: of row-major arrays.
        workspace: the workspace.
    """

    def __init__(self, writer: Writer, workspace: Workspace) -> None:
        self._writer, self._workspace = writer, workspace

    def __call__(self, *arrays: Any) -> None:
        """Write the outputs."""
        x = arrays[0]
        if not x.flags.c_contiguous:
            x = self._workspace.array(NAME, x.shape, x.dtype)
            copy_elements(x, arrays[0])
        self._writer(x, *arrays[1:])


def contiguous_first(writer: Writer, x: HostArray, workspace: Workspace) -> Writer:
    """A writer for inputs of the layout of ``x``, over one of row-major arrays.

    Args:
        writer: of row-major arrays.
        x: an array like its first input.
        workspace: the workspace.
    """
    return writer if x.flags.c_contiguous else ContiguousInput(writer, workspace)


class ChannelsLastOutput:
    """Lets a writer write with channels last, and copies that.

    Args:
        writer: of arrays with channels last.
        workspace: the workspace.
    """

    def __init__(self, writer: Writer, workspace: Workspace) -> None:
        self._writer, self._workspace = writer, workspace

    def __call__(self, *arrays: Any) -> None:
        """Write the output."""
        out = arrays[-1]
        samples, channels, *sizes = out.shape
        written = np.moveaxis(self._workspace.array(NAME, (samples, *sizes, channels), out.dtype), -1, 1)
        self._writer(*arrays[:-1], written)
        copy_elements(out, written)
