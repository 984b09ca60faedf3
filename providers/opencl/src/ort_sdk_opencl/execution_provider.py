"""The provider in a session: one device and its queue."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ort_sdk.api import OrtDevice
from ort_sdk.device import DeviceExecutionProvider

from .bound_calls import joined
from .device import context_of, launcher_of
from .options import ProviderOptions

__all__ = ["OpenClExecutionProvider"]


class OpenClExecutionProvider(DeviceExecutionProvider):
    """Queues work on an in-order queue; waits for it where a run ends.

    Args:
        name: of the provider.
        options: as values.
        given: as the user gave them.
    """

    def __init__(self, name: str, options: ProviderOptions, given: Mapping[str, str]) -> None:
        super().__init__(name, OrtDevice("opencl", options.index), given, context_of(options))
        self._launcher = launcher_of(self.context)

    def join_calls(self, calls: Sequence[Callable[[], Any]]) -> Sequence[tuple[int, Callable[[], Any]]]:
        return joined(calls)

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
