"""What launchers share: a pool of memory, files kept for a driver, its self-test with fallbacks, and tuning."""

from .driver_store import DriverStore, opened_store
from .forms import DeviceForm, UnusableDevice, chosen_form, known_reason
from .memory_pool import DriverMemory, MemoryPool
from .tuning import Tuning

__all__ = [
    "DeviceForm",
    "DriverMemory",
    "DriverStore",
    "MemoryPool",
    "Tuning",
    "UnusableDevice",
    "chosen_form",
    "known_reason",
    "opened_store",
]
