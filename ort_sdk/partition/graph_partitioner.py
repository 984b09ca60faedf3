"""Placing nodes on providers: in order of preference, inner graphs first, function bodies inlined where nothing else helps.

After ORT's ``GraphPartitioner``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from ort_sdk.api import CPU_DEVICE, ComputeCapability, EPFail, KernelCreateInfo, NoKernelError, OrtSdkError
from ort_sdk.api.optional_packages import is_installed
from ort_sdk.graph import Graph, Node
from ort_sdk.graph.operator_schemas import TABLE_SCHEMAS, OperatorSchemas
from ort_sdk.graph.type_inference import infer_types
from ort_sdk.kernels import RegistryLookup
from ort_sdk.loader.function_lookup import FunctionLookup

from .assignment import Assignment, Placement, ProviderBinding
from .carried_values import LOOP_NUMBERS
from .half_precision.insert_cast import insert_casts
from .shape_arithmetic import is_shape_arithmetic

__all__ = ["partition"]


MAX_INLINE_ROUNDS = 256

SHAPE_ARITHMETIC = "has a kernel; the node computes a few numbers from others that are on the host, as shapes are"

CYCLIC = "claimed it in a group that cannot be one node: a value leaves the group and comes back through another node"

logger = logging.getLogger("ort_sdk.partition")


def partition(
    graph: Graph,
    opset_imports: Mapping[str, int],
    providers: Sequence[ProviderBinding],
    find_function: FunctionLookup,
    previous: Assignment | None = None,
    schemas: OperatorSchemas = TABLE_SCHEMAS,
) -> Assignment:
    """Place every node of a graph and its bodies.

    Args:
        graph: changed in place: nodes get their provider, groups are fused, functions inlined.
        opset_imports: domain → version, of the model.
        providers: in order of preference.
        find_function: used for nodes that no provider has a kernel for.
        previous: an earlier assignment of the same graph, which passes have changed since: placed nodes stay, new ones
            are placed where the nodes they replaced were, if there is a kernel.
        schemas: of the graph's operators.

    Raises:
        NoKernelError: some node has neither a kernel nor a function body; the text lists every rejection.
    """
    partitioner = _Partitioner(dict(opset_imports), providers, previous)
    partitioner.keep(graph)
    for _ in range(MAX_INLINE_ROUNDS):
        for binding in providers:
            partitioner.ask(binding, graph)
        inlined = _inline_unplaced(graph, find_function)
        if not inlined and not insert_casts(graph, opset_imports, partitioner.has_kernel):
            break
        graph.sort()
        infer_types(graph, schemas)
    partitioner.keep_shapes_on_host(graph)
    return partitioner.finish(graph)


def _inline_unplaced(graph: Graph, find_function: FunctionLookup) -> bool:
    """Inline what no provider took, in the outermost graph that has any: a body of an inlined call is gone with it."""
    for outer in reversed(list(graph.walk())):
        found = [(node, find_function(node, outer)) for node in outer.nodes if not node.execution_provider]
        calls = [(node, function) for node, function in found if function is not None]
        if calls:
            from ort_sdk.graph.inline import inline_function

            for node, function in calls:
                inline_function(outer, node, function)
            return True
    return False


class _Partitioner:
    def __init__(self, opset_imports: dict[str, int], providers: Sequence[ProviderBinding], previous: Assignment | None) -> None:
        self._opset_imports = opset_imports
        self._providers = providers
        self._kernels: dict[int, KernelCreateInfo] = {} if previous is None else dict(previous.kernels)
        self._dropped: dict[tuple[str, int], tuple[Node, str]] = {}
        """(Provider, ``id`` of a node) → the node, and why a claim of it came to nothing."""
        self._offered: set[int] = set()
        """``id`` of the nodes that went to a provider because it has a kernel, without a claim of its own."""
        self._compiled: dict[int, Any] = {} if previous is None else dict(previous.compiled)
        for node, placement in () if previous is None else zip(previous.nodes, previous.placements, strict=True):
            moved = [name for name, reasons in placement.rejections.items() if reasons == (SHAPE_ARITHMETIC,)]
            self._dropped.update({(name, id(node)): (node, SHAPE_ARITHMETIC) for name in moved})

    def keep(self, graph: Graph) -> None:
        """Match nodes that passes have placed; those without a kernel there are offered to every provider again."""
        bindings = {binding.name: binding for binding in self._providers}
        for inner in graph.walk():
            for node in inner.nodes:
                if not node.execution_provider or id(node) in self._kernels or id(node) in self._compiled:
                    continue
                binding = bindings[node.execution_provider]
                found = binding.lookup(inner, self._opset_imports).lookup(node)
                node.execution_provider = ""
                self._place(binding, node, found)

    def has_kernel(self, node: Node, graph: Graph) -> bool:
        """Whether any provider has a kernel for a node."""
        lookups = (binding.lookup(graph, self._opset_imports) for binding in self._providers)
        return any(lookup.lookup(node) is not None for lookup in lookups)

    def ask(self, binding: ProviderBinding, graph: Graph) -> None:
        """Offer a graph's unplaced nodes, and its bodies' before them, to one provider."""
        for body in graph.bodies():
            self.ask(binding, body)
        lookup = binding.lookup(graph, self._opset_imports)
        capabilities = self._capabilities(binding, graph, lookup)
        if capabilities is None:
            self._claim_all(binding, graph, lookup)
        else:
            self._claim(binding, graph, lookup, capabilities)

    def _capabilities(self, binding: ProviderBinding, graph: Graph, lookup: RegistryLookup) -> Sequence[ComputeCapability] | None:
        try:
            return binding.get_capability(graph, lookup)  # type: ignore[arg-type]
        except OrtSdkError as error:
            error.add_note(f"while {binding.name} was asked what it can run of graph '{graph.name}'")
            raise

    def _claim_all(self, binding: ProviderBinding, graph: Graph, lookup: RegistryLookup) -> None:
        for node in graph.nodes:
            if not node.execution_provider:
                self._place(binding, node, lookup.lookup(node))
                self._offered.add(id(node))

    def _place(self, binding: ProviderBinding, node: Node, found: KernelCreateInfo | None) -> None:
        if found is not None:
            node.execution_provider = binding.name
            self._kernels[id(node)] = found

    def _claim(
        self, binding: ProviderBinding, graph: Graph, lookup: RegistryLookup, capabilities: Sequence[ComputeCapability]
    ) -> None:
        from .fuse import fuse_group

        own = {id(node): node for node in graph.nodes}
        groups: list[tuple[Node, Any]] = []
        for capability in capabilities:
            if capability.fuse and not capability.nodes:
                raise EPFail(
                    f"execution provider {binding.name}: hook get_capability claimed a group of no nodes in graph "
                    f"'{graph.name}'; a claim with fuse=True names the nodes to compile, or is left out"
                )
            nodes = [own[id(node)] for node in capability.nodes if id(node) in own]
            if len(nodes) != len(capability.nodes) or any(node.execution_provider for node in nodes):
                self._drop(binding, nodes, "claimed it with nodes that are not in the graph, or are placed already")
                continue
            if not capability.fuse:
                for node in nodes:
                    self._place(binding, node, lookup.lookup(node))
                continue
            fused = fuse_group(graph, nodes, binding.name, f"{binding.name}_{capability.name or 'group'}_{len(groups)}")
            if fused is None:
                self._drop(binding, nodes, CYCLIC)
                continue
            groups.append(fused)
            own = {id(node): node for node in graph.nodes}
        if groups:
            self._compile(binding, groups)

    def _drop(self, binding: ProviderBinding, nodes: Sequence[Node], reason: str) -> None:
        """Remember why a claim came to nothing; warn of it, since the provider said that it could run the nodes."""
        fresh = [node for node in nodes if not node.execution_provider and (binding.name, id(node)) not in self._dropped]
        if fresh:
            names = ", ".join(node.describe() for node in fresh[:5])
            logger.warning("a claim of %s is dropped: it %s (%s)", binding.name, reason, names)
        self._dropped.update({(binding.name, id(node)): (node, reason) for node in fresh})

    def _compile(self, binding: ProviderBinding, groups: list[tuple[Node, Any]]) -> None:
        kernels = binding.compile([fused for _, fused in groups])
        for (node, _), kernel in zip(groups, kernels, strict=True):
            self._compiled[id(node)] = kernel

    def keep_shapes_on_host(self, graph: Graph) -> None:
        """Move nodes that compute with shapes from devices to the host, if they are not there by their provider's claim."""
        bindings = {binding.name: binding for binding in self._providers}
        host = next((binding for binding in self._providers if binding.device == CPU_DEVICE), None)
        if host is None or all(binding.device == CPU_DEVICE for binding in self._providers):
            return
        on_cpu = {name for name, binding in bindings.items() if binding.device == CPU_DEVICE}
        loops = [node for inner in graph.walk() for node in inner.nodes if node.op_type == "Loop" and "body" in node.subgraphs]
        counted = {id(node.subgraphs["body"]) for node in loops if node.execution_provider in on_cpu}
        for inner in graph.walk():
            # A Loop on the host gives its body the number of the iteration and the condition there.
            given = {argument.name for argument in inner.inputs[:LOOP_NUMBERS]} if id(inner) in counted else set[str]()
            self._keep_on_host(host, inner, given, on_cpu)

    def _keep_on_host(self, host: ProviderBinding, graph: Graph, on_host: set[str], on_cpu: Collection[str]) -> None:
        """The same for one graph.

        Args:
            host: moves nodes to it.
            graph: main graph or body.
            on_host: inputs that are on the host.
            on_cpu: providers that compute there.
        """
        lookup = host.lookup(graph, self._opset_imports)
        moved = {node for _, (node, reason) in self._dropped.items() if reason == SHAPE_ARITHMETIC}
        for node in graph.nodes:
            placed = self._kernels.get(id(node))
            if node in moved:
                on_host.update(filter(None, node.outputs))
            if placed is None or node.execution_provider in on_cpu:
                continue
            kernel_def = placed.kernel_def
            on_host.update(name for index, name in enumerate(node.outputs) if name and kernel_def.output_on_host(index))
            if id(node) not in self._offered or not is_shape_arithmetic(graph, node, kernel_def, on_host):
                continue
            found = lookup.lookup(node)
            if found is not None:
                self._dropped[node.execution_provider, id(node)] = node, SHAPE_ARITHMETIC
                self._place(host, node, found)
                on_host.update(filter(None, node.outputs))

    def finish(self, graph: Graph) -> Assignment:
        """Freeze the result, or say why nodes are left."""
        placements: list[Placement] = []
        for inner in graph.walk():
            placements.extend(self._placement(node, inner) for node in inner.nodes)
        unplaced = [placement for placement in placements if not placement.provider]
        if unplaced:
            raise NoKernelError(_no_kernel_text(unplaced, self._describe_inputs(graph)))
        return Assignment(
            graph=graph,
            kernels=self._kernels,
            compiled=self._compiled,
            placements=tuple(placements),
            nodes=tuple(node for inner in graph.walk() for node in inner.nodes),
        )

    def _placement(self, node: Node, graph: Graph) -> Placement:
        rejections: dict[str, tuple[str, ...]] = {}
        for binding in self._providers:
            if binding.name == node.execution_provider:
                break
            lookup = binding.lookup(graph, self._opset_imports)
            dropped = self._dropped.get((binding.name, id(node)))
            reasons = [dropped[1]] if dropped else lookup.rejections(node) or ["has a kernel, and did not claim the node"]
            rejections[binding.name] = tuple(reasons)
        return Placement(
            graph.name, node.name, node.domain, node.op_type, node.since_version, node.execution_provider, rejections
        )

    @staticmethod
    def _describe_inputs(graph: Graph) -> Callable[[Placement], str]:
        def describe(placement: Placement) -> str:
            for inner in graph.walk():
                for node in inner.nodes:
                    if not node.execution_provider and (node.name, node.op_type) == (placement.node, placement.op_type):
                        return ", ".join(_argument_text(inner, name) for name in node.inputs)
            return ""

        return describe


def _argument_text(graph: Graph, name: str) -> str:
    if not name:
        return "(absent)"
    argument = graph.node_arg(name)
    shape = "" if argument.shape is None else str(list(argument.shape))
    return f"{argument.type or 'unknown type'}{shape}"


def _no_kernel_text(unplaced: Sequence[Placement], inputs_of: Callable[[Placement], str]) -> str:
    lines = []
    for placement in unplaced[:10]:
        operator = f"{placement.domain + '.' if placement.domain else ''}{placement.op_type}({placement.since_version})"
        reasons = " ".join(f"{provider}: {'; '.join(reasons)}." for provider, reasons in placement.rejections.items())
        lines.append(
            f"Could not find an implementation for {operator} node with name '{placement.node}' "
            f"(inputs: {inputs_of(placement)}). {reasons or 'No provider was asked.'}"
        )
    if len(unplaced) > len(lines):
        lines.append(f"... and {len(unplaced) - len(lines)} more nodes.")
    remedy = " Add a provider with such a kernel, or change the node's types or version."
    if not is_installed("onnx"):
        remedy += " ONNX may define the operator by others, which needs the package 'onnx', missing here: pip install onnx"
    return "\n".join(lines) + remedy
