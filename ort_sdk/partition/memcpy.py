"""Copies at device borders, between any two devices (ORT's ``MemcpyTransformer`` knows one accelerator)."""

from __future__ import annotations

from collections.abc import Mapping

from ort_sdk.api import CPU_DEVICE, KernelDef, OrtDevice
from ort_sdk.api.data_classes import dataclass, field
from ort_sdk.graph import Graph, Node

from .assignment import Assignment

__all__ = ["COPY_DOMAIN", "COPY_OPERATORS", "ValueDevices", "insert_copies"]

COPY_DOMAIN = "ort_sdk.copy"
COPY_OPERATORS = ("MemcpyToHost", "MemcpyFromHost", "Memcpy")


@dataclass(frozen=True, slots=True)
class ValueDevices:
    """Where the values of one graph live, copies included."""

    devices: Mapping[str, OrtDevice]
    """Value → device, for feeds, node outputs and captured values. Constants are not in it: they are where they are read."""
    bodies: Mapping[int, ValueDevices] = field(default_factory=dict)
    """``id(body graph)`` → the same for it."""


def insert_copies(assignment: Assignment, provider_devices: Mapping[str, OrtDevice]) -> ValueDevices:
    """Insert copy nodes wherever a node reads a value that lives on another device.

    A graph input is fed to the device of its readers if they agree, and to the host otherwise; graph outputs stay where
    they are made, and are copied when they are fetched.

    Args:
        assignment: its graph and bodies are changed in place.
        provider_devices: provider → device.
    """
    if all(device == CPU_DEVICE for device in provider_devices.values()):
        return _on_host(assignment.graph, {})
    return _Inserter(assignment, provider_devices).graph(assignment.graph, {}, is_body=False)


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


class _Inserter:
    def __init__(self, assignment: Assignment, provider_devices: Mapping[str, OrtDevice]) -> None:
        self._assignment = assignment
        self._provider_devices = provider_devices

    def graph(self, graph: Graph, captured: Mapping[str, OrtDevice], *, is_body: bool) -> ValueDevices:
        devices: dict[str, OrtDevice] = dict(captured)
        given_out = graph.output_names()
        for argument in graph.inputs:
            is_on_host = is_body or argument.name in given_out
            devices[argument.name] = CPU_DEVICE if is_on_host else self._feed_device(graph, argument.name)
        bodies: dict[int, ValueDevices] = {}
        ordered: list[Node] = []
        copies: dict[tuple[str, OrtDevice], str] = {}
        for node in graph.nodes:
            self._inputs(graph, node, devices, copies, ordered)
            for body in node.subgraphs.values():
                bodies[id(body)] = self.graph(body, _captured(node, body, devices), is_body=True)
            ordered.append(node)
            self._outputs(node, devices)
        if is_body:
            self._body_outputs(graph, devices, copies, ordered)
        graph.nodes = ordered
        graph.touch()
        return ValueDevices(devices, bodies)

    def _kernel_def(self, node: Node) -> KernelDef | None:
        found = self._assignment.kernel_for(node)
        return None if found is None else found.kernel_def

    def _input_device(self, node: Node, index: int) -> OrtDevice:
        kernel_def = self._kernel_def(node)
        if kernel_def is not None and kernel_def.input_on_host(index):
            return CPU_DEVICE
        return self._provider_devices[node.execution_provider]

    def _feed_device(self, graph: Graph, name: str) -> OrtDevice:
        wanted: set[OrtDevice] = set()
        for node in graph.consumers(name):
            if name in node.implicit_inputs:
                return CPU_DEVICE
            wanted |= {self._input_device(node, index) for index, read in enumerate(node.inputs) if read == name}
        return wanted.pop() if len(wanted) == 1 else CPU_DEVICE

    def _inputs(
        self,
        graph: Graph,
        node: Node,
        devices: dict[str, OrtDevice],
        copies: dict[tuple[str, OrtDevice], str],
        ordered: list[Node],
    ) -> None:
        for index, name in enumerate(node.inputs):
            target = self._input_device(node, index)
            if name in devices and devices[name] != target:
                node.inputs[index] = self._copied(graph, name, devices, target, copies, ordered)

    def _copied(
        self,
        graph: Graph,
        name: str,
        devices: dict[str, OrtDevice],
        target: OrtDevice,
        copies: dict[tuple[str, OrtDevice], str],
        ordered: list[Node],
    ) -> str:
        key = (name, target)
        if key not in copies:
            source = devices[name]
            copied = _unused_name(graph, f"{name}_{target}")
            op_type = "MemcpyToHost" if target.is_cpu else "MemcpyFromHost" if source.is_cpu else "Memcpy"
            ordered.append(Node(op_type=op_type, domain=COPY_DOMAIN, name=f"{op_type}_{copied}", inputs=[name], outputs=[copied]))
            known = graph.node_arg(name)
            graph.set_value(type(known)(copied, known.type, known.shape))
            devices[copied] = target
            copies[key] = copied
        return copies[key]

    def _outputs(self, node: Node, devices: dict[str, OrtDevice]) -> None:
        kernel_def = self._kernel_def(node)
        for index, name in enumerate(node.outputs):
            if name:
                on_host = kernel_def is not None and kernel_def.output_on_host(index)
                devices[name] = CPU_DEVICE if on_host else self._provider_devices[node.execution_provider]

    def _body_outputs(
        self,
        graph: Graph,
        devices: dict[str, OrtDevice],
        copies: dict[tuple[str, OrtDevice], str],
        ordered: list[Node],
    ) -> None:
        """Control flow runs on the host: what a body gives it must be there."""
        for index, argument in enumerate(graph.outputs):
            if argument.name in devices and not devices[argument.name].is_cpu:
                copied = self._copied(graph, argument.name, devices, CPU_DEVICE, copies, ordered)
                graph.outputs[index] = type(argument)(copied, argument.type, argument.shape)


def _unused_name(graph: Graph, wanted: str) -> str:
    name = wanted
    count = 0
    while name in graph.values:
        count += 1
        name = f"{wanted}_{count}"
    return name
