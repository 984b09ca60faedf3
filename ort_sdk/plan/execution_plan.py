"""What a run does, as data: steps over numbered values. Names end here (ORT's ``SequentialExecutionPlan``)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ort_sdk.api import Array, OrtDevice, Shape, Tensor
from ort_sdk.api.data_classes import dataclass, field

__all__ = ["ABSENT", "Constants", "ExecutionPlan", "Feed", "Fetch", "Step"]

ABSENT = 0
"""Index of the value that is always None: omitted inputs read it, outputs nobody asked for go nowhere."""


@dataclass(slots=True)  # not frozen, which takes longer to make: there is one for each node
class Step:
    """One kernel launch or copy, and the values that end with it."""

    compute: Any
    """Callable of the input values."""
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    """One index per output; ``ABSENT`` for one nobody asked for."""
    frees: tuple[int, ...]
    """Values not read after this step."""
    kernel: Any
    """The kernel object, for its declared abilities; None for a copy."""
    op_type: str
    domain: str
    node: str
    """Node's name."""
    provider: str
    """Empty for a copy."""
    device: OrtDevice
    """Where the step's outputs are, unless the kernel leaves them on the host."""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """Of the node."""
    aliases: tuple[tuple[int, int], ...] | None = None
    """(input, output) pairs that may share memory; None if any may."""

    @property
    def algorithm(self) -> str | None:
        """Name of the algorithm that the kernel computes with, if it names one by now."""
        found = getattr(self.kernel, "algorithm", None)
        return None if found is None else str(found)  # of an enumeration's member, too: traces are JSON


@dataclass(frozen=True, slots=True)
class Feed:
    """One input of a graph."""

    name: str
    index: int
    device: OrtDevice
    """Where the plan wants the value."""
    type: str | None
    shape: Shape | None
    has_default: bool
    """Whether an initializer stands in when nothing is fed."""


@dataclass(frozen=True, slots=True)
class Fetch:
    """One output of a graph."""

    name: str
    index: int
    device: OrtDevice
    """Where the plan leaves the value."""
    type: str | None
    shape: Shape | None
    is_owned: bool
    """Whether the value is made by a step, and aliases no feed and no constant."""


class Constants:
    """The constants of a plan by value index.

    Those on the host are taken from their source in the first run, not before: a weight that has to be copied for its
    alignment costs nothing until something reads it. Those on other devices are there already. Thread-safe.

    Args:
        sources: value index → (tensor, device).
        place: gives a tensor's array on a device, the same each time.
        packers: value index → has the one kernel that reads it pack it, for those that are packed in the first run; returns
            whether it did. What is packed is None in runs.
    """

    __slots__ = ("_arrays", "_frame", "_indices", "_lock", "_packers", "_place", "_sources")

    def __init__(
        self,
        sources: Mapping[int, tuple[Tensor, OrtDevice]],
        place: Callable[[Tensor, OrtDevice], Array],
        packers: Mapping[int, Callable[[], bool]] | None = None,
    ) -> None:
        self._sources = dict(sources)
        self._indices = frozenset(sources)
        self._place = place
        self._packers = dict(packers or {})
        self._arrays: dict[int, Array] | None = None
        self._frame: list[Any] = []
        self._lock = threading.Lock()

    def __contains__(self, index: object) -> bool:
        return index in self._indices

    def __iter__(self) -> Iterator[int]:
        return iter(self._indices)

    def __len__(self) -> int:
        return len(self._indices)

    def arrays(self) -> dict[int, Array]:
        """Value index → array, without those that kernels keep packed."""
        if self._arrays is None:
            with self._lock:
                if self._arrays is None:
                    self._pack()
                    self._arrays = {index: self._place(tensor, device) for index, (tensor, device) in self._sources.items()}
        return self._arrays

    def frame(self, count: int) -> list[Any]:
        """A new list of so many values: constants in place, everything else None."""
        if len(self._frame) < count:
            arrays = self.arrays()
            self._frame = [arrays.get(index) for index in range(count)]
        return self._frame[:count]

    def sources(self) -> Mapping[int, tuple[Tensor, OrtDevice]]:
        """Value index → (tensor, device), without those that are packed. Reads no weight."""
        return self._sources

    def _pack(self) -> None:
        while self._packers:
            index = next(iter(self._packers))
            if self._packers[index]():
                del self._sources[index]  # So that the tensor goes with its last reader.
            del self._packers[index]


@dataclass(frozen=True, slots=True)
class ExecutionPlan:
    """The steps of one graph. Knows no shapes; the same plan serves every call."""

    name: str
    value_names: tuple[str, ...]
    """Index → name; index 0 is the absent value."""
    feeds: tuple[Feed, ...]
    fetches: tuple[Fetch, ...]
    constants: Constants
    """Values that are the same in every run."""
    captures: tuple[tuple[int, int], ...]
    """(position among the control-flow node's captured values, index here), for a body."""
    steps: tuple[Step, ...]

    def new_frame(self) -> list[Any]:
        """Values before the first step: constants in place, everything else None."""
        return self.constants.frame(len(self.value_names))
