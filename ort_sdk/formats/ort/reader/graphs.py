"""``Graph`` and ``Node`` → Graph and Node."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator

from ort_sdk.api import Fail, InvalidGraph, NodeArg, Tensor, tensor_type
from ort_sdk.formats.ort.slots import GraphSlot, NodeSlot
from ort_sdk.formats.versions import check_versioned, normal_domain
from ort_sdk.graph import Graph, Node
from ort_sdk.graph.captures import implicit_inputs
from ort_sdk.graph.operator_schemas import OperatorSchemas
from ort_sdk.graph.type_strings import op_id

from .attributes import AttributeReader
from .flatbuffer import Table
from .indices import NodeEntry, check_argument_counts, check_edges, slot_of
from .runtime_optimizations import read_runtime_optimizations
from .tensors import TensorReader, required_name
from .types import read_value

__all__ = ["GraphReader"]

_FIRST_IR_VERSION_WITH_DEFAULTS = 4
"""Below it, initializers had to be listed as inputs and were constants all the same."""
_PRIMITIVE = 0


class GraphReader:
    """Reads graphs with their bodies.

    Args:
        tensors: reads constants.
        ir_version: the model's.
        schemas: of the operators; those without one are taken as they come.
    """

    def __init__(self, tensors: TensorReader, ir_version: int, schemas: OperatorSchemas) -> None:
        self._tensors = tensors
        self._ir_version = ir_version
        self._schemas = schemas
        self.formal_inputs: dict[str, int] = {}
        """Op id → number of formal inputs, for the operators of what was read; the smallest that a node says."""

    def read(self, table: Table, parent: Graph | None = None) -> Graph:
        """A graph; nodes in order of their indices.

        While it is read, its values are all that the file lists, those of enclosing graphs included; afterwards its own.

        Raises:
            Fail: a part is missing, there twice, or refers to what is not there.
            InvalidGraph: an initializer or a node does not fit its declaration.
        """
        graph = Graph()
        graph.parent = parent
        for value in map(read_value, table.tables(GraphSlot.NODE_ARGS, "ValueInfo")):
            if value.name in graph.values:
                raise Fail(f"Duplicate NodeArg name: {value.name!r}. Invalid ORT format model.")
            graph.values[value.name] = value
        graph.inputs = _named_values(graph, table.texts(GraphSlot.INPUTS), "input")
        graph.outputs = _named_values(graph, table.texts(GraphSlot.OUTPUTS), "output")
        self._read_initializers(graph, table)
        entries = self._read_nodes(graph, table)
        graph.nodes = [entries[index] for index in sorted(entries)]
        graph.runtime_optimizations = read_runtime_optimizations(table, entries)
        self._keep_own_values(graph)
        return graph

    def _read_initializers(self, graph: Graph, table: Table) -> None:
        for name, tensor in self._initializers(table):
            if name in graph.initializers:
                raise Fail(f"Duplicate initializer: {name!r}. Invalid ORT format model.")
            declared = graph.values.get(name)
            if declared is not None:
                _check_initializer(name, tensor, declared)
            graph.initializers[name] = tensor

    def _initializers(self, table: Table) -> Iterator[tuple[str, Tensor]]:
        for tensor in table.tables(GraphSlot.INITIALIZERS, "Tensor"):
            yield required_name(tensor), self._tensors.read(tensor)
        for sparse in table.tables(GraphSlot.SPARSE_INITIALIZERS, "SparseTensor"):
            yield self._tensors.read_sparse(sparse)

    def _read_nodes(self, graph: Graph, table: Table) -> dict[int, Node]:
        tables = table.tables(GraphSlot.NODES, "Node")
        attributes = AttributeReader(self._tensors.read, lambda body: self.read(body, graph))
        entries: dict[int, NodeEntry] = {}
        for node_table in tables:
            index = slot_of(node_table, table, len(tables))
            if index in entries:
                raise Fail(f"Duplicate node index: {index}. Invalid ORT format model.")
            entries[index] = self._read_node(node_table, graph, attributes)
        check_edges(table, entries)
        return {index: node for index, (node, _) in entries.items()}

    def _read_node(self, table: Table, graph: Graph, attributes: AttributeReader) -> NodeEntry:
        op_type = table.text(NodeSlot.OP_TYPE)
        if not op_type:
            raise Fail("A node has no op_type. Invalid ORT format model.")
        if table.i32(NodeSlot.TYPE) != _PRIMITIVE:
            raise Fail(f"A node of {op_type} has the type {table.i32(NodeSlot.TYPE)}; only 0 (Primitive) can be loaded.")
        node = Node(
            op_type=op_type,
            inputs=table.texts(NodeSlot.INPUTS),
            outputs=table.texts(NodeSlot.OUTPUTS),
            domain=normal_domain(table.text(NodeSlot.DOMAIN) or ""),
            name=table.text(NodeSlot.NAME) or "",
            since_version=table.i32(NodeSlot.SINCE_VERSION),
        )
        _check_names(node, (*node.inputs, *node.outputs), graph.values.keys())
        name = op_id(node.domain, node.op_type, node.since_version)
        formals = check_argument_counts(table, node)
        self.formal_inputs[name] = min(formals, self.formal_inputs.get(name, formals))
        node.attributes = attributes.read(table.tables(NodeSlot.ATTRIBUTES, "Attribute"), node.describe())
        listed = table.texts(NodeSlot.IMPLICIT_INPUTS)
        _check_names(node, listed, _visible_names(graph) if listed else ())
        if node.subgraphs:
            node.implicit_inputs = implicit_inputs(node)
            _check_names(node, node.implicit_inputs, set(listed))
        check_versioned(node, self._schemas)
        return node, len(listed)

    def _keep_own_values(self, graph: Graph) -> None:
        given = {argument.name for argument in graph.inputs}
        for name, tensor in graph.initializers.items():
            if name not in given:
                graph.add_initializer(name, tensor)
        if self._ir_version < _FIRST_IR_VERSION_WITH_DEFAULTS:
            graph.inputs = [argument for argument in graph.inputs if argument.name not in graph.initializers]
        made = (name for node in graph.nodes for name in node.outputs if name)
        own = dict.fromkeys((*given, *graph.initializers, *made))
        graph.values = {name: graph.values[name] for name in own}


def _named_values(graph: Graph, names: list[str], what: str) -> list[NodeArg]:
    if what == "input" and len(set(names)) < len(names):
        raise Fail(f"A graph has an input twice: {names[:100]}. Invalid ORT format model.")
    for name in names:
        if not name or name not in graph.values:
            raise Fail(f"Graph {what} {name!r} is not among the graph's NodeArgs. Invalid ORT format model.")
    return [graph.values[name] for name in names]


def _check_initializer(name: str, tensor: Tensor, declared: NodeArg) -> None:
    kind = tensor_type(tensor.element_type)
    if declared.type not in (None, kind):
        raise InvalidGraph(f"Type Error: Data in initializer '{name}' is {kind}, and its NodeArg says {declared.type}")
    shape = declared.shape
    if shape is None:
        return
    fits = len(shape) == len(tensor.shape) and all(
        not isinstance(size, int) or size == found for size, found in zip(shape, tensor.shape, strict=True)
    )
    if not fits:
        raise InvalidGraph(f"Type Error: Shape of initializer {name} does not match. {list(tensor.shape)} != {list(shape)}")


def _check_names(node: Node, names: Iterable[str], known: Container[str]) -> None:
    unknown = [name for name in names if name and name not in known]
    if unknown:
        raise Fail(f"{node.describe()} has arguments that are not listed: {unknown[:20]}. Invalid ORT format model.")


def _visible_names(graph: Graph) -> set[str]:
    names: set[str] = set()
    scope: Graph | None = graph
    while scope is not None:
        names.update(scope.values)
        scope = scope.parent
    return names
