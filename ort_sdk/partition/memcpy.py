"""Copies at device borders, between any two devices (ORT's ``MemcpyTransformer`` knows one accelerator)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ort_sdk.api import CPU_DEVICE, OrtDevice
from ort_sdk.api.data_classes import dataclass, field
from ort_sdk.graph import Graph, Node

from .assignment import Assignment
from .carried_values import carried_values
from .reading_devices import ReadingDevices

__all__ = ["COPY_DOMAIN", "COPY_OPERATORS", "ValueDevices", "carried_devices", "insert_copies"]

COPY_DOMAIN = "ort_sdk.copy"
COPY_OPERATORS = ("MemcpyToHost", "MemcpyFromHost", "Memcpy")


@dataclass(frozen=True, slots=True)
class ValueDevices:
    """Where the values of one graph live, copies included."""

    devices: Mapping[str, OrtDevice]
    """Value → device, for feeds, node outputs and captured values. Constants are not in it: they are where they are read."""
    bodies: Mapping[int, ValueDevices] = field(default_factory=dict)
    """``id(body graph)`` → the same for it."""


def insert_copies(
    assignment: Assignment,
    provider_devices: Mapping[str, OrtDevice],
    can_stack: Callable[[OrtDevice, str | None], bool] | None = None,
) -> ValueDevices:
    """Insert copy nodes wherever a node reads a value that lives on another device.

    A graph input is fed to the device of its readers if they agree, and to the host otherwise; graph outputs stay where
    they are made, and are copied when they are fetched. What bodies make stays on a device if it is read there: results of an If,
    and what a Loop or Scan carries or gathers.

    Args:
        assignment: its graph and bodies are changed in place.
        provider_devices: provider → device.
        can_stack: whether tensors of a type can be stacked on a device, of all iterations of a body; None for no device.
    """
    if all(device == CPU_DEVICE for device in provider_devices.values()):
        return _on_host(assignment.graph, {})
    return _Inserter(assignment, provider_devices, can_stack).graph(assignment.graph)


def _on_host(graph: Graph, captured: Mapping[str, OrtDevice]) -> ValueDevices:
    """Of providers that all compute on the host: nothing to copy, and nothing to ask kernels."""
    names = [argument.name for argument in graph.inputs]
    names += [name for node in graph.nodes for name in node.outputs if name]
    devices = {**captured, **dict.fromkeys(names, CPU_DEVICE)}
    bodies = {
        id(body): _on_host(body, _captured(node, body, devices))
        for node in (graph.nodes if graph.bodies() else ())
        for body in node.subgraphs.values()
    }
    return ValueDevices(devices, bodies)


def _captured(node: Node, body: Graph, devices: Mapping[str, OrtDevice]) -> dict[str, OrtDevice]:
    """Devices of what a body reads from around it."""
    shadowed = {argument.name for argument in body.inputs}
    return {name: devices[name] for name in node.implicit_inputs if name in devices and name not in shadowed}


def carried_devices(node: Node, devices: ValueDevices) -> dict[int, OrtDevice]:
    """Value that a Loop or Scan carries, by position → the device where the body wants it; without those on the host.

    Args:
        node: with bodies.
        devices: of its graph.
    """
    values = carried_values(node)
    if values is None:
        return {}
    body, first = node.subgraphs["body"], values.first_input
    inside = devices.bodies[id(body)].devices
    wanted = {index: inside[each.name] for index, each in enumerate(body.inputs[first : first + values.count])}
    return {index: device for index, device in wanted.items() if device != CPU_DEVICE}


class _Inserter:
    def __init__(
        self,
        assignment: Assignment,
        provider_devices: Mapping[str, OrtDevice],
        can_stack: Callable[[OrtDevice, str | None], bool] | None,
    ) -> None:
        self._provider_devices = provider_devices
        self._reading = ReadingDevices(assignment, provider_devices, can_stack)

    def graph(self, graph: Graph) -> ValueDevices:
        """Insert the copies of a main graph."""
        given_out = graph.output_names()
        fed = {
            argument.name: CPU_DEVICE if argument.name in given_out else self._reading.feed_device(graph, argument.name)
            for argument in graph.inputs
        }
        return self._nodes(graph, fed).finished()

    def _nodes(self, graph: Graph, devices: Mapping[str, OrtDevice]) -> _Copied:
        """A graph with the copies that its nodes need, and without those of what it gives out.

        Args:
            graph: main graph or body.
            devices: of its inputs, and of what it captures.
        """
        copied = _Copied(graph, dict(devices))
        for node in graph.nodes:
            for index, name in enumerate(node.inputs):
                target = self._reading.input_device(node, index)
                if copied.devices.get(name, target) != target:
                    node.inputs[index] = copied.on(name, target)
            outputs = self._bodies(node, copied) if node.subgraphs else {}
            copied.ordered.append(node)
            self._outputs(node, copied.devices, outputs)
        return copied

    def _bodies(self, node: Node, outer: _Copied) -> dict[int, OrtDevice]:
        """Insert the copies of a node's bodies.

        Returns:
            Output of the node → the device where they leave it, if that is not the host.
        """
        carried, values = self._reading.carried(node), carried_values(node)
        first_input, first_output = (0, 0) if values is None else (values.first_input, values.first_output)
        inside = []
        for body in node.subgraphs.values():
            fed = {argument.name: CPU_DEVICE for argument in body.inputs}
            fed.update({body.inputs[first_input + index].name: device for index, device in carried.items()})
            inside.append(self._nodes(body, {**_captured(node, body, outer.devices), **fed}))
        left = self._reading.left(node, outer.graph, [(each.graph, each.devices) for each in inside])
        if values is not None:
            left = {**carried, **self._reading.gathered(node, outer.graph, inside[0].devices)}
        for each in inside:
            for index, argument in enumerate(each.graph.outputs):
                each.give_out(index, argument.name, left.get(index - first_output, CPU_DEVICE))
            outer.bodies[id(each.graph)] = each.finished()
        return left

    def _outputs(self, node: Node, devices: dict[str, OrtDevice], left: Mapping[int, OrtDevice]) -> None:
        kernel_def = self._reading.kernel_def(node)
        for index, name in enumerate(node.outputs):
            if name:
                on_host = kernel_def is not None and kernel_def.output_on_host(index)
                own = CPU_DEVICE if on_host else self._provider_devices[node.execution_provider]
                devices[name] = left.get(index, own)


class _Copied:
    """A graph in which copies are being inserted.

    Args:
        graph: the graph.
        devices: of its inputs, and of what it captures; gets those of all values.
    """

    def __init__(self, graph: Graph, devices: dict[str, OrtDevice]) -> None:
        self.graph, self.devices = graph, devices
        self.ordered: list[Node] = []
        """Its nodes, with copies between them."""
        self.bodies: dict[int, ValueDevices] = {}
        self._copies: dict[tuple[str, OrtDevice], str] = {}

    def on(self, name: str, target: OrtDevice) -> str:
        """Name of a value's copy on a device, which is inserted if there is none."""
        key = (name, target)
        if key not in self._copies:
            source = self.devices[name]
            copied = _unused_name(self.graph, f"{name}_{target}")
            op_type = "MemcpyToHost" if target.is_cpu else "MemcpyFromHost" if source.is_cpu else "Memcpy"
            node = Node(op_type=op_type, domain=COPY_DOMAIN, name=f"{op_type}_{copied}", inputs=[name], outputs=[copied])
            self.ordered.append(node)
            known = self.graph.node_arg(name)
            self.graph.set_value(type(known)(copied, known.type, known.shape))
            self.devices[copied] = target
            self._copies[key] = copied
        return self._copies[key]

    def give_out(self, index: int, name: str, target: OrtDevice) -> None:
        """Leave an output of a body on a device."""
        if self.devices.get(name, target) != target:
            argument = self.graph.outputs[index]
            self.graph.outputs[index] = type(argument)(self.on(name, target), argument.type, argument.shape)

    def finished(self) -> ValueDevices:
        """Put the copies into the graph."""
        self.graph.nodes = self.ordered
        self.graph.touch()
        return ValueDevices(self.devices, self.bodies)


def _unused_name(graph: Graph, wanted: str) -> str:
    name = wanted
    count = 0
    while name in graph.values:
        count += 1
        name = f"{wanted}_{count}"
    return name
