"""The memory that the programs of a plan share, one at a time: of the host, and of each device."""

from __future__ import annotations

from ort_sdk.api import OutOfMemory, SupportsBlocks
from ort_sdk.memory import Arena, DeviceArena
from ort_sdk.run.types import BindingProvider

__all__ = ["ProgramArenas", "ProgramOutOfMemory"]


class ProgramOutOfMemory(OutOfMemory):
    """A device has no memory for the values of a program."""


class ProgramArenas:
    """One arena of the host, and one for each provider whose allocator makes blocks, from when it is first asked for."""

    def __init__(self) -> None:
        self.host = Arena()
        self._devices: dict[str, DeviceArena] = {}
        """By the provider's name."""

    def of(self, provider: BindingProvider) -> DeviceArena | None:
        """The arena on a provider's device; None if its allocator makes no blocks, or makes arrays of the host.

        Raises:
            EPFail: the allocator's blocks have no alignment.
        """
        if provider.device.is_cpu or not isinstance(provider.allocator, SupportsBlocks):
            return None
        own = provider.execution_provider
        found = self._devices.get(own.name)
        if found is None:
            found = self._devices[own.name] = DeviceArena(provider.allocator, own.memory_account, own.name)
        return found

    @property
    def nbytes(self) -> int:
        """Bytes of all of them."""
        return self.host.nbytes + self.device_bytes

    @property
    def device_bytes(self) -> int:
        """Bytes of those on devices."""
        return sum(arena.nbytes for arena in self._devices.values())

    def drop_device_blocks(self) -> None:
        """Let go of what is on devices: it lasts as long as programs that are bound to it."""
        for arena in self._devices.values():
            arena.drop_block()
