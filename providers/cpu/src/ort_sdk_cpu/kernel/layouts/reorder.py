"""Copies between layouts by oneDNN's reorder primitive."""

from __future__ import annotations

import contextlib

from ort_sdk.api import HostArray, RuntimeException
from ort_sdk_cpu.jit.native_call import NativeCall
from ort_sdk_cpu.onednn.constants import Argument
from ort_sdk_cpu.onednn.execution import Execution
from ort_sdk_cpu.onednn.primitive import reorder
from ort_sdk_cpu.platform import threads

from .memory import AnyLayout

__all__ = ["reorder_copy"]


class _ReorderCopy:
    """A copy by oneDNN's reorder."""

    def __init__(self, execution: Execution) -> None:
        self._execution = execution

    def aim(self, source: HostArray, target: HostArray) -> None:
        """Use these arrays' memory."""
        self._execution.set(Argument.SRC, source)
        self._execution.set(Argument.DST, target)

    def release(self) -> None:
        """Keep no array alive."""
        self._execution.forget(Argument.SRC)
        self._execution.forget(Argument.DST)

    @property
    def native(self) -> NativeCall:
        """The same for callers that need no Python."""
        return self._execution.native

    def __call__(self) -> None:
        """Copy."""
        self._execution()


def reorder_copy(source: AnyLayout, target: AnyLayout, *, is_small: bool) -> _ReorderCopy:
    """A copy between layouts, of which one or both may be oneDNN's own.

    Raises:
        RuntimeException: oneDNN has no fast one, or cannot be loaded.
    """
    with threads.openmp_threads(1) if is_small else contextlib.nullcontext():
        primitive = reorder(source, target)
    if primitive is None:
        raise RuntimeException(f"oneDNN has no fast copy from layout {source} to {target}")
    return _ReorderCopy(Execution(primitive, {Argument.SRC: source, Argument.DST: target}, is_small=is_small))
