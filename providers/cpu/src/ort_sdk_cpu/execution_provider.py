"""The CPU execution provider of a session."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ort_sdk.api import (
    CPU_DEVICE,
    CompilationPolicy,
    ExecutionProvider,
    FusibleProgram,
    KernelInfo,
    NodeArg,
    OrtDevice,
    StepFusion,
    compilation_context,
)
from ort_sdk_cpu.memory.workspace import shared_workspace
from ort_sdk_cpu.platform.archives import archives
from ort_sdk_cpu.platform.fp_errors import IgnoredErrors
from ort_sdk_cpu.platform.run_settings import configured_log_level, configured_threads, openmp_default_threads, set_log_level
from ort_sdk_cpu.platform.threads import RunScope

from .platform import libraries

__all__ = ["CpuExecutionProvider"]


class CpuExecutionProvider(ExecutionProvider):
    """Computes synchronously on NumPy arrays.

    Args:
        name: the provider's name.
        device: the device it runs on.
        options: provider options, by name.
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
        self.workspace = shared_workspace()
        """Workspace of kernels, shared by all sessions."""
        config = session_options or {}
        self.threads = configured_threads(config)
        """Threads that a kernel may use."""
        self._log_level = configured_log_level(config)
        set_log_level(self._log_level)  # for kernels that are compiled while the session is created
        self.uses_blas = False
        """Whether a kernel of the session may call NumPy's BLAS."""
        self._sets_threads = False
        self._step_kernels: dict[Any, Any] = {}
        libraries.limit_spinning(config)

    @property
    def compiles_on_demand(self) -> bool:  # type: ignore[override]
        """Whether kernels are compiled on this machine: where the package does not bring them."""
        return not archives() and libraries.numba().is_usable

    @property
    def has_compiled_code(self) -> bool:  # type: ignore[override]
        """Whether what runs tasks is compiled, without which none is run."""
        from ort_sdk_cpu.jit.task_code import can_run_tasks

        return can_run_tasks()

    def run_scope(self) -> contextlib.AbstractContextManager[Any]:
        """Context of a run: the session's number of threads, without NumPy's warnings about infinities and NaNs."""
        if not self._sets_threads:
            # Once True it stays True: a library that is loaded is not unloaded.
            self._sets_threads = self.uses_blas or self.threads != openmp_default_threads() or libraries.is_openmp_loaded()
            # Beside a thread that compiles for the session: BLAS must not get another number of threads while it computes.
            context = compilation_context()
            self._sets_threads |= context.policy is not CompilationPolicy.WAIT or context.in_background
            if not self._sets_threads:
                set_log_level(self._log_level)
                return IgnoredErrors()
        return RunScope(self.threads, self._log_level)

    def fuse_steps(self, program: FusibleProgram) -> StepFusion:
        """Fuse convolutions and matrix products with their epilogues, and chains of element-wise steps into compiled kernels."""
        from ort_sdk_cpu.fusion.fuse import fuse

        return fuse(program)

    def join_calls(self, calls: Sequence[Callable[[], Any]]) -> Sequence[tuple[int, Callable[[], Any]]]:
        """Join neighbouring calls of C functions with fixed arguments into one call."""
        from ort_sdk_cpu.jit.call_list import join_calls

        return join_calls(calls)

    def step_kernel(self, op_type: str, types: Sequence[str], attributes: Mapping[str, Any]) -> Any:
        """The kernel of a node with these input types and attributes, shared by all steps of the session that ask for it."""
        key = (op_type, tuple(types), tuple(sorted(attributes.items())))
        found = self._step_kernels.get(key)
        if found is None and not any("string" in type_string for type_string in types):
            from .registry import newest_kernel

            inputs = tuple([NodeArg("", type_string) for type_string in types])
            output = NodeArg("", types[-1])
            # Weak: this provider holds these kernels, and kernels hold their KernelInfo.
            own: Any = weakref.proxy(self)
            info = KernelInfo(op_type, 0, attributes=attributes, inputs=inputs, outputs=(output,), execution_provider=own)
            found = self._step_kernels[key] = newest_kernel(info)
        return found

    def describe_environment(self) -> Sequence[str]:
        """Optional libraries, instruction set, number of threads and where compiled kernels come from, one line each."""
        from ort_sdk_cpu.jit.archive.report import report

        return [*libraries.report(), *report()]
