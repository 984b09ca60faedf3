"""What launchers share: a pool of memory, files kept for a driver, and the self-test of a driver with its fallbacks."""

from .driver_store import DriverStore, opened_store
from .forms import DeviceForm, UnusableDevice, chosen_form, known_reason
from .memory_pool import DriverMemory, MemoryPool

__all__ = [
    "DeviceForm",
    "DriverMemory",
    "DriverStore",
    "MemoryPool",
    "UnusableDevice",
    "chosen_form",
    "known_reason",
    "opened_store",
]
