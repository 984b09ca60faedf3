"""The graph: nodes in order, named values, constants."""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ort_sdk.api import InvalidGraph, NodeArg, Tensor, tensor_type
from ort_sdk.api.data_classes import dataclass, field

from .node import Body, Node
from .runtime_optimization import RuntimeOptimization

__all__ = ["Graph"]

_FEW = 16
"""Below it, looking through a list is faster than anything cleverer."""


@dataclass(slots=True, eq=False)
class Graph(Body):
    """A main graph or a body of control flow.

    A stage that changes a graph works on its own ``copy`` and calls ``touch`` after structural changes, so that the
    producer and consumer tables are rebuilt.
    """

    name: str = ""
    nodes: list[Node] = field(default_factory=list)
    """In topological order."""
    inputs: list[NodeArg] = field(default_factory=list)
    """Formal inputs; one that is also an initializer has a default and may be overridden by a feed."""
    outputs: list[NodeArg] = field(default_factory=list)
    initializers: dict[str, Tensor] = field(default_factory=dict)
    values: dict[str, NodeArg] = field(default_factory=dict)
    """What is known of every value of this graph: inputs, initializers and node outputs."""
    doc_string: str = ""
    metadata: dict[str, str] = field(default_factory=dict)
    runtime_optimizations: list[RuntimeOptimization] = field(default_factory=list)
    """What the file says may be replaced; those whose nodes are gone are void."""
    is_inferred: bool = field(default=False, repr=False)
    """Whether the shapes of all values are inferred, and no node has changed since."""
    inferred: Mapping[int, Mapping[str, Any]] | None = field(default=None, repr=False)
    """What shape inference found beside shapes, the last time; it belongs to ``shape_inference``."""
    _producers: dict[str, Node] | None = field(default=None, repr=False)
    _consumers: dict[str, list[Node]] | None = field(default=None, repr=False)
    _bodies: list[Graph] | None = field(default=None, repr=False)
    _output_names: tuple[list[NodeArg], frozenset[str]] | None = field(default=None, repr=False)
    """The list of outputs, and their names."""
    _input_names: tuple[list[NodeArg], frozenset[str]] | None = field(default=None, repr=False)
    """The list of inputs, and their names, which are unique."""
    _last_position: int = field(default=0, repr=False)
    _parent: weakref.ref[Graph] | None = field(default=None, repr=False)
    """Weak: the enclosing graph holds its bodies, and in a cycle they would be free only when the garbage collector comes."""

    @property
    def parent(self) -> Graph | None:
        """Enclosing graph of a body, which the user of the body holds.

        Raises:
            ReferenceError: it is gone.
        """
        if self._parent is None:
            return None
        parent = self._parent()
        if parent is None:
            raise ReferenceError(f"the graph around body '{self.name}' is gone: hold it for as long as the body is used")
        return parent

    @parent.setter
    def parent(self, parent: Graph | None) -> None:
        self._parent = None if parent is None else weakref.ref(parent)

    def touch(self, *, without_new_bodies: bool = False) -> None:
        """Forget derived tables after a change of nodes.

        Args:
            without_new_bodies: whether nodes that came have no bodies but those of nodes that left.
        """
        self.is_inferred = False
        self._producers = None
        self._consumers = None
        if self._bodies or not without_new_bodies:
            self._bodies = None
        self._output_names = None

    def link(self, node: Node) -> None:
        """Enter a node just put into ``nodes`` in the derived tables, which is cheaper than to ``touch``."""
        self.is_inferred = False
        if self._producers is not None:
            self._producers.update((output, node) for output in node.outputs if output)
        if self._consumers is not None:
            for read in dict.fromkeys(node.reads()):
                self._consumers.setdefault(read, []).append(node)
        if any(isinstance(value, Graph) for value in node.attributes.values()):
            self._bodies = None

    def unlink(self, node: Node) -> None:
        """Take a node about to leave ``nodes``, or about to change, out of the derived tables."""
        self.is_inferred = False
        if self._producers is not None:
            for output in node.outputs:
                if self._producers.get(output) is node:
                    del self._producers[output]
        if self._consumers is not None:
            for read in dict.fromkeys(node.reads()):
                self._consumers[read].remove(node)
        if self._bodies:
            self._bodies = None

    def move_readers(self, old: str, new: str) -> None:
        """Note in the derived tables that every reader of one value in this graph reads another from now on."""
        if self._consumers is not None:
            moved = self._consumers.pop(old, [])
            readers = self._consumers.setdefault(new, [])
            known = readers if len(moved) < _FEW else set(readers)
            readers.extend([node for node in moved if node not in known])

    def position(self, node: Node) -> int:
        """Position of a node in ``nodes``; passes ask from the front to the back, so the search begins where the last one ended.

        Raises:
            ValueError: it is not there.
        """
        nodes, near, width = self.nodes, self._last_position, _FEW
        while True:
            start, stop = max(0, near - width), near + width
            try:
                self._last_position = nodes.index(node, start, stop)
            except ValueError:
                if start == 0 and stop >= len(nodes):
                    raise
                width *= 8
            else:
                return self._last_position

    def node_arg(self, name: str) -> NodeArg:
        """Type and shape known for a value, here or in an enclosing graph; a bare NodeArg if nothing is known."""
        graph: Graph | None = self
        while graph is not None:
            found = graph.values.get(name)
            if found is not None:
                return found
            graph = graph.parent
        return NodeArg(name)

    def set_value(self, argument: NodeArg) -> None:
        """Record what is known of a value."""
        self.values[argument.name] = argument

    def add_initializer(self, name: str, tensor: Tensor) -> None:
        """Add or replace a constant, and record its type and shape."""
        self.initializers[name] = tensor
        self.values[name] = NodeArg(name, tensor_type(tensor.element_type), tuple(tensor.shape))

    def is_overridable(self, name: str) -> bool:
        """Whether a feed may replace the initializer of that name."""
        return name in self.initializers and name in self._names_of_inputs()

    def _names_of_inputs(self) -> frozenset[str]:
        known = self._input_names
        if known is None or known[0] is not self.inputs or len(known[1]) != len(self.inputs):
            known = self._input_names = (self.inputs, frozenset(argument.name for argument in self.inputs))
        return known[1]

    def constant(self, name: str) -> Tensor | None:
        """Constant initializer visible under a name: this graph's, or an enclosing graph's if not shadowed here."""
        graph: Graph | None = self
        while graph is not None:
            found = graph.initializers.get(name)
            if found is not None:
                known = graph._input_names
                is_known = known is not None and known[0] is graph.inputs and len(known[1]) == len(graph.inputs)
                names = known[1] if known is not None and is_known else graph._names_of_inputs()
                return None if name in names else found
            if name in graph.values:
                return None
            graph = graph.parent
        return None

    def producer(self, name: str) -> Node | None:
        """Node of this graph that makes a value."""
        if self._producers is None:
            self._producers = {output: node for node in self.nodes for output in node.outputs if output}
        return self._producers.get(name)

    def consumers(self, name: str) -> list[Node]:
        """Nodes of this graph that read a value, themselves or in their subgraphs; a node reading it twice counts once."""
        if self._consumers is None:
            table: dict[str, list[Node]] = defaultdict(list)
            for node in self.nodes:
                for read in {*node.inputs, *node.implicit_inputs} if node.implicit_inputs else set(node.inputs):
                    table[read].append(node)
            table.pop("", None)
            self._consumers = table
        return self._consumers.get(name, [])

    def unread(self, names: Iterable[str], gone: set[Node]) -> set[str]:
        """Those of some values that no nodes of this graph read but some that are to go."""
        self.consumers("")
        table = self._consumers or {}
        return {name for name in names if (readers := table.get(name)) is None or gone.issuperset(readers)}

    def output_names(self) -> set[str]:
        """Names of the graph's outputs."""
        return {argument.name for argument in self.outputs}

    def is_output(self, name: str) -> bool:
        """Whether a value is an output of the graph. Outputs are replaced as a whole list, or with a ``touch``."""
        known = self._output_names
        if known is None or known[0] is not self.outputs:
            known = self._output_names = (self.outputs, frozenset(argument.name for argument in self.outputs))
        return name in known[1]

    def bodies(self) -> Sequence[Graph]:
        """Bodies of this graph's own nodes, in order."""
        if self._bodies is None:
            self._bodies = [
                value for node in self.nodes if node.attributes for value in node.attributes.values() if isinstance(value, Graph)
            ]
        return self._bodies

    def walk(self) -> Iterator[Graph]:
        """This graph and all bodies in it, innermost first."""
        for body in self.bodies():
            yield from body.walk()
        yield self

    def copy(self, parent: Graph | None = None) -> Graph:
        """A copy with nodes, tables and bodies of its own; tensors are shared."""
        duplicate = Graph(
            name=self.name,
            inputs=list(self.inputs),
            outputs=list(self.outputs),
            initializers=dict(self.initializers),
            values=dict(self.values),
            doc_string=self.doc_string,
            metadata=dict(self.metadata),
        )
        duplicate.parent = parent
        duplicate.nodes = [node.copy(duplicate) for node in self.nodes]
        if self.runtime_optimizations:
            copies = {id(node): copy for node, copy in zip(self.nodes, duplicate.nodes, strict=True)}
            duplicate.runtime_optimizations = [each.of(copies) for each in self.runtime_optimizations if each.is_within(copies)]
        return duplicate

    def sort(self, outer: Iterable[str] = ()) -> None:
        """Put nodes in topological order, keeping the given order where it is one.

        Args:
            outer: values of enclosing graphs that may be read.

        Raises:
            InvalidGraph: a cycle, a value made twice, or a value that nothing makes.
        """
        if self._is_sorted(set(outer)):
            return
        available = {*outer, *self.initializers, *(argument.name for argument in self.inputs)}
        makers = self._makers(available)
        waiting: dict[str, list[Node]] = {}
        missing: dict[int, int] = {}
        ready: list[Node] = []
        for node in self.nodes:
            needs = {name for name in node.reads() if name not in available}
            unknown = [name for name in needs if name not in makers]
            if unknown:
                raise InvalidGraph(
                    f"{node.describe()} reads {sorted(unknown)}, which no node, input or initializer of graph '{self.name}' makes"
                )
            missing[id(node)] = len(needs)
            for name in needs:
                waiting.setdefault(name, []).append(node)
            if not needs:
                ready.append(node)
        self.nodes = self._drain(ready, waiting, missing)
        self.touch()

    def _is_sorted(self, outer: set[str]) -> bool:
        """Whether the order is topological already and every name is made once; False sends odd graphs the long way."""
        made = {"", *outer, *self.initializers, *[argument.name for argument in self.inputs]}
        for node in self.nodes:
            if not made.issuperset(node.inputs) or not made.issuperset(node.implicit_inputs):
                return False
            for name in node.outputs:
                if name in made and name:
                    return False
                made.add(name)
        return True

    def _makers(self, available: set[str]) -> dict[str, Node]:
        makers: dict[str, Node] = {}
        own = {argument.name for argument in self.inputs} | self.initializers.keys()
        for node in self.nodes:
            for name in node.outputs:
                if name and (name in makers or name in own):
                    raise InvalidGraph(
                        f"{node.describe()} makes '{name}', which graph '{self.name}' already has: names must be unique"
                    )
                if name:
                    makers[name] = node
                    available.discard(name)
        return makers

    def _drain(self, ready: list[Node], waiting: dict[str, list[Node]], missing: dict[int, int]) -> list[Node]:
        import heapq

        position = {id(node): index for index, node in enumerate(self.nodes)}
        heap = [position[id(node)] for node in ready]
        heapq.heapify(heap)
        ordered: list[Node] = []
        while heap:
            node = self.nodes[heapq.heappop(heap)]
            ordered.append(node)
            for name in node.outputs:
                for reader in waiting.pop(name, ()) if name else ():
                    missing[id(reader)] -= 1
                    if missing[id(reader)] == 0:
                        heapq.heappush(heap, position[id(reader)])
        if len(ordered) < len(self.nodes):
            placed = {id(node) for node in ordered}
            stuck = [node.describe() for node in self.nodes if id(node) not in placed]
            raise InvalidGraph(f"graph '{self.name}' has a cycle through {len(stuck)} nodes: {'; '.join(stuck[:5])}")
        return ordered
