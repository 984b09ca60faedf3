"""From a placed graph to an execution plan: values numbered, kernels attached, lifetimes ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ort_sdk.api import CPU_DEVICE, Array, NodeArg, OrtDevice, Tensor
from ort_sdk.api.data_classes import dataclass, field
from ort_sdk.graph import Graph, Node

from .execution_plan import ABSENT, Constants, ExecutionPlan, Feed, Fetch, Step

__all__ = ["NodeKernel", "make_plan"]


@dataclass(slots=True)  # not frozen, which takes longer to make: there is one for each node, until the plan is made
class NodeKernel:
    """A node's kernel, ready to run, and what the plan must know of it."""

    kernel: Any
    """Object with ``compute``; for a copy, only ``compute`` matters."""
    device: OrtDevice
    packed_inputs: frozenset[int] = frozenset()
    """Constant inputs the kernel keeps in its own form: the plan passes None for them."""
    packers: Mapping[int, Callable[[], bool]] = field(default_factory=dict)
    """Constant inputs the kernel is offered for packing in the first run (``Constants``)."""
    host_inputs: Callable[[int], bool] = lambda _index: False
    """Whether input ``index`` is read on the host."""
    input_devices: Mapping[int, OrtDevice] = field(default_factory=dict)
    """Inputs that are read on another device than the kernel's, for a body: carried values of a Loop on the host."""
    aliases: tuple[tuple[int, int], ...] = ()
    """(input, output) pairs that may share memory."""


def make_plan(
    graph: Graph,
    devices: Mapping[str, OrtDevice],
    kernels: Mapping[int, NodeKernel],
    place: Callable[[Tensor, OrtDevice], Array],
    implicit_inputs: Sequence[str] = (),
) -> ExecutionPlan:
    """Number the values of a graph and make its steps.

    Args:
        graph: placed, with copies inserted, in topological order.
        devices: value → device, for everything that is no constant.
        kernels: ``id(node)`` → its kernel.
        place: gives a constant's array on a device.
        implicit_inputs: for a body, the values its control-flow node captures, in order.
    """
    return _Planner(graph, devices, kernels, place, implicit_inputs).plan()


class _Planner:
    def __init__(
        self,
        graph: Graph,
        devices: Mapping[str, OrtDevice],
        kernels: Mapping[int, NodeKernel],
        place: Callable[[Tensor, OrtDevice], Array],
        implicit_inputs: Sequence[str],
    ) -> None:
        self._graph = graph
        self._devices = devices
        self._kernels = kernels
        self._place = place
        self._names: list[str] = [""]
        self._index: dict[str, int] = {}
        self._constants: dict[int, tuple[Tensor, OrtDevice]] = {}
        self._constant_index: dict[tuple[str, OrtDevice], int] = {}
        self._packers: dict[int, Callable[[], bool]] = {}
        self._implicit = {name: position for position, name in enumerate(implicit_inputs)}
        self._captures: list[tuple[int, int]] = []

    def plan(self) -> ExecutionPlan:
        feeds = tuple(self._feed(argument) for argument in self._graph.inputs)
        self._capture()
        drafts = [self._draft(node) for node in self._graph.nodes]
        fetches = tuple(self._fetch(argument) for argument in self._graph.outputs)
        shared = self._shared_memory(drafts, feeds)
        frees = self._frees(drafts, {fetch.index for fetch in fetches})
        return ExecutionPlan(
            name=self._graph.name,
            value_names=tuple(self._names),
            feeds=feeds,
            fetches=tuple(
                Fetch(fetch.name, fetch.index, fetch.device, fetch.type, fetch.shape, is_owned=fetch.index not in shared)
                for fetch in fetches
            ),
            constants=Constants(self._constants, self._place, self._packers),
            captures=tuple(self._captures),
            steps=tuple([_step(*draft, ended) for draft, ended in zip(drafts, frees, strict=True)]),
        )

    def _new_index(self, name: str) -> int:
        self._names.append(name)
        return len(self._names) - 1

    def _feed(self, argument: NodeArg) -> Feed:
        name = argument.name
        index = self._index[name] = self._new_index(name)
        default = self._graph.initializers.get(name)
        device = self._devices.get(name, CPU_DEVICE)
        if default is not None:
            self._add_constant(index, default, device)
        return Feed(name, index, device, argument.type, argument.shape, default is not None)

    def _add_constant(self, index: int, tensor: Tensor, device: OrtDevice) -> None:
        self._constants[index] = (tensor, device)

    def _capture(self) -> None:
        for name, position in self._implicit.items():
            if name not in self._index and name not in self._graph.initializers and self._graph.constant(name) is None:
                index = self._index[name] = self._new_index(name)
                self._captures.append((position, index))

    def _read(self, name: str, device: OrtDevice) -> int:
        """Index of a value read on a device; a constant gets one index per device."""
        if not name:
            return ABSENT
        if name in self._index:
            return self._index[name]
        key = (name, device)
        if key not in self._constant_index:
            tensor = self._constant(name)
            index = self._constant_index[key] = self._new_index(name)
            self._add_constant(index, tensor, device)
        return self._constant_index[key]

    def _read_unpacked(self, name: str, device: OrtDevice, packer: Callable[[], bool]) -> int:
        """Index of a constant that one kernel may pack in the first run: others read it under an index of their own."""
        index = self._new_index(name)
        self._add_constant(index, self._constant(name), device)
        self._packers[index] = packer
        return index

    def _constant(self, name: str) -> Tensor:
        tensor = self._graph.constant(name)
        if tensor is None:
            raise AssertionError(f"value '{name}' of graph '{self._graph.name}' is neither made nor constant")
        return tensor

    def _draft(self, node: Node) -> tuple[Node, NodeKernel, tuple[int, ...], tuple[int, ...]]:
        found = self._kernels[id(node)]
        inputs: list[int] = []
        for index, name in enumerate(node.inputs):
            made = self._index.get(name)
            if made is not None:
                inputs.append(made)
                continue
            device = CPU_DEVICE if found.host_inputs(index) else found.input_devices.get(index, found.device)
            if index in found.packers:
                inputs.append(self._read_unpacked(name, device, found.packers[index]))
            else:
                inputs.append(ABSENT if index in found.packed_inputs else self._read(name, device))
        # A captured constant is the body's own constant: its position among the captured values stays empty.
        inputs.extend(self._index.get(name, ABSENT) for name in node.implicit_inputs)
        outputs = []
        for name in node.outputs:
            if not name:
                outputs.append(ABSENT)
                continue
            index = self._index[name] = self._new_index(name)
            outputs.append(index)
        return node, found, tuple(inputs), tuple(outputs)

    def _fetch(self, argument: NodeArg) -> Fetch:
        name = argument.name
        device = self._devices.get(name, CPU_DEVICE)
        return Fetch(name, self._read(name, device), device, argument.type, argument.shape, is_owned=True)

    def _shared_memory(
        self, drafts: Sequence[tuple[Node, NodeKernel, tuple[int, ...], tuple[int, ...]]], feeds: Sequence[Feed]
    ) -> set[int]:
        """Values that may share memory with a feed, a constant or a captured value."""
        shared = {feed.index for feed in feeds} | self._constants.keys() | {index for _, index in self._captures}
        for _, found, inputs, outputs in drafts:
            for source, target in found.aliases:
                if source < len(inputs) and target < len(outputs) and inputs[source] in shared:
                    shared.add(outputs[target])
        return shared

    def _frees(
        self, drafts: Sequence[tuple[Node, NodeKernel, tuple[int, ...], tuple[int, ...]]], kept: set[int]
    ) -> Sequence[tuple[int, ...]]:
        """What ends with each step."""
        last: dict[int, int] = {}
        for position, (_, _, inputs, outputs) in enumerate(drafts):
            last.update(dict.fromkeys(outputs, position))
            last.update(dict.fromkeys(inputs, position))
        for index in (ABSENT, *kept, *self._constants):
            last.pop(index, None)
        frees: list[list[int]] = [[] for _ in drafts]
        for index, position in last.items():
            frees[position].append(index)
        return [tuple(indices) for indices in frees]


def _step(node: Node, found: NodeKernel, inputs: tuple[int, ...], outputs: tuple[int, ...], frees: tuple[int, ...]) -> Step:
    # By position: there is one for each node, and names take as long as all else.
    return Step(
        found.kernel.compute,
        inputs,
        outputs,
        frees,
        found.kernel,
        node.op_type,
        node.domain,
        node.name,
        node.execution_provider,
        found.device,
        node.attributes,
        found.aliases,
    )
