"""The provider in a session: one device and its queue."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ort_sdk.api import Array, OrtDevice, TensorElementType
from ort_sdk.api import NotImplemented as OrtNotImplemented
from ort_sdk.device import DeviceExecutionProvider

from .device import context_of, launcher_of
from .launching.bound_calls import joined
from .options import ProviderOptions

__all__ = ["OpenClExecutionProvider"]


class OpenClExecutionProvider(DeviceExecutionProvider):
    """Queues work on an in-order queue; runs end before it is done.

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

    def wrap_memory(self, address: int, shape: tuple[int, ...], element_type: TensorElementType, owner: Any) -> Array:
        raise OrtNotImplemented(
            f"making an array of memory at {address:#x} on {self.device}: memory of OpenCL is buffers, which have no addresses. "
            "For memory of the host bind the array (bind_cpu_input), which is copied; for memory of the device bind an OrtValue "
            "that is made there (OrtValue.ortvalue_from_numpy, ortvalue_from_shape_and_type)"
        )

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
