"""A device's queue: what runs queue on it and wait for, and the memory that small copies are staged in."""

from .device_queue import DeviceQueue
from .runs import OpenClEvent

__all__ = ["DeviceQueue", "OpenClEvent"]
