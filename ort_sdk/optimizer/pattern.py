"""What fusions are made of: reading a pattern around a node, and replacing what was found once it is proved replaceable."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

from ort_sdk.api import HostArray, NodeArg, Tensor, TensorElementType, find_schema
from ort_sdk.graph import Graph, Node
from ort_sdk.graph.captures import free_values

from .transformer import TransformerContext

__all__ = ["MICROSOFT", "FusionPass", "GraphMatcher", "Match", "operator_key"]

MICROSOFT = "com.microsoft"
RELATIVE_TOLERANCE = 1e-5
"""How far a constant of a pattern (the square root of two, say) may be from its value."""
_TOLERANCES = {TensorElementType.FLOAT16: 2e-3, TensorElementType.BFLOAT16: 1.6e-2}
"""The same for types that round more: two units in the last place."""


def operator_key(node: Node) -> str:
    """``Conv`` for ONNX's operators, ``com.microsoft:Gelu`` for others."""
    return f"{node.domain}:{node.op_type}" if node.domain else node.op_type


class Match:
    """A found pattern: the nodes it covers, in no order, and the one that makes its result.

    Args:
        last: node whose outputs the replacement makes.
        inner: the other nodes; a node may be given twice.
    """

    __slots__ = ("last", "nodes")

    def __init__(self, last: Node, *inner: Node) -> None:
        self.last = last
        nodes = [last, *inner]
        self.nodes = nodes if len(nodes) == 2 and last is not inner[0] else list(dict.fromkeys(nodes))


class GraphMatcher:
    """Reads one graph for one pass and collects the pass's replacements, which ``commit`` makes all at once.

    Nodes of an accepted replacement are no longer found. Not kept between passes.
    """

    def __init__(self, graph: Graph, context: TransformerContext) -> None:
        self.graph = graph
        self.context = context
        self._outputs = graph.output_names()
        self._taken: set[Node] = set()
        self._replacements: list[tuple[list[Node], Node]] = []
        self._added: list[Node] = []
        self._since_versions: dict[tuple[str, str], int | None] = {}
        self._has_kernel: dict[Hashable, bool] = {}
        self.shared: dict[Hashable, str] = {}
        """What fusions of this pass have added and may use again: what it is → value."""

    # Reading

    def nodes(self, keys: Sequence[str]) -> Iterator[Node]:
        """Nodes of some operators that are not replaced yet, in order."""
        wanted = frozenset(keys)
        short = {key.rpartition(":")[2] for key in keys}
        for node in self.graph.nodes:
            if node.op_type in short and operator_key(node) in wanted and node not in self._taken:
                yield node

    def maker(self, name: str, *keys: str) -> Node | None:
        """The node that makes a value as its first output, if it is one of some operators (any, if none are named)."""
        node = self.graph.producer(name) if name else None
        if node is None or node in self._taken or node.outputs[0] != name:
            return None
        return node if not keys or operator_key(node) in keys else None

    def reader(self, name: str, *keys: str) -> Node | None:
        """The only node that reads a value, if it is one of some operators and the value is no output of the graph."""
        readers = self.graph.consumers(name)
        if len(readers) != 1 or name in self._outputs or readers[0] in self._taken:
            return None
        return readers[0] if operator_key(readers[0]) in keys else None

    def sole_maker(self, name: str, *keys: str) -> Node | None:
        """``maker`` of a value that has just one reader and is no output of the graph."""
        is_private = name not in self._outputs and len(self.graph.consumers(name)) == 1
        return self.maker(name, *keys) if is_private else None

    def constant(self, name: str) -> HostArray | None:
        """Elements of a constant of at most a few elements; None for other values and large constants."""
        tensor = self.graph.constant(name) if name else None
        if tensor is None or tensor.nbytes > 4096 or tensor.element_type.onnx_name == "string":
            return None
        return tensor.numpy()

    @cached_property
    def tensor(self) -> Callable[[str], Tensor | None]:
        """``Graph.constant``, or what is as good in this graph and faster."""
        graph = self.graph
        is_plain = graph.parent is None and not any(argument.name in graph.initializers for argument in graph.inputs)
        return graph.initializers.get if is_plain else graph.constant

    def is_constant(self, *names: str) -> bool:
        """Whether all values are constants; omitted ones count."""
        return all(not name or self.graph.constant(name) is not None for name in names)

    def scalar(self, name: str, beside: str | None = None) -> float | None:
        """The one element of a constant; None for other values.

        Args:
            name: the value.
            beside: the other operand; the constant must not raise its rank.
        """
        value = self.constant(name)
        if (
            value is None
            or value.size != 1
            or (value.ndim and (beside is None or value.ndim > (self.argument(beside).rank or 0)))
        ):
            return None
        return float(value.reshape(()))

    def is_scalar(self, name: str, expected: float, beside: str | None = None) -> bool:
        """Whether a value is a constant of one element near a number."""
        value = self.scalar(name, beside)
        return value is not None and self.is_near(value, expected, name)

    def is_near(self, value: float, expected: float, name: str) -> bool:
        """Whether two numbers are equal within the precision of the type of the value ``name``."""
        element_type = self.argument(name).element_type
        tolerance = _TOLERANCES.get(element_type, RELATIVE_TOLERANCE) if element_type is not None else RELATIVE_TOLERANCE
        return abs(value - expected) <= tolerance * abs(expected)

    def scalar_operand(self, node: Node) -> tuple[str, float] | None:
        """(other operand, number) of a commutative node one of whose two operands is a constant of one element."""
        first, second = node.inputs
        for name, other in ((second, first), (first, second)):
            value = self.scalar(name, other)
            if value is not None:
                return other, value
        return None

    def argument(self, name: str) -> NodeArg:
        """What is known of a value."""
        return self.graph.node_arg(name)

    def is_vector_of(self, name: str, data: str) -> bool:
        """Whether a value is known to be a vector as long as the last axis of ``data``."""
        vector, shape = self.argument(name).shape, self.argument(data).shape
        if vector is None or not shape:
            return False
        return len(vector) == 1 and isinstance(vector[0], int) and shape[-1] == vector[0]

    def has_same_shape(self, first: str, second: str) -> bool:
        """Whether two values are known to have equal shapes; equal symbols are equal numbers."""
        shape = self.argument(first).shape
        return shape is not None and None not in shape and shape == self.argument(second).shape

    def axes(self, node: Node) -> tuple[int, ...] | None:
        """Constant axes of a reduction or of (Un)squeeze, from its attribute or its second input; None if there are none."""
        if "axes" in node.attributes:
            return tuple(node.attributes["axes"])
        value = self.constant(node.inputs[1]) if len(node.inputs) > 1 else None
        return None if value is None else tuple(int(axis) for axis in value.reshape(-1))

    def opset(self, domain: str = "") -> int:
        """Version of a domain the model imports; 1 if it imports none."""
        return self.context.opset_imports.get(domain, 1)

    # Replacing

    def fuse(
        self,
        match: Match,
        op_type: str,
        inputs: Sequence[str],
        attributes: Mapping[str, Any] | None = None,
        *,
        domain: str = MICROSOFT,
        outputs: Sequence[str] | None = None,
    ) -> bool:
        """Replace a match by one node, if that changes nothing for the rest of the graph and a kernel runs the node.

        Args:
            match: what to replace. Its nodes are on one provider, and of their outputs only the new node's are read by
                other nodes or are outputs of the graph; else nothing happens.
            op_type: operator of the new node.
            inputs: its inputs; empty names at the end are left out.
            attributes: its attributes.
            domain: its domain.
            outputs: its outputs; those of ``match.last`` by default.

        Returns:
            Whether the match will be replaced.
        """
        new = self.new_node(match.last, op_type, inputs, attributes, domain=domain, outputs=outputs)
        return new is not None and self.replace(match, new)

    def new_node(
        self,
        last: Node,
        op_type: str,
        inputs: Sequence[str],
        attributes: Mapping[str, Any] | None = None,
        *,
        domain: str = MICROSOFT,
        outputs: Sequence[str] | None = None,
    ) -> Node | None:
        """The node that ``fuse`` replaces ``last`` by; None if the operator does not exist."""
        versions = self._since_versions
        version = versions[op_type, domain] if (op_type, domain) in versions else self._since_version(op_type, domain)
        if version is None:
            return None
        names = list(inputs)
        while names and not names[-1]:
            names.pop()
        made = list(last.outputs if outputs is None else outputs)
        given = {} if attributes is None else dict(attributes)
        return Node(op_type, names, made, given, domain, last.name, "", version, last.execution_provider)

    def _since_version(self, op_type: str, domain: str) -> int | None:
        schema = find_schema(op_type, self.context.opset_imports.get(domain, 1), domain)
        found = self._since_versions[op_type, domain] = None if schema is None else schema.since_version
        return found

    def replace(self, match: Match, new: Node, kind: Hashable = None) -> bool:
        """Replace a match by a given node, on the conditions of ``fuse``.

        Args:
            match: what to replace.
            new: what replaces it.
            kind: nodes of equal kinds are alike in all that kernels look at, so that one of them is looked up.
        """
        if not self._is_replaceable(match, new):
            return False
        has_kernel = self._has_kernel.get(kind) if kind is not None else None
        if has_kernel is None:
            has_kernel = self._has_kernel[kind] = self.context.has_kernel(new, self.graph)
        if not has_kernel:
            return False
        self._taken.update(match.nodes)
        self._replacements.append((match.nodes, new))
        return True

    def add(self, nodes: Sequence[Node], shared: Mapping[Hashable, str]) -> bool:
        """Add nodes that the new ones of this pass read, with what is known of their outputs entered in the graph.

        Args:
            nodes: the nodes.
            shared: which of their outputs later fusions may use again.
        """
        self._added.extend(nodes)
        self.shared.update(shared)
        return True

    def without_shared(self, nodes: Sequence[Node], reader: Node) -> list[Node]:
        """Those of some nodes that ``reader`` alone reads, so that they can go with it."""
        return [
            node
            for node in nodes
            if all(name not in self._outputs and self.graph.consumers(name) == [reader] for name in node.outputs if name)
        ]

    def _is_replaceable(self, match: Match, new: Node) -> bool:
        """One provider, nothing taken, and no value lost that something else, or the new node itself, reads."""
        members, provider, made = match.nodes, match.last.execution_provider, new.outputs
        for node in members:
            if node in self._taken or node.execution_provider != provider:
                return False
            for name in node.outputs:
                if not name or name in made:
                    continue
                if name in self._outputs or name in new.inputs:
                    return False
                for reader in self.graph.consumers(name):
                    if reader not in members:
                        return False
        return True

    def commit(self) -> bool:
        """Make the collected replacements; returns whether there were any."""
        if not self._replacements:
            return False
        graph, are_shapes_known = self.graph, self.graph.is_inferred and not self._added
        kept = [*self._added, *self._replaced()]
        out = self._forget_unread()
        graph.nodes = [node for node in kept if node not in out] if out else kept
        graph.touch(without_new_bodies=True)
        graph.is_inferred = are_shapes_known  # of the values that are made as before
        if self._added or any(len(new.outputs) > 1 for _, new in self._replacements):
            graph.sort(free_values(graph))
        return True

    def _replaced(self) -> Iterator[Node]:
        """The graph's nodes, with new ones at the positions of the last ones of the matches they replace."""
        left = [len(nodes) for nodes, _ in self._replacements]
        replacement = {node: index for index, (nodes, _) in enumerate(self._replacements) for node in nodes}
        for node in self.graph.nodes:
            index = replacement.get(node)
            if index is None:
                yield node
                continue
            left[index] -= 1
            if not left[index]:
                yield self._replacements[index][1]

    def _forget_unread(self) -> set[Node]:
        """Drop what is known of values and constants that go with the replaced nodes; returns other nodes that go with them."""
        graph, gone, going = self.graph, set(self._taken), list(self._taken)
        initializers, values = graph.initializers, graph.values
        needed = self._outputs.union([argument.name for argument in graph.inputs])
        made: set[str] = set()
        for new in (*self._added, *[new for _, new in self._replacements]):
            made.update(new.outputs)
            needed.update(new.inputs, new.implicit_inputs)
        while going:
            unread = graph.unread({name for node in going for name in node.inputs if name not in needed}, gone)
            others = []
            for name in unread:
                if initializers.pop(name, None) is None:
                    others.append(name)
                else:
                    values.pop(name, None)
            for node in going:
                for name in node.outputs:
                    if name not in made:
                        values.pop(name, None)
            makers = {maker for name in others if (maker := graph.producer(name)) is not None and maker not in gone}
            going = [maker for maker in makers if graph.unread(set(maker.outputs) - needed, gone) == set(maker.outputs)]
            gone.update(going)
        return gone - self._taken


class FusionPass:
    """A pass that looks for patterns around the nodes of some operators."""

    name: str
    anchors: ClassVar[tuple[str, ...]]
    """Operator keys the search starts from."""

    def apply(self, graph: Graph, context: TransformerContext) -> bool:
        """Replace all matches in one graph; see ``GraphTransformer``."""
        matcher = GraphMatcher(graph, context)
        if not self.is_enabled(context):
            return False
        for node in matcher.nodes(self.anchors):
            self.fuse(matcher, node)
        return matcher.commit()

    def is_enabled(self, _context: TransformerContext) -> bool:
        """Whether the session's config wants the pass."""
        return True

    def fuse(self, matcher: GraphMatcher, node: Node) -> object:
        """Look for the pattern around one node and replace it through the matcher."""
        raise NotImplementedError
