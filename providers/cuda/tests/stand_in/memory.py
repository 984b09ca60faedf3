"""Memory of the stand-in: ranges at addresses, those of the device and those of the host that are pinned."""

import bisect
import ctypes
import mmap

import numpy as np

POISON = 0xFF
"""Bytes of NaN, of -1, and of no index that fits."""


class Range:
    """Memory at an address.

    Args:
        nbytes: size.
        computer: of memory of the device; None for the host's.
    """

    def __init__(self, nbytes, computer=None):
        self.nbytes = nbytes
        self.array = np.frombuffer(mmap.mmap(-1, nbytes), np.uint8)
        self.address = self.array.ctypes.data
        self.array[:] = POISON
        self._computer = computer
        self._buffers = {}

    def buffer(self, offset):
        """An OpenCL buffer of what follows an offset."""
        if not self._buffers:
            self._buffers[0] = self._computer.buffer(self.array)
        if offset not in self._buffers:
            assert offset % self._computer.alignment_bytes == 0, f"the stand-in has no buffer at offset {offset}"
            self._buffers[offset] = self._buffers[0].get_sub_region(offset, self.nbytes - offset)
        return self._buffers[offset]


class Ranges:
    """Ranges by address."""

    def __init__(self):
        self._addresses, self._ranges = [], []
        self.nbytes = 0

    def add(self, found):
        position = bisect.bisect(self._addresses, found.address)
        self._addresses.insert(position, found.address)
        self._ranges.insert(position, found)
        self.nbytes += found.nbytes
        return found.address

    def remove(self, address):
        """Take out the range that begins at an address; None if there is none."""
        position = bisect.bisect_left(self._addresses, address)
        if self._addresses[position : position + 1] != [address]:
            return None
        del self._addresses[position]
        found = self._ranges.pop(position)
        self.nbytes -= found.nbytes
        return found

    def at(self, address, nbytes=1):
        """The range that has so many bytes at an address, and where they begin in it; None if there is none."""
        position = bisect.bisect(self._addresses, address) - 1
        if position < 0 or address + nbytes > self._addresses[position] + self._ranges[position].nbytes:
            return None
        return self._ranges[position], address - self._addresses[position]


def host_bytes(address, nbytes):
    """Any memory of the host as an array."""
    return np.frombuffer((ctypes.c_uint8 * nbytes).from_address(address), np.uint8)
