"""The provider in a session: one device and its queue."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ort_sdk.api import Array, ExecutionProvider, FusibleProgram, OrtDevice, OrtSdkError, StepFusion, TensorElementType
from ort_sdk.device import CapturedCall, DeviceArray, fuse_neighbours

from .bound_calls import OpenClCall, joined
from .device import context_of, launcher_of
from .options import ProviderOptions

__all__ = ["OpenClExecutionProvider"]


class OpenClExecutionProvider(ExecutionProvider):
    """Queues work on an in-order queue; waits for it where a run ends.

    Args:
        name: of the provider.
        options: as values.
        given: as the user gave them.
    """

    def __init__(self, name: str, options: ProviderOptions, given: Mapping[str, str]) -> None:
        super().__init__(name, OrtDevice("opencl", options.index), given)
        self.context = context_of(options)
        self._launcher = launcher_of(self.context)

    @contextlib.contextmanager
    def run_scope(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            with contextlib.suppress(OrtSdkError):
                self._launcher.finish()
            raise
        self._launcher.finish()

    def describe(self, array: Array) -> tuple[TensorElementType, tuple[int, ...]]:
        # outputs on the host are NumPy's
        return (array.element_type, array.shape) if isinstance(array, DeviceArray) else super().describe(array)

    def fuse_steps(self, program: FusibleProgram) -> StepFusion:
        return fuse_neighbours(program, self.context)

    def join_calls(self, calls: Sequence[Callable[[], Any]]) -> Sequence[tuple[int, Callable[[], Any]]]:
        own = [call.launches for call in calls if isinstance(call, CapturedCall)]
        if len(own) == len(calls) > 1:
            return [(len(calls), joined([each for each in own if isinstance(each, OpenClCall)]))]
        return [(1, call) for call in calls]

    def describe_environment(self) -> Sequence[str]:
        launcher = self._launcher
        found, pool = launcher.queue.found, launcher.pool
        kind = "a processor" if found.is_cpu else "an accelerator"
        kept = launcher.programs.folder or "no folder: set ORT_SDK_CACHE_DIR"
        limit = f", at most {pool.limit_bytes}" if pool.limit_bytes else ""
        return (
            f"{found.label}: {found.driver}",
            f"{kind} with {found.device.global_mem_size >> 20} MiB, dialects {' and '.join(found.dialects)}",
            f"self-test passed with {launcher.form.text}",
            f"compiled kernels are kept in {kept}",
            f"memory: {pool.bytes_in_use} bytes in use, {pool.bytes_held} held{limit}",
        )
