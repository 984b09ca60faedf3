"""Kernels created, constants prepacked and placed, and the plans of a graph and its bodies, innermost first.

ONNX Runtime does the same in ``FinalizeSessionState``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ort_sdk.api import CPU_DEVICE, InvalidArgument, KernelDef, Stacking, Subgraph, Tensor
from ort_sdk.config_keys import DISABLE_PROGRAMS, PROGRAM_MEMORY_LIMIT_BYTES
from ort_sdk.graph import Graph, Model, Node
from ort_sdk.kernels import create_kernel, kernel_info
from ort_sdk.memory import DataTransferManager, DeviceCopy, InitializerPlacement, PackingNode, Prepacker, weight_identity
from ort_sdk.partition import COPY_DOMAIN, Assignment, ValueDevices, carried_devices, carried_values
from ort_sdk.plan import ExecutionPlan, NodeKernel, make_plan
from ort_sdk.run import DEFAULT_LIMIT_BYTES, ProgramMemory, body_runner
from ort_sdk.session.providers.opened import SessionProvider, binding_providers

if TYPE_CHECKING:
    from .stackings import Stackers

__all__ = ["SessionPlanner"]


def _program_memory_limit(config: Mapping[str, str]) -> int:
    """Bytes that a session's programs may hold.

    Raises:
        InvalidArgument: the config entry is no number of bytes.
    """
    limit = config.get(PROGRAM_MEMORY_LIMIT_BYTES, str(DEFAULT_LIMIT_BYTES))
    if not (limit.isascii() and limit.isdigit()):
        raise InvalidArgument(f"{PROGRAM_MEMORY_LIMIT_BYTES} must be a number of bytes, at least 0, got {limit!r}")
    return int(limit)


class SessionPlanner:
    """Makes the plan of a partitioned model."""

    def __init__(
        self,
        model: Model,
        assignment: Assignment,
        providers: Sequence[SessionProvider],
        transfers: DataTransferManager,
        placement: InitializerPlacement,
        prepacker: Prepacker | None,
        config: Mapping[str, str],
        stackers: Stackers | None,
    ) -> None:
        self._model, self._stackers = model, stackers
        self._assignment = assignment
        self._providers = {provider.name: provider for provider in providers}
        self._transfers = transfers
        self._placement = placement
        self._prepacker = prepacker
        self._config = config
        self._binding = binding_providers(providers) if config.get(DISABLE_PROGRAMS) != "1" else None
        """What programs of bodies need; None to run them step by step."""
        self.program_memory = ProgramMemory(_program_memory_limit(config))
        """Of the graph and its bodies."""

    def plan(self, graph: Graph, devices: ValueDevices, implicit_inputs: Sequence[str] = ()) -> ExecutionPlan:
        """Plan of a graph.

        Args:
            graph: placed, with copies inserted.
            devices: where its values live.
            implicit_inputs: for a body, the values its control-flow node captures.
        """
        kernels = {id(node): self._kernel(node, graph, devices) for node in graph.nodes}
        plan = make_plan(graph, devices.devices, kernels, self._placement.place, implicit_inputs)
        self._placement.want(plan.constants.sources().values())
        return plan

    def _kernel(self, node: Node, graph: Graph, devices: ValueDevices) -> NodeKernel:
        if node.domain == COPY_DOMAIN:
            source, target = devices.devices[node.inputs[0]], devices.devices[node.outputs[0]]
            return NodeKernel(DeviceCopy(self._transfers, source, target), target)
        provider = self._providers[node.execution_provider]
        create_info = self._assignment.kernel_for(node)
        if create_info is None:
            compiled = self._assignment.compiled[id(node)]
            return NodeKernel(compiled if hasattr(compiled, "compute") else _Compiled(compiled), provider.device)
        info = kernel_info(
            node,
            graph,
            self._model.opset_imports.get(node.domain, 0),
            subgraphs=self._bodies(node, devices, create_info.kernel_def) if node.attributes else {},
            execution_provider=provider.execution_provider,
            session_config=self._config,
        )
        kernel = create_kernel(create_info, info)
        kernel_def = create_info.kernel_def
        packed_inputs, packers = self._prepack(provider, kernel, node, info.constants)
        values = carried_values(node) if node.subgraphs and kernel_def.hands_on_values else None
        carried = {} if values is None else carried_devices(node, devices)
        first = 0 if values is None else values.first_input
        return NodeKernel(
            kernel,
            provider.device,
            packed_inputs=packed_inputs,
            packers=packers,
            host_inputs=kernel_def.input_on_host,
            input_devices={first + index: device for index, device in carried.items()},
            aliases=(*kernel_def.alias, *kernel_def.may_inplace, *((first + index, index) for index in carried)),
        )

    def _bodies(self, node: Node, devices: ValueDevices, kernel_def: KernelDef) -> dict[str, Subgraph]:
        stackings = self._stackings(node, devices) if kernel_def.hands_on_values else {}
        found: dict[str, Subgraph] = {}
        for name, body in node.subgraphs.items():
            plan = self.plan(body, devices.bodies[id(body)], node.implicit_inputs)
            found[name] = body_runner(plan, self._binding, self.program_memory, stackings)
        return found

    def _stackings(self, node: Node, devices: ValueDevices) -> dict[int, Stacking]:
        """Output of a node's body that is gathered over iterations on a device → how it is stacked there."""
        values = carried_values(node)
        if values is None or self._stackers is None:
            return {}
        body, found = node.subgraphs["body"], dict[int, Stacking]()
        for index, name in list(enumerate(node.outputs))[values.count :]:
            device = devices.devices.get(name, CPU_DEVICE)
            if name and device != CPU_DEVICE:
                output = values.first_output + index
                type_string = body.node_arg(body.outputs[output].name).type
                stacking = self._stackers.stacking(device, type_string, self._transfers)
                found.update({output: stacking} if stacking is not None else {})
        return found

    def _prepack(
        self, provider: SessionProvider, kernel: Any, node: Node, constants: Mapping[int, Tensor]
    ) -> tuple[frozenset[int], Mapping[int, Callable[[], bool]]]:
        """Inputs that are packed now, and those to be packed in the first run, with the call that does it."""
        prepacker = self._prepacker
        if prepacker is None or not constants or not hasattr(kernel, "use_prepacked"):
            return frozenset(), {}
        packing = _packing_node(provider, node)
        weights = {index: weight_identity(tensor) for index, tensor in constants.items()}
        waiting = {index: weight for index, weight in weights.items() if prepacker.may_wait(kernel, packing, weight)}
        now = {index: weight for index, weight in weights.items() if index not in waiting}
        packers = {index: partial(prepacker.pack_input, kernel, packing, weight, index) for index, weight in waiting.items()}
        return prepacker.pack_inputs(kernel, packing, now), packers


def _packing_node(provider: SessionProvider, node: Node) -> PackingNode:
    handle, execution_provider = provider.handle, provider.execution_provider
    return PackingNode(
        provider=provider.name,
        device=provider.device,
        domain=node.domain,
        op_type=node.op_type,
        hook=partial(handle.prepack, execution_provider) if handle.implements("prepack") else None,
        allocator=provider.allocator,
        owner=None if provider.device.is_cpu else handle,
    )


class _Compiled:
    """A compiled group that is a plain function."""

    __slots__ = ("compute",)

    def __init__(self, compute: Any) -> None:
        self.compute = compute
