"""What is bound to inputs and outputs, for one run or for many."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

from ort_sdk.api import Array
from ort_sdk.api import OrtDevice as Device
from ort_sdk.api.data_classes import dataclass
from ort_sdk.plan import Fetch
from ort_sdk.run import Targets
from ort_sdk.session.values.ort_value import OrtValue

from .bound_feeds import BoundFeeds
from .deliveries import Deliveries

__all__ = ["Bindings", "CheckedBindings", "GivenMemory", "Target"]

Target = Device | OrtValue
"""Where an output goes: a device on which the session makes it, or memory the caller gave."""


@dataclass(frozen=True, slots=True)
class GivenMemory:
    """Memory of the host that the caller gave for an output."""

    fetch: Fetch
    position: int
    """Of the fetch."""
    value: OrtValue
    array: Any


_array_of = operator.attrgetter("_value")


@dataclass(slots=True)
class CheckedBindings:
    """Bindings that fit a session."""

    session: object
    """Stands for the session, and does not keep it alive."""
    outputs: tuple[tuple[int, Target], ...]
    """Fetch by position, and where it goes."""
    feeds: BoundFeeds | None
    """Arrays that are the same in each run; None if they are to be read in each."""
    on_devices: tuple[OrtValue, ...]
    """Inputs and memory for outputs that are on devices."""
    arrays: tuple[Array, ...]
    """Those they had when they were checked."""
    queues: tuple[int, ...]
    """Of each, the position among the session's providers of the one in whose queue its work is; -1 if there is none."""
    deliveries: Deliveries | None
    """Where results go; None if all are made and wanted on the host."""
    made: tuple[tuple[int, int, str], ...]
    """Position among the outputs, fetch and type of those that the session makes memory for."""
    filled: tuple[GivenMemory, ...]
    """Memory for the others, where all is on the host."""
    targets: Targets | None
    """Memory on devices that a run may leave results in by itself; None if there is none."""
    overwritten: Mapping[int, Array] | None = None
    """Feeds in whose memory an output is wanted, by the output's position; None if it is not known, or may change."""

    @property
    def is_current(self) -> bool:
        """Whether all values have the arrays that were checked: a provider that cannot overwrite one replaces it."""
        return all(map(operator.is_, map(_array_of, self.on_devices), self.arrays))


@dataclass(slots=True)
class Bindings:
    """What runs read, and where their results go. It does not change; that of the values may."""

    given: Mapping[str, OrtValue]
    """Input name → value."""
    names: Sequence[str]
    """Outputs wanted."""
    targets: Sequence[Target]
    """Of each output: a device, or a value to fill."""
    is_for_one_run: bool = False
    """Whether nothing pays but what the next run needs."""
    checked: CheckedBindings | None = None
    """What is known of them since their first run."""
