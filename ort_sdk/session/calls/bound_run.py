"""Runs on bound values: what stays the same from run to run is checked once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import (
    CPU_DEVICE,
    Array,
    CompilationContext,
    CompilationPolicy,
    HostArray,
    InvalidArgument,
    OrtSdkError,
    compilation_context,
    overwriting,
)
from ort_sdk.api import OrtDevice as Device
from ort_sdk.memory import DataTransferManager
from ort_sdk.plan import ExecutionPlan, Fetch
from ort_sdk.run import PlanRunner, RunControl
from ort_sdk.session.providers.device_memory import DeviceAccess, device_memory
from ort_sdk.session.providers.opened import ProviderScope, SessionProvider, raise_scope_error
from ort_sdk.session.values.ort_value import OrtValue

from .bindings import Bindings, CheckedBindings, GivenMemory, Target
from .feeds import FeedReader, check_shape
from .fetches import FetchSelection, hand_out, is_held_here_only

__all__ = ["BoundRuns"]

_HOST = device_memory(CPU_DEVICE)


class BoundRuns:
    """Runs a built model on values wherever they are. Thread-safe.

    Args:
        reader: of feeds.
        runner: of the plan.
        selection: of outputs.
        scope: makes the context of one run.
        scoped: names of the providers that have a part in it.
        providers: of the session.
        transfers: copies to other devices.
    """

    def __init__(
        self,
        reader: FeedReader,
        runner: PlanRunner,
        selection: FetchSelection,
        scope: ProviderScope,
        scoped: Sequence[str],
        providers: Sequence[SessionProvider],
        transfers: DataTransferManager,
    ) -> None:
        self._reader, self._runner, self._selection, self._scope, self._transfers = reader, runner, selection, scope, transfers
        self._scoped = scoped
        self._fetches = runner.plan.fetches
        self._takes_host_values = all(feed.device == CPU_DEVICE for feed in runner.plan.feeds)
        self._access = {
            provider.device: DeviceAccess(provider.device, provider) for provider in providers if not provider.device.is_cpu
        }
        self._in_place = _in_place(runner.plan)
        self._session = object()

    def run(self, bindings: Bindings, control: RunControl) -> list[OrtValue]:
        """Run once.

        Returns:
            A value per output, where it is wanted.

        Raises:
            InvalidArgument: no such output, or memory that cannot hold it.
        """
        checked = bindings.checked
        if checked is None or checked.session is not self._session:
            checked = bindings.checked = self._check(bindings)
        try:
            with self._scope(control):
                feeds = self._reader.read_values(bindings.given) if checked.feeds is None else checked.feeds
                overwritten = self._overwritten(feeds, checked) if self._in_place and checked.filled else {}
                if overwritten:
                    with overwriting(overwritten.values()), _not_begun_again():
                        results = self._runner.run(feeds, control)
                else:
                    results = self._runner.run(feeds, control)
                if not checked.is_on_host:
                    results = self._placed(results, checked.outputs)
        except OrtSdkError:
            raise
        except Exception as error:  # noqa: BLE001 - a provider's scope may raise anything
            raise_scope_error(error, self._scoped)
        if checked.is_on_host:
            return _delivered_on_host(results, checked, overwritten)
        return [self._delivered(value, *output) for value, output in zip(results, checked.outputs, strict=True)]

    def _check(self, bindings: Bindings) -> CheckedBindings:
        outputs = tuple(zip(self._selection.indices(bindings.names) or [], bindings.targets, strict=True))
        made, filled, is_on_host = [], [], True
        for position, (index, target) in enumerate(outputs):
            fetch = self._fetches[index]
            is_on_host = is_on_host and fetch.device == _device_of(target) == CPU_DEVICE
            if isinstance(target, OrtValue):
                _check_preallocated(target, fetch)
                filled.append(GivenMemory(fetch, index, target, target.value))
            else:
                made.append((position, index, fetch.type or ""))
        feeds = _lasting(self._reader, bindings.given) if self._takes_host_values else None
        return CheckedBindings(self._session, outputs, feeds, is_on_host, tuple(made), tuple(filled))

    def _overwritten(self, feeds: Sequence[Array], checked: CheckedBindings) -> dict[int, HostArray]:
        """Feeds whose memory the caller wants an output in that may be there, by the output's position."""
        targets = dict(checked.outputs)
        found = {}
        for feed, fetch in self._in_place:
            target = targets.get(fetch)
            if isinstance(target, OrtValue) and target.holds(feeds[feed]):
                found[fetch] = feeds[feed]
        return found

    def _placed(self, results: list[Array], outputs: Sequence[tuple[int, Target]]) -> list[Array]:
        """Results where they are wanted, in memory of their own."""
        return [
            self._place(results, index, target, is_last=all(index != later for later, _ in outputs[position + 1 :]))
            for position, (index, target) in enumerate(outputs)
        ]

    def _place(self, results: list[Array], index: int, target: Target, *, is_last: bool) -> Array:
        """A result where it is wanted, in memory of its own; one that is copied into given memory of the host as it is."""
        fetch, device = self._fetches[index], _device_of(target)
        if fetch.device == device == CPU_DEVICE:
            if isinstance(target, OrtValue) and fetch.is_owned:
                return results[index]
            wanted = [results[index]]
            if is_last:
                # No other list may hold it: what is held here only is handed out without a copy.
                results[index] = None
            return hand_out(wanted)[0]
        # A program may keep a result that is the same in every run.
        if fetch.device == device and fetch.is_owned and is_held_here_only(results, index):
            return results[index]
        return self._transfers.copy(results[index], fetch.device, device)

    def _delivered(self, value: Array, index: int, target: Target) -> OrtValue:
        fetch, device = self._fetches[index], _device_of(target)
        made = OrtValue.wrap(value, self._access.get(device) or device_memory(device), fetch.type or "")
        if not isinstance(target, OrtValue):
            return made
        if not target.holds(value):
            _fill_preallocated(target, made, fetch.name)
        return target


def _device_of(target: Target) -> Device:
    return target.device if isinstance(target, OrtValue) else target


def _lasting(reader: FeedReader, given: Mapping[str, OrtValue]) -> list[Array] | None:
    """Feeds as they will be in each run, where they are arrays of numbers taken as they are; None otherwise."""
    held = {id(value.value) for value in given.values()}
    feeds: list[Array] = []
    for feed in reader.read_values(given):
        if feed is None:
            feeds.append(None)
        elif type(feed) is np.ndarray and not feed.dtype.hasobject and id(feed) in held:
            # Shape and type stay what they are now, whatever is done to the caller's array.
            feeds.append(feed.view())
        else:
            return None
    return feeds


def _delivered_on_host(results: list[Array], checked: CheckedBindings, overwritten: Mapping[int, HostArray]) -> list[OrtValue]:
    """Results of the host in values of the host.

    Args:
        results: of the run; nobody else keeps the list.
        checked: where they go.
        overwritten: feeds in whose memory a result may be already, by its position.
    """
    contents = [results[memory.position] for memory in checked.filled]
    made = [results[index] for _, index, _ in checked.made]
    results.clear()
    if len(contents) > 1:
        _copy_views_of_feeds(contents, checked.filled)
    made = hand_out(made)
    for memory, content in zip(checked.filled, contents, strict=True):
        array = memory.array
        if type(content) is not np.ndarray or content.shape != array.shape or content.dtype != array.dtype:
            _fill_preallocated(memory.value, OrtValue.wrap(content, _HOST, memory.fetch.type or ""), memory.fetch.name)
        elif content is not overwritten.get(memory.position) and not (overwritten and memory.value.holds(content)):
            array[...] = content
    values: list[Any] = [target for _, target in checked.outputs]
    for (position, _, type_string), value in zip(checked.made, made, strict=True):
        values[position] = OrtValue.wrap(value, _HOST, type_string)
    return values


def _copy_views_of_feeds(contents: list[Array], filled: Sequence[GivenMemory]) -> None:
    """Copy results that may be views of feeds, before memory that a feed may be in is filled."""
    for index, memory in enumerate(filled):
        if not memory.fetch.is_owned:
            (contents[index],) = hand_out([contents[index]])


def _check_preallocated(target: OrtValue, fetch: Fetch) -> None:
    """Refuse given memory that cannot hold an output.

    Raises:
        InvalidArgument: another type, rank, or size where the model says one.
    """
    if fetch.type and target.data_type() != fetch.type:
        raise InvalidArgument(f"Unexpected output data type. Actual: ({target.data_type()}) , expected: ({fetch.type})")
    check_shape(fetch.name, tuple(target.shape()), fetch.shape, "output")


def _fill_preallocated(target: OrtValue, made: OrtValue, name: str) -> None:
    """Put an output into given memory.

    Raises:
        InvalidArgument: the output has another type or shape.
    """
    if target.shape() != made.shape() or target.data_type() != made.data_type():
        raise InvalidArgument(
            f"The output OrtValue provided for output '{name}' is {target.data_type()}{target.shape()} but this run computed "
            f"{made.data_type()}{made.shape()}. Bind the output to a device instead, or memory of the shape each run makes."
        )
    target.overwrite(made)


def _in_place(plan: ExecutionPlan) -> tuple[tuple[int, int], ...]:
    """Feeds and fetches that may be in the same memory, by position: the kernel that makes the fetch alone reads the feed."""
    feeds = {feed.index: position for position, feed in enumerate(plan.feeds)}
    fetches = {fetch.index: position for position, fetch in enumerate(plan.fetches)}
    found = []
    for step in plan.steps:
        for source, target in getattr(step.kernel, "in_place", ()):
            if source < len(step.inputs) and target < len(step.outputs):
                feed, fetch = feeds.get(step.inputs[source]), fetches.get(step.outputs[target])
                readers = sum(each.inputs.count(step.inputs[source]) for each in plan.steps)
                if feed is not None and fetch is not None and readers == 1 and step.inputs[source] not in fetches:
                    found.append((feed, fetch))
    return tuple(found)


def _not_begun_again() -> CompilationContext:
    """Context of a run that overwrites what it reads: it cannot be repeated with other kernels, so it waits for missing code."""
    policy = compilation_context().policy
    return CompilationContext(CompilationPolicy.WAIT if policy is CompilationPolicy.RAISE else policy)
