"""A device's stream: what is queued on it, waited for, staged for its copies, and reported by its kernels."""

from .device_queue import DeviceQueue
from .pinned import PinnedBuffer, PinnedRing, address_of
from .queue_event import QueueEvent

__all__ = ["DeviceQueue", "PinnedBuffer", "PinnedRing", "QueueEvent", "address_of"]
