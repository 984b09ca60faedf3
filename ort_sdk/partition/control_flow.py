"""Where the values of control flow are: what bodies make and read on one device stays there, if their node's kernel allows it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ort_sdk.api import CPU_DEVICE, OrtDevice
from ort_sdk.graph import Graph, Node

from .assignment import Assignment

__all__ = ["FIRST_CARRIED", "ControlFlowDevices"]

FIRST_CARRIED = 2
"""Position of a Loop's first carried value among its inputs, and of the body's; the body gives it out one position earlier."""


class ControlFlowDevices:
    """Says where If and Loop leave their outputs.

    Args:
        assignment: of their graph.
        wanted: devices on which nodes of a graph read a value.
    """

    def __init__(self, assignment: Assignment, wanted: Callable[[Graph, str], set[OrtDevice]]) -> None:
        self._assignment, self._wanted = assignment, wanted
        self._carried: dict[int, dict[int, OrtDevice]] = {}

    def carried(self, node: Node) -> Mapping[int, OrtDevice]:
        """Loop-carried value by position → the device where the body reads it; without those on the host."""
        found = self._carried.get(id(node))
        if found is None:
            found = self._carried[id(node)] = self._carried_by(node) if self._hands_on(node, "Loop") else {}
        return found

    def _carried_by(self, node: Node) -> dict[int, OrtDevice]:
        body = node.subgraphs["body"]
        found = {}
        for index, argument in enumerate(body.inputs[FIRST_CARRIED:]):
            name, given_out = argument.name, body.outputs[1 + index].name
            wanted = self._wanted(body, name)
            is_made = given_out == name or self._is_made(body, given_out)
            others = [each.name for position, each in enumerate(body.outputs) if position != 1 + index]
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
        if not self._hands_on(node, "If"):
            return {}
        found = {}
        for index, name in enumerate(node.outputs):
            devices = {self._device_made_on(body, body.outputs[index].name, known) for body, known in branches}
            device = devices.pop() if len(devices) == 1 else None
            wanted = self._wanted(graph, name)
            if name and device not in (None, CPU_DEVICE) and (device in wanted or not wanted):
                found[index] = device
        return {index: device for index, device in found.items() if device is not None}

    def _device_made_on(self, body: Graph, name: str, devices: Mapping[str, OrtDevice]) -> OrtDevice | None:
        return devices[name] if self._is_made(body, name) and _is_tensor(body, name) else None

    def _hands_on(self, node: Node, op_type: str) -> bool:
        found = self._assignment.kernel_for(node)
        return node.op_type == op_type and found is not None and found.kernel_def.hands_on_values

    def _is_made(self, body: Graph, name: str) -> bool:
        """Whether a node of a body makes a value, in memory that is not that of another one."""
        node = body.producer(name)
        if node is None:
            return False
        index = node.outputs.index(name)
        if node.subgraphs and index in self.carried(node):
            return False  # without an iteration it is what went in
        found = self._assignment.kernel_for(node)
        pairs = () if found is None else (*found.kernel_def.alias, *found.kernel_def.may_inplace)
        return all(target != index for _, target in pairs)


def _is_tensor(body: Graph, name: str) -> bool:
    return (body.node_arg(name).type or "").startswith("tensor(")
