"""The provider in a session: one device and its stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ort_sdk.api import Array, Event, OrtDevice, TensorElementType
from ort_sdk.device import DeviceArray, DeviceExecutionProvider

from .device import context_of, launcher_of
from .launching import joined
from .options import ProviderOptions
from .sharing import DLPACK_TYPE, given_tensor, taken_tensor, wrapped

__all__ = ["CudaExecutionProvider"]


class CudaExecutionProvider(DeviceExecutionProvider):
    """Queues work on a stream. Runs end before it is done: it is waited for where the host reads.

    Args:
        name: of the provider.
        options: as values.
        given: as the user gave them.
    """

    compiles_at_once = True
    dlpack_device_type = DLPACK_TYPE

    def __init__(self, name: str, options: ProviderOptions, given: Mapping[str, str]) -> None:
        super().__init__(name, OrtDevice("cuda", options.index), given, context_of(options))
        self._launcher = launcher_of(self.context)
        self._queue = self._launcher.queue
        self._uses_graphs = options.uses_graphs

    def shares_memory(self, first: Array, second: Array, *, entirely: bool = False) -> bool:
        if isinstance(first, DeviceArray) and isinstance(second, DeviceArray):
            begin, start = first.data_ptr, second.data_ptr
            return begin == start if entirely else begin < start + second.nbytes and start < begin + first.nbytes
        return super().shares_memory(first, second, entirely=entirely)

    def wrap_memory(self, address: int, shape: tuple[int, ...], element_type: TensorElementType, owner: Any) -> DeviceArray:
        return wrapped(self.context, self._queue, address, shape, element_type, owner)

    def to_dlpack(self, array: DeviceArray, stream: Any, ready: Event | None) -> Any:
        return given_tensor(self._queue, array, stream, ready)

    def from_dlpack(self, tensor: Any) -> DeviceArray:
        return taken_tensor(self.context, self._queue, tensor)

    def join_calls(self, calls: Sequence[Callable[[], Any]]) -> Sequence[tuple[int, Callable[[], Any]]]:
        return joined(calls, uses_graphs=self._uses_graphs)

    def describe_environment(self) -> Sequence[str]:
        launcher, found = self._launcher, self._queue.found
        driver, compiler, pool = found.cuda.driver, found.cuda.compiler, launcher.pool
        kept = launcher.programs.folder or "no folder: set ORT_SDK_CACHE_DIR"
        limit = f", at most {pool.limit_bytes}" if pool.limit_bytes else ""
        return (
            f"{found.label}: {found.architecture}, {found.units} multiprocessors, {found.memory_bytes >> 20} MiB",
            f"driver: CUDA {'.'.join(map(str, driver.version))}, {driver.library}",
            f"compiler: NVRTC {compiler.version}, {compiler.library}",
            f"self-test passed with {launcher.form.text}",
            f"compiled kernels are kept in {kept}",
            f"memory: {pool.bytes_in_use} bytes in use, {pool.bytes_held} held{limit}",
        )
