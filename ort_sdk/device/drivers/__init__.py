"""What launchers share: a pool of memory, files kept for a driver, its self-test with fallbacks, and tuning."""

from .dlpack import SharedTensor, capsule_of, shared_tensor
from .driver_store import DriverStore, opened_store
from .forms import DeviceForm, UnusableDevice, chosen_form, known_reason
from .host_bytes import as_bytes
from .memory_pool import DriverMemory, MemoryPool
from .tuning import Tuning

__all__ = [
    "DeviceForm",
    "DriverMemory",
    "DriverStore",
    "MemoryPool",
    "SharedTensor",
    "Tuning",
    "UnusableDevice",
    "as_bytes",
    "capsule_of",
    "chosen_form",
    "known_reason",
    "opened_store",
    "shared_tensor",
]
