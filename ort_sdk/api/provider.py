"""Execution providers as the host holds them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .device import CPU_DEVICE, OrtDevice
from .element_type import TensorElementType, element_type_of
from .kernel import Array
from .step_fusion import FusibleProgram, StepFusion

__all__ = ["API_VERSION", "ExecutionProvider"]

API_VERSION = 1
"""Version of this contract. A provider built for a newer one is refused."""


class ExecutionProvider:
    """One provider in one session, made by the hook ``create_execution_provider``. Subclass it.

    Args:
        name: ORT-style name, ``CUDAExecutionProvider``.
        device: where the provider's arrays live.
        options: provider options the user gave, as text.
    """

    compiles_on_demand: bool = False
    """Whether making or running kernels may need code that is not compiled yet, and asks ``compilation_context()`` what to do."""
    has_compiled_code: bool = True
    """Of a provider that compiles on demand: whether some code is compiled, so that sessions may be made of what there is."""

    def __init__(self, name: str, device: OrtDevice = CPU_DEVICE, options: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.device = device
        self.options: dict[str, str] = dict(options or {})

    def run_scope(self) -> contextlib.AbstractContextManager[Any]:
        """Context of every run: owns the stream and the allocator; its exit waits until all queued work is done."""
        return contextlib.nullcontext()

    def describe(self, array: Array) -> tuple[TensorElementType, tuple[int, ...]]:
        """Element type and shape of one of the provider's arrays. Reads no contents."""
        return element_type_of(array), tuple(int(dimension) for dimension in array.shape)

    def fuse_steps(self, program: FusibleProgram) -> StepFusion:
        """Make one kernel of several steps of a program, as often as it pays.

        Asked when a program is made, and again after it has run for a while as long as the answer is not complete. Results must
        stay the same within the rounding of the elements' type.
        """
        return StepFusion()

    def join_calls(self, calls: Sequence[Callable[[], Any]]) -> Sequence[tuple[int, Callable[[], Any]]]:
        """Make one call of several, where that is faster than one after the other.

        Args:
            calls: of bound kernels that follow each other in a program, with nothing between them.

        Returns:
            (number of calls, one call that does the same), in order, for all of them. A call made of several may have an
            attribute ``failed``, the position among them of the one that raised, so that its step is named. It looks itself
            between them whether the run shall stop (``ort_sdk.api.stopping``).
        """
        return [(1, call) for call in calls]

    def reshaped(self, array: Array, shape: Sequence[int]) -> Array | None:
        """An array of the device with another shape in the same memory, made without a kernel; None if there can be none.

        What it is asked for takes no call in a program: Reshape, Squeeze, Unsqueeze, Flatten and Identity of a value in a buffer
        that stays. The view is only read. It keeps the memory alive.

        Args:
            array: one of the provider's allocator, or a view of one.
            shape: of as many elements.
        """
        return None

    def outer_range(self, array: Array, start: int, stop: int) -> Array | None:
        """Some rows of an array of the device in the same memory, made without a kernel; None if there can be none.

        As ``reshaped``, for a Split of the outermost axis.

        Args:
            array: one of the provider's allocator, or a view of one.
            start: first position along axis 0.
            stop: the one after the last.
        """
        return None

    def step_kernel(self, op_type: str, types: Sequence[str], attributes: Mapping[str, Any]) -> Any:
        """The kernel of a step that no node of the model has, made where control flow is expanded; None if there is none.

        Args:
            op_type: one of ONNX's operators that move elements, of its newest version.
            types: of its inputs, as type strings.
            attributes: of the operator.
        """
        return None

    def describe_environment(self) -> Sequence[str]:
        """Libraries and settings the provider uses here, and how to get what is missing: lines of text, for reports."""
        return ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.device})"
