"""The CPU provider in a session."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ort_sdk.api import CPU_DEVICE, ExecutionProvider, FusibleProgram, KernelInfo, NodeArg, OrtDevice, StepFusion
from ort_sdk_cpu.memory.workspace import shared_scratch
from ort_sdk_cpu.platform.fp_errors import IgnoredErrors
from ort_sdk_cpu.platform.threads import RunScope, log_level_of, openmp_default, set_log_level, threads_of

from .platform import libraries

__all__ = ["CpuExecutionProvider"]


class CpuExecutionProvider(ExecutionProvider):
    """Computes at once, on NumPy arrays.

    Args:
        name: as for ``ExecutionProvider``, like the next two.
        device: see there.
        options: see there.
        session_options: the session's config entries.
    """

    def __init__(
        self,
        name: str,
        device: OrtDevice = CPU_DEVICE,
        options: Mapping[str, str] | None = None,
        session_options: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(name, device, options)
        self.scratch = shared_scratch()
        """Working memory of kernels, the same in all sessions."""
        config = session_options or {}
        self.threads = threads_of(config)
        """Threads a kernel may use."""
        self._log_level = log_level_of(config)
        set_log_level(self._log_level)  # for kernels that are compiled while the session is made
        self.has_products = False
        """Whether a kernel of the session may compute products with NumPy."""
        self._sets_threads = False
        self._step_kernels: dict[Any, Any] = {}
        libraries.bound_spinning(config)

    def run_scope(self) -> contextlib.AbstractContextManager[Any]:
        """Threads are the session's. NumPy's warnings about infinities and NaNs, which are values of ONNX's, stay off."""
        if not self._sets_threads:
            # What is loaded stays loaded.
            self._sets_threads = self.has_products or self.threads != openmp_default() or libraries.is_openmp_loaded()
            if not self._sets_threads:
                set_log_level(self._log_level)
                return IgnoredErrors()
        return RunScope(self.threads, self._log_level)

    def fuse_steps(self, program: FusibleProgram) -> StepFusion:
        """Convolutions do what follows them; other chains of element-wise steps become compiled kernels."""
        from ort_sdk_cpu.fusion.fuse import fuse

        return fuse(program)

    def join_calls(self, calls: Sequence[Callable[[], Any]]) -> Sequence[tuple[int, Callable[[], Any]]]:
        """Neighbours that are C functions on arguments that stay are driven by one call."""
        from ort_sdk_cpu.jit.call_list import join_calls

        return join_calls(calls)

    def step_kernel(self, op_type: str, types: Sequence[str], attributes: Mapping[str, Any]) -> Any:
        """The kernel a node of these inputs would have; the same for all steps of a session."""
        key = (op_type, tuple(types), tuple(sorted(attributes.items())))
        found = self._step_kernels.get(key)
        if found is None and not any("string" in type_string for type_string in types):
            from .registry import newest_kernel

            inputs = tuple([NodeArg("", type_string) for type_string in types])
            output = NodeArg("", types[-1])
            # Weak: this provider holds these kernels, and kernels hold what they were told.
            own: Any = weakref.proxy(self)
            info = KernelInfo(op_type, 0, attributes=attributes, inputs=inputs, outputs=(output,), execution_provider=own)
            found = self._step_kernels[key] = newest_kernel(info)
        return found

    def describe_environment(self) -> Sequence[str]:
        """Optional libraries, instruction set and threads."""
        return libraries.report()
