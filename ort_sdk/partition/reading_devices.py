"""Where nodes read values, and what bodies of control flow leave on a device since it is read there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ort_sdk.api import CPU_DEVICE, KernelDef, OrtDevice
from ort_sdk.graph import Graph, Node

from .assignment import Assignment
from .carried_values import CarriedValues, carried_values

__all__ = ["ReadingDevices"]


class ReadingDevices:
    """Says where nodes read values, and where If, Loop and Scan leave them.

    Args:
        assignment: of the main graph.
        provider_devices: provider → device.
        can_stack: whether tensors of a type can be stacked on a device; None for no device.
    """

    def __init__(
        self,
        assignment: Assignment,
        provider_devices: Mapping[str, OrtDevice],
        can_stack: Callable[[OrtDevice, str | None], bool] | None,
    ) -> None:
        self._assignment, self._provider_devices = assignment, provider_devices
        self._can_stack = can_stack
        self._carried: dict[int, dict[int, OrtDevice]] = {}

    def kernel_def(self, node: Node) -> KernelDef | None:
        """Kernel definition of a node; None of a compiled group."""
        found = self._assignment.kernel_for(node)
        return None if found is None else found.kernel_def

    def input_device(self, node: Node, index: int) -> OrtDevice:
        """Where a node reads an input."""
        kernel_def = self.kernel_def(node)
        if kernel_def is not None and kernel_def.input_on_host(index):
            return CPU_DEVICE
        own, values = self._provider_devices[node.execution_provider], carried_values(node) if node.subgraphs else None
        return own if values is None else self.carried(node).get(index - values.first_input, own)

    def feed_device(self, graph: Graph, name: str) -> OrtDevice:
        """Where a graph input is best fed."""
        wanted = self._wanted(graph, name)
        return wanted.pop() if len(wanted) == 1 else CPU_DEVICE

    def _wanted(self, graph: Graph, name: str) -> set[OrtDevice]:
        """Devices on which nodes of a graph, and of bodies in it, read a value."""
        wanted: set[OrtDevice] = set()
        for node in graph.consumers(name):
            wanted |= {self.input_device(node, index) for index, read in enumerate(node.inputs) if read == name}
            for body in node.subgraphs.values() if name in node.implicit_inputs else ():
                if all(argument.name != name for argument in body.inputs):
                    wanted |= self._wanted(body, name)
        return wanted

    def carried(self, node: Node) -> Mapping[int, OrtDevice]:
        """Carried value by position → the device where the body reads it; without those on the host."""
        found = self._carried.get(id(node))
        if found is None:
            values = carried_values(node) if self._hands_on(node) else None
            found = self._carried[id(node)] = {} if values is None else self._carried_by(node, values)
        return found

    def _carried_by(self, node: Node, values: CarriedValues) -> dict[int, OrtDevice]:
        body = node.subgraphs["body"]
        found = {}
        for index in range(values.count):
            output = values.first_output + index
            name, given_out = body.inputs[values.first_input + index].name, body.outputs[output].name
            wanted = self._wanted(body, name)
            is_made = given_out == name or self._is_made(body, given_out)
            others = [each.name for position, each in enumerate(body.outputs) if position != output]
            if len(wanted) == 1 and is_made and name not in others and _is_tensor(body, name) and wanted != {CPU_DEVICE}:
                found[index] = wanted.pop()
        return found

    def left(self, node: Node, graph: Graph, branches: Sequence[tuple[Graph, Mapping[str, OrtDevice]]]) -> dict[int, OrtDevice]:
        """Output of an If → the device where both branches make it, if anything reads it there; without those on the host.

        Args:
            node: any node with bodies.
            graph: that it is in.
            branches: its bodies, and the devices of their values.
        """
        if node.op_type != "If" or not self._hands_on(node):
            return {}
        found = {}
        for index, name in enumerate(node.outputs):
            devices = {self._device_made_on(body, body.outputs[index].name, known) for body, known in branches}
            device = devices.pop() if len(devices) == 1 else None
            wanted = self._wanted(graph, name)
            if name and device not in (None, CPU_DEVICE) and (device in wanted or not wanted):
                found[index] = device
        return {index: device for index, device in found.items() if device is not None}

    def gathered(self, node: Node, graph: Graph, devices: Mapping[str, OrtDevice]) -> dict[int, OrtDevice]:
        """Output of a Loop or Scan that is gathered over iterations → the device where the body makes its parts.

        Only where they can be stacked there, and if anything reads the output there, or only the caller of a run does.

        Args:
            node: any node with bodies.
            graph: that it is in.
            devices: of the values of its body.
        """
        values = carried_values(node) if self._hands_on(node) else None
        if values is None:
            return {}
        body, found = node.subgraphs["body"], {}
        for index, name in list(enumerate(node.outputs))[values.count :]:
            part = body.outputs[values.first_output + index].name
            device, wanted = self._device_made_on(body, part, devices), self._wanted(graph, name)
            is_wanted = name and device not in (None, CPU_DEVICE) and (device in wanted or not wanted)
            if (
                device is not None
                and is_wanted
                and self._can_stack is not None
                and self._can_stack(device, body.node_arg(part).type)
            ):
                found[index] = device
        return found

    def _device_made_on(self, body: Graph, name: str, devices: Mapping[str, OrtDevice]) -> OrtDevice | None:
        return devices[name] if self._is_made(body, name) and _is_tensor(body, name) else None

    def _hands_on(self, node: Node) -> bool:
        kernel_def = self.kernel_def(node)
        return kernel_def is not None and kernel_def.hands_on_values

    def _is_made(self, body: Graph, name: str) -> bool:
        """Whether a node of a body makes a value, in memory that is not that of another one."""
        node = body.producer(name)
        if node is None:
            return False
        index = node.outputs.index(name)
        if node.subgraphs and index in self.carried(node):
            return False  # without an iteration it is what went in
        kernel_def = self.kernel_def(node)
        pairs = () if kernel_def is None else (*kernel_def.alias, *kernel_def.may_inplace)
        return all(target != index for _, target in pairs)


def _is_tensor(body: Graph, name: str) -> bool:
    return (body.node_arg(name).type or "").startswith("tensor(")
