"""A plan for callers on the host: what it takes from a device and leaves there is copied by steps of its own."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from ort_sdk.api import CPU_DEVICE, OrtDevice, TensorElementType, tensor_type_element
from ort_sdk.memory import DataTransferManager, DeviceCopy
from ort_sdk.partition import COPY_DOMAIN

from .execution_plan import ExecutionPlan, Feed, Fetch, Step

__all__ = ["with_host_values"]


def with_host_values(plan: ExecutionPlan, transfers: DataTransferManager, fetches: Collection[int]) -> ExecutionPlan:
    """The plan with tensors fed on the host and, if they are wanted there, left on the host.

    Copies of feeds are its first steps, and those of fetches its last, so that a program can join them with the kernels. Strings
    and what is no tensor stay where they are, and so do feeds with defaults, which are there already.

    Args:
        plan: of a main graph.
        transfers: makes the copies.
        fetches: positions of the fetches that are wanted on the host.
    """
    writer = _Writer(plan, transfers)
    return writer.with_copies(frozenset(fetches))


class _Writer:
    def __init__(self, plan: ExecutionPlan, transfers: DataTransferManager) -> None:
        self._plan, self._transfers = plan, transfers
        self._names = list(plan.value_names)

    def with_copies(self, wanted: frozenset[int]) -> ExecutionPlan:
        plan, uploads, downloads = self._plan, [], []
        feeds: list[Feed] = []
        for feed in plan.feeds:
            if feed.has_default or not _is_on_device(feed.device, feed.type):
                feeds.append(feed)
                continue
            index = self._new_index(feed.name)
            uploads.append(self._copy("MemcpyFromHost", feed.name, (index, feed.index), (CPU_DEVICE, feed.device)))
            feeds.append(replace(feed, index=index, device=CPU_DEVICE))
        fetches: list[Fetch] = []
        for position, fetch in enumerate(plan.fetches):
            if position not in wanted or not _is_on_device(fetch.device, fetch.type):
                fetches.append(fetch)
                continue
            index = self._new_index(fetch.name)
            downloads.append(self._copy("MemcpyToHost", fetch.name, (fetch.index, index), (fetch.device, CPU_DEVICE)))
            fetches.append(replace(fetch, index=index, device=CPU_DEVICE, is_owned=True))
        return replace(
            plan,
            value_names=tuple(self._names),
            feeds=tuple(feeds),
            fetches=tuple(fetches),
            steps=(*uploads, *plan.steps, *downloads),
        )

    def _new_index(self, name: str) -> int:
        self._names.append(f"{name}_{CPU_DEVICE}")
        return len(self._names) - 1

    def _copy(self, op_type: str, name: str, values: tuple[int, int], devices: tuple[OrtDevice, OrtDevice]) -> Step:
        kernel = DeviceCopy(self._transfers, *devices)
        return Step(
            compute=kernel.compute,
            inputs=values[:1],
            outputs=values[1:],
            frees=values[:1],
            kernel=kernel,
            op_type=op_type,
            domain=COPY_DOMAIN,
            node=f"{op_type}_{name}",
            provider="",
            device=devices[1],
            aliases=(),
        )


def _is_on_device(device: OrtDevice, type_string: str | None) -> bool:
    """Whether a value is a tensor of numbers on another device than the host."""
    if device == CPU_DEVICE or type_string is None or not type_string.startswith("tensor("):
        return False
    return tensor_type_element(type_string) not in (None, TensorElementType.STRING)
