"""Runs on bound values: what stays the same from run to run is checked once."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import (
    CPU_DEVICE,
    Array,
    CompilationContext,
    CompilationPolicy,
    InvalidArgument,
    OrtSdkError,
    compilation_context,
    overwriting,
)
from ort_sdk.api import OrtDevice as Device
from ort_sdk.config_keys import DISABLE_SYNCHRONIZE_EXECUTION_PROVIDERS
from ort_sdk.memory import DataTransferManager
from ort_sdk.plan import ExecutionPlan, Fetch
from ort_sdk.run import PlanRunner, RunControl
from ort_sdk.session.providers.device_memory import DeviceAccess, device_memory
from ort_sdk.session.providers.opened import ProviderScope, SessionProvider, raise_scope_error
from ort_sdk.session.providers.readiness import Ready, recorded, settle
from ort_sdk.session.values.ort_value import OrtValue

from .bindings import Bindings, CheckedBindings, GivenMemory, Target
from .bound_feeds import bound_feeds
from .deliveries import Deliveries, Delivery, check_fits
from .feeds import FeedReader, check_shape
from .fetches import FetchSelection, hand_out

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
        self._access = {
            provider.device: DeviceAccess(provider.device, provider) for provider in providers if not provider.device.is_cpu
        }
        self._queues = [provider for provider in providers if provider.is_asynchronous]
        self._reads_late = any(provider.reads_late for provider in providers)
        self._unread: Sequence[Ready | None] = ()
        """Ends of the latest run whose work may still read buffers on the host."""
        self._in_place = _in_place(runner.plan)
        self._session = object()

    def finish_reading(self) -> None:
        """Wait until no earlier run's work reads buffers on the host, which the next run overwrites."""
        for ready in self._unread:
            if ready is not None:
                # Whoever reads that run's results is told what went wrong.
                with contextlib.suppress(Exception):
                    ready.event.wait()

    def run(self, bindings: Bindings, control: RunControl) -> list[OrtValue]:
        """Run once. Work for results on devices may still be queued when it returns: they say themselves when they are ready.

        Returns:
            A value per output, where it is wanted.

        Raises:
            InvalidArgument: no such output, or memory that cannot hold it.
        """
        checked = bindings.checked
        if checked is None or checked.session is not self._session or not checked.is_current:
            checked = bindings.checked = self._check(bindings)
        placed: list[Array] = []
        ready: Sequence[Ready | None] = _DONE
        try:
            with self._scope(control):
                if self._unread:
                    self.finish_reading()
                earlier = self._follow(checked.on_devices) if checked.on_devices else ()
                feeds, signature = (
                    (self._reader.read_values(bindings.given), None) if checked.feeds is None else checked.feeds.read()
                )
                overwritten = self._overwritten(feeds, checked) if self._in_place else {}
                if overwritten:
                    with overwriting(overwritten.values()), _not_begun_again():
                        results = self._runner.run(feeds, control, signature, checked.targets)
                else:
                    results = self._runner.run(feeds, control, signature, checked.targets)
                if checked.deliveries is not None:
                    placed = checked.deliveries.place(results)
                if self._queues and (checked.on_devices or checked.deliveries is not None):
                    ready = self._ended(checked, earlier, control)
        except OrtSdkError:
            settle(self._queues)
            raise
        except Exception as error:  # noqa: BLE001 - a provider's scope may raise anything
            settle(self._queues)
            raise_scope_error(error, self._scoped)
        if checked.deliveries is None:
            return _delivered_on_host(results, checked, overwritten)
        return checked.deliveries.values(placed, ready)

    def _follow(self, values: Sequence[OrtValue]) -> Sequence[Ready]:
        """Let the run's work come after that on what is bound, which other sessions or providers may have queued."""
        earlier = [ready for ready in set(map(_ready_of, values)) if ready is not None]
        for ready in earlier:
            access = self._access.get(ready.execution_provider.device)
            ready.precede(None if access is None or access.provider is None else access.provider.execution_provider)
        return earlier

    def _ended(self, checked: CheckedBindings, earlier: Sequence[Ready], control: RunControl) -> Sequence[Ready | None]:
        """When the run's work is done, by queue, noted at the values that are bound; None where it was waited for.

        Args:
            checked: what is bound.
            earlier: ends of the runs before on what is bound.
            control: of the run.
        """
        ends = [recorded(provider) for provider in self._queues]
        if earlier and (checked.deliveries is None or checked.deliveries.go_to_host):
            # what the host has read was queued after them
            for before in earlier:
                before.raise_unraised()
        elif earlier:
            for end in ends:
                end.follow(earlier)
        ready: list[Ready | None] = [*ends]
        # Others may read or free such memory without asking when it is ready; and no queue says when another device's was read.
        is_awaited = any(map(_is_shared, checked.on_devices)) or -1 in checked.queues
        is_awaited = is_awaited and control.config.get(DISABLE_SYNCHRONIZE_EXECUTION_PROVIDERS) != "1"
        if is_awaited or (self._reads_late and (checked.feeds is None or checked.feeds.reads_host)):
            for end in ends:
                end.wait()
            ready = [None] * len(ends)
        elif self._reads_late:
            self._unread = tuple(ready)
        ready.append(None)
        for value, queue in zip(checked.on_devices, checked.queues, strict=True):
            value.ready = ready[queue]
        return ready

    def _queue_of(self, device: Device) -> int:
        """Position of the provider whose queue a device's work is in; -1 if there is none."""
        return next((index for index, provider in enumerate(self._queues) if provider.device == device), -1)

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
        feeds = None
        if not bindings.is_for_one_run:
            feeds = bound_feeds(self._runner.plan.feeds, self._reader, bindings.given, self._transfers)
        values = [*bindings.given.values(), *(memory.value for memory in filled)]
        on_devices = tuple(value for value in values if isinstance(value, OrtValue) and value.device is not CPU_DEVICE)
        arrays = tuple(value.value for value in on_devices)
        queues = tuple(self._queue_of(value.device) for value in on_devices)
        deliveries = None if is_on_host else self._deliveries(outputs)
        places = (on_devices, arrays, queues, deliveries)
        targets = None if deliveries is None else deliveries.targets(len(self._fetches))
        return CheckedBindings(self._session, outputs, feeds, *places, tuple(made), tuple(filled), targets)

    def _deliveries(self, outputs: Sequence[tuple[int, Target]]) -> Deliveries:
        last = {index: position for position, (index, _) in enumerate(outputs)}
        return Deliveries(
            [self._delivery(index, target, last[index] == position) for position, (index, target) in enumerate(outputs)],
            self._transfers,
        )

    def _delivery(self, index: int, target: Target, is_last: bool) -> Delivery:
        fetch, device = self._fetches[index], _device_of(target)
        return Delivery(
            name=fetch.name,
            fetch=index,
            target=target if isinstance(target, OrtValue) else None,
            made_in=self._access_to(fetch.device),
            wanted_in=self._access_to(device),
            type=fetch.type or "",
            is_owned=fetch.is_owned,
            is_last=is_last,
            may_be_there=any(index == output for _, output in self._in_place),
            queue=self._queue_of(device),
        )

    def _access_to(self, device: Device) -> DeviceAccess:
        return self._access.get(device) or device_memory(device)

    def _overwritten(self, feeds: Sequence[Array], checked: CheckedBindings) -> Mapping[int, Array]:
        """Feeds whose memory the caller wants an output in that may be there, by the output's position."""
        if checked.overwritten is not None:
            return checked.overwritten
        targets = dict(checked.outputs)
        found = {}
        for feed, fetch in self._in_place:
            target = targets.get(fetch)
            if isinstance(target, OrtValue) and target.device == self._fetches[fetch].device and target.holds(feeds[feed]):
                found[fetch] = feeds[feed]
        if checked.feeds is not None:
            checked.overwritten = found
        return found


_DONE: tuple[None] = (None,)
_ready_of = operator.attrgetter("ready")
_is_shared = operator.attrgetter("is_shared")


def _device_of(target: Target) -> Device:
    return target.device if isinstance(target, OrtValue) else target


def _delivered_on_host(results: list[Array], checked: CheckedBindings, overwritten: Mapping[int, Array]) -> list[OrtValue]:
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
            check_fits(memory.value, content, _HOST, memory.fetch.type or "", memory.fetch.name)
            memory.value.overwrite(OrtValue.wrap(content, _HOST, memory.fetch.type or ""))
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
