"""Rewrites a graph so that values stay float between nodes that compute in it: see ``keep_float``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from ort_sdk.api import KernelCreateInfo, NodeArg, TensorElementType
from ort_sdk.graph import Graph, Node
from ort_sdk.partition.assignment import Assignment, Placement, ProviderBinding

from .casts import plain_cast
from .constants import add_float_constant
from .insert_cast import NARROW, WIDE, cast_name, cast_node
from .plan import FloatPlan

__all__ = ["FloatRewriter"]


class FloatRewriter:
    """Changes the graphs of an assignment. Arguments as for ``keep_float``."""

    def __init__(self, assignment: Assignment, opset_imports: dict[str, int], bindings: Mapping[str, ProviderBinding]) -> None:
        self._assignment = assignment
        self._opset_imports = opset_imports
        self._bindings = bindings
        self._kernels = dict(assignment.kernels)
        self._rounding: dict[tuple[str, str], KernelCreateInfo | None] = {}
        self._replaced: dict[int, Node] = {}
        self._casts: list[tuple[Graph, Node]] = []
        self._kept: list[str] = []

    def result(self) -> Assignment:
        """The assignment after the changes."""
        old = self._assignment
        nodes = tuple(self._replaced.get(id(node), node) for node in old.nodes)
        # The tables of an assignment have one row per node, in the same order.
        rows = (
            replace(row, op_type=node.op_type, since_version=node.since_version)
            for node, row in zip(nodes, old.placements, strict=True)
        )
        return replace(
            old,
            kernels=self._kernels,
            placements=(*rows, *(_placement(graph, node) for graph, node in self._casts)),
            nodes=(*nodes, *(node for _, node in self._casts)),
            kept_in_float=tuple(self._kept),
        )

    def change(self, graph: Graph) -> None:
        """Keep the values of one graph in float, not those of its bodies."""
        self._simplify_casts(graph)
        flow = FloatPlan(graph, self._kernels, lambda provider, half: self._rounding_kernel(provider, half) is not None)
        self._keep(graph, flow)
        self._give_float(graph, flow)

    def _keep(self, graph: Graph, flow: FloatPlan) -> None:
        kept = flow.kept()
        if not kept:
            return
        self._kept.extend(kept)
        readers = {name: _FloatReaders(graph, name, flow) for name in kept}
        casts: dict[int, list[Node]] = {}
        for name, node in kept.items():
            known = graph.node_arg(name)
            if readers[name].are_all:
                graph.set_value(replace(known, type=WIDE))
            else:
                casts.setdefault(id(node), []).append(self._rounded(graph, node, known, readers[name].float_reads))
        graph.nodes = [placed for node in graph.nodes for placed in (node, *casts.get(id(node), ()))]
        graph.touch()
        touched = [*kept.values(), *(node for name in kept for node, _ in readers[name].float_reads)]
        self._match_again(graph, {id(node): node for node in touched}.values())

    def _give_float(self, graph: Graph, flow: FloatPlan) -> None:
        """Let nodes that compute in float read and make nothing else, but for large matrices of GEMMs."""
        changed, nodes = [], list[Node]()
        wide_names: dict[str, str] = {}
        for node in graph.nodes:
            if not flow.is_given_float(node):
                nodes.append(node)
                continue
            nodes += self._widen_inputs(graph, node, flow, wide_names)
            nodes += [node, *(self._rounded(graph, node, graph.node_arg(name)) for name in flow.half_outputs(node))]
            changed.append(node)
        if changed:
            graph.nodes = nodes
            graph.touch()
            self._match_again(graph, changed)

    def _widen_inputs(self, graph: Graph, node: Node, flow: FloatPlan, wide_names: dict[str, str]) -> Iterator[Node]:
        """Give a node its inputs in float; the casts that are needed for that.

        Args:
            graph: gets the values in float.
            node: is changed.
            flow: knows which inputs are meant.
            wide_names: of values and constants there are in float already; those of this node are added.
        """
        for index in flow.widened_inputs(node):
            name = node.inputs[index]
            if name not in wide_names:
                tensor = graph.constant(name)
                wide_names[name] = cast_name(graph, name) if tensor is None else add_float_constant(graph, name, tensor)
                if tensor is None:
                    graph.set_value(replace(graph.node_arg(name), name=wide_names[name], type=WIDE))
                    yield self._placed(graph, self._cast(name, wide_names[name], WIDE, node.execution_provider))
            node.inputs[index] = wide_names[name]

    def _simplify_casts(self, graph: Graph) -> None:
        for position, node in enumerate(graph.nodes):
            plain = plain_cast(node, graph, self._opset_imports.get("", 1))
            found = None if plain is None else self._lookup(graph, plain)
            if plain is not None and found is not None:
                graph.nodes[position] = self._replaced[id(node)] = plain
                self._kernels.pop(id(node), None)
                self._kernels[id(plain)] = found
        graph.touch()

    def _lookup(self, graph: Graph, node: Node) -> KernelCreateInfo | None:
        return self._bindings[node.execution_provider].lookup(graph, self._opset_imports).lookup(node)

    def _rounding_kernel(self, provider: str, half: str) -> KernelCreateInfo | None:
        """A provider's kernel that casts float to a type."""
        key = (provider, half)
        if key not in self._rounding:
            graph = Graph(values={"x": NodeArg("x", WIDE), "y": NodeArg("y", half)})
            self._rounding[key] = self._lookup(graph, self._cast("x", "y", half, provider))
        return self._rounding[key]

    def _cast(self, source: str, target: str, type_string: str, provider: str) -> Node:
        node = cast_node(source, target, NARROW.get(type_string, TensorElementType.FLOAT), self._opset_imports.get("", 1))
        node.execution_provider = provider
        return node

    def _rounded(self, graph: Graph, node: Node, known: NodeArg, readers: Iterable[tuple[Node, int]] = ()) -> Node:
        """Let a node make a value in float under another name, which readers read at an input; the Cast that makes it of that."""
        wide = cast_name(graph, known.name)
        graph.set_value(replace(known, name=wide, type=WIDE))
        node.outputs = [wide if name == known.name else name for name in node.outputs]
        for reader, index in readers:
            reader.inputs[index] = wide
        return self._placed(graph, self._cast(wide, known.name, known.type or "", node.execution_provider))

    def _placed(self, graph: Graph, cast: Node) -> Node:
        found = self._lookup(graph, cast)
        if found is None:
            raise AssertionError(f"no kernel of {cast.execution_provider} casts {cast.inputs[0]} to {cast.outputs[0]}")
        self._kernels[id(cast)] = found
        self._casts.append((graph, cast))
        return cast

    def _match_again(self, graph: Graph, nodes: Iterable[Node]) -> None:
        """Give nodes without a half type left the provider's kernel for float, which may be a faster one."""
        for node in nodes:
            if any(name and graph.node_arg(name).type in NARROW for name in (*node.inputs, *node.outputs)):
                continue
            found = self._lookup(graph, node)
            if found is not None:
                self._kernels[id(node)] = found


class _FloatReaders:
    """Who reads a value in float."""

    def __init__(self, graph: Graph, name: str, flow: FloatPlan) -> None:
        nodes = graph.consumers(name)
        reads = [(node, index) for node in nodes for index, read in enumerate(node.inputs) if read == name]
        self.float_reads = [(node, index) for node, index in reads if flow.takes_float(node, index)]
        """(node, input)."""
        self.are_all = (
            len(self.float_reads) == len(reads)
            and not graph.is_output(name)
            and not any(name in node.implicit_inputs for node in nodes)
        )


def _placement(graph: Graph, node: Node) -> Placement:
    return Placement(graph.name, node.name, node.domain, node.op_type, node.since_version, node.execution_provider, {})
