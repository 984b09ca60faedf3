"""Packed weights by what they were made of, shared by kernels, sessions and, if wanted, kept when no session needs them."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Hashable, Iterator, Sequence

from ort_sdk.api import NotPacked, OrtDevice, PrePackedWeights
from ort_sdk.api.data_classes import dataclass
from ort_sdk.formats.files.byte_source import ByteSource

__all__ = ["PackedEntry", "PrepackKey", "PrepackedWeightsContainer", "shared_entry"]

_FORMAT = "ort_sdk packed weights 1"


@dataclass(frozen=True, slots=True)
class PrepackKey:
    """Everything that decides a weight's packed bytes."""

    provider: str
    """ORT-style provider name."""
    device: OrtDevice
    """Where the packed buffers are."""
    domain: str
    op_type: str
    input_index: int
    packing_identity: str
    """The kernel's word: library version, instruction set, layout, attributes, sibling constants."""
    type_and_shape: str
    """Of the weight."""
    source: Hashable
    """Identity of the weight's contents in this process."""
    owner: Hashable = None
    """Whose arrays the buffers are: the provider's registration, None for host memory."""

    def identity(self) -> str:
        """Hexadecimal digest of all but the weight's contents: the same on another machine of the same kind."""
        parts = (
            _FORMAT,
            self.provider,
            self.device.name,
            self.domain,
            self.op_type,
            str(self.input_index),
            self.packing_identity,
            self.type_and_shape,
        )
        import hashlib

        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


class PackedEntry:
    """One packed weight, made by the first that asks; others wait for it.

    Args:
        sources: files and buffers the weight is in.
    """

    __slots__ = ("__weakref__", "_lock", "_sources", "_weights")

    def __init__(self, sources: Sequence[ByteSource]) -> None:
        self._lock = threading.Lock()
        # A key may be an address; no other weight may be allocated there meanwhile.
        self._sources = tuple(source for source in sources if not source.is_file)
        self._weights: PrePackedWeights | NotPacked | None = None

    def weights(
        self, make: Callable[[], PrePackedWeights | NotPacked], *, goes_to_file: bool = False
    ) -> PrePackedWeights | NotPacked:
        """The packed weight, or ``NOT_PACKED`` if the kernel does not want it packed.

        Args:
            make: called if nobody has made it yet. What it raises is the caller's; the next one tries again.
            goes_to_file: whether it is made in a file's memory: a kernel may have packed nothing where there was no file.
        """
        with self._lock:
            is_empty = isinstance(self._weights, PrePackedWeights) and not self._weights.buffers
            if self._weights is None or (goes_to_file and is_empty):
                self._weights = make()
            return self._weights

    @property
    def nbytes(self) -> int:
        """Bytes of its buffers."""
        weights = self._weights
        return sum(int(buffer.nbytes) for buffer in weights.buffers) if isinstance(weights, PrePackedWeights) else 0


_lock = threading.Lock()
_entries: weakref.WeakValueDictionary[PrepackKey, PackedEntry] = weakref.WeakValueDictionary()


def shared_entry(key: PrepackKey, sources: Sequence[ByteSource]) -> PackedEntry:
    """The process's one entry of a key, for a weight in these files and buffers. It lasts as long as it is referenced."""
    with _lock:
        entry = _entries.get(key)
        if entry is None:
            entry = _entries[key] = PackedEntry(sources)
        return entry


class PrepackedWeightsContainer:
    """Packed weights that outlive sessions (ORT's class of that name).

    Sessions share packed weights among themselves, and the last one that uses a weight frees it. Sessions made with a
    container leave their packed weights there too, so that a later session finds them although the earlier ones are gone.
    May be used by any number of sessions and threads. Dropping it, or ``clear``, frees what no session uses.
    """

    def __init__(self) -> None:
        self._held: dict[PrepackKey, PackedEntry] = {}
        self._lock = threading.Lock()

    def entry(self, key: PrepackKey, sources: Sequence[ByteSource]) -> PackedEntry:
        """The entry of a key, kept from now on."""
        with self._lock:
            held = self._held.get(key)
            if held is None:
                held = self._held[key] = shared_entry(key, sources)
            return held

    def clear(self) -> None:
        """Let go of everything."""
        with self._lock:
            self._held.clear()

    def __len__(self) -> int:
        return len(self._packed())

    def __iter__(self) -> Iterator[PrepackKey]:
        return iter(self._packed())

    @property
    def nbytes(self) -> int:
        """Bytes of all packed weights in it; those in files count, too."""
        with self._lock:
            return sum(entry.nbytes for entry in self._held.values())

    def _packed(self) -> list[PrepackKey]:
        with self._lock:
            return [key for key, entry in self._held.items() if entry.nbytes]

    def __repr__(self) -> str:
        return f"PrepackedWeightsContainer({len(self)} weights, {self.nbytes} bytes)"
