"""Execution providers as the host holds them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .device import CPU_DEVICE, OrtDevice
from .element_type import TensorElementType, element_type_of
from .kernel import Array
from .memory_account import MemoryAccount, memory_limit
from .step_fusion import FusibleProgram, StepFusion

__all__ = ["API_VERSION", "ExecutionProvider"]

API_VERSION = 1
"""Version of this contract. A provider built for a newer one is refused."""


class ExecutionProvider:
    """One provider in one session, made by the hook ``create_execution_provider``. Subclass it.

    Args:
        name: ORT-style name, ``CUDAExecutionProvider``.
        device: where the provider's arrays live.
        options: provider options the user gave, as text. ``gpu_mem_limit`` limits ``memory_account``, on any device but the host.

    Raises:
        InvalidArgument: ``gpu_mem_limit`` is no number of bytes.
    """

    compiles_on_demand: bool = False
    """Whether making or running kernels may need code that is not compiled yet, and asks ``compilation_context()`` what to do."""
    has_compiled_code: bool = True
    """Of a provider that compiles on demand: whether some code is compiled, so that sessions may be made of what there is."""

    def __init__(self, name: str, device: OrtDevice = CPU_DEVICE, options: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.device = device
        self.options: dict[str, str] = dict(options or {})
        self.memory_account = MemoryAccount(device, None if device.is_cpu else memory_limit(self.options))
        """What the session holds on the device; kernels that allocate memory themselves may count it there, too."""

    def run_scope(self) -> contextlib.AbstractContextManager[Any]:
        """Context of every run: owns the stream and the allocator; its exit waits until all queued work is done."""
        return contextlib.nullcontext()

    def describe(self, array: Array) -> tuple[TensorElementType, tuple[int, ...]]:
        """Element type and shape of one of the provider's arrays. Reads no contents."""
        return element_type_of(array), tuple(int(dimension) for dimension in array.shape)

    def may_share_memory(self, first: Array, second: Array) -> bool:
        """Whether two of the provider's arrays may have bytes in common, wherever they begin. Reads no contents.

        The host asks it of what steps read and make when it records a run, to know until when memory is in use. It asks no
        provider that does not override it, and believes what definitions of kernels declare (``KernelDef.alias``).
        """
        return first is second

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
