"""Writes expressions in the device language."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ort_sdk.api import TensorElementType
from ort_sdk.device.element_types import COMPUTE, CONVERTED_TYPES, HALF_TYPES, STORAGE, is_floating, is_integer

from .nodes import Apply, Constant, Deferred, Node, Strided, resolved
from .parameters import Parameters

__all__ = ["ExpressionWriter", "leaves_of", "reads_vectors", "stored"]

_BOOL = TensorElementType.BOOL
_VECTOR_TYPES = frozenset({TensorElementType.FLOAT, *HALF_TYPES, _BOOL})


def leaves_of(roots: Sequence[Node]) -> list[Strided]:
    """The arrays that expressions read, each once, in order."""
    found: dict[int, Strided] = {}
    visited: set[int] = set()
    pending = list(reversed(roots))
    while pending:
        node = resolved(pending.pop())
        if id(node) in visited:
            continue
        visited.add(id(node))
        if isinstance(node, Strided):
            found[id(node)] = node
        elif isinstance(node, Apply):
            pending.extend(reversed(node.operands))
    return list(found.values())


def reads_vectors(roots: Sequence[Node]) -> bool:
    """Whether expressions can be computed on vectors of float32."""
    visited: set[int] = set()
    pending = list(roots)
    while pending:
        node = resolved(pending.pop())
        if id(node) in visited:
            continue
        visited.add(id(node))
        if node.element_type not in _VECTOR_TYPES or (isinstance(node, Strided) and node.memory is None):
            return False
        if isinstance(node, Apply):
            if not node.function.takes_vectors:
                return False
            pending.extend(node.operands)
    return True


class ExpressionWriter:
    """Expressions over one index space.

    Args:
        roots: expressions to be written.
        strides: ``id`` of a leaf → its strides along the axes of the index space.
        parameters: of the kernel; gets those of leaves and constants.
        given: ``id`` of a node → name of a variable that has its value already.
    """

    def __init__(
        self,
        roots: Sequence[Node],
        strides: Mapping[int, Sequence[int]],
        parameters: Parameters,
        given: Mapping[int, str] | None = None,
    ) -> None:
        self._given = dict(given or {})
        self._leaves: dict[int, tuple[str, str, list[str]]] = {}
        self._constants: dict[int, str] = {}
        self._order: list[Node] = []
        for root in roots:
            self._visit(resolved(root))
        for node in self._order:
            if isinstance(node, Strided):
                memory = "" if node.memory is None else parameters.memory(node.memory, node.element_type)
                steps = [parameters.index(stride) for stride in strides[id(node)]]
                self._leaves[id(node)] = (memory, parameters.index(node.offset), steps)
            elif isinstance(node, Constant):
                self._constants[id(node)] = _literal(node) or parameters.number(node.value, node.element_type)

    def _visit(self, root: Node) -> None:
        """Put the nodes of an expression in order, operands first, without recursion: expressions may be deep."""
        seen = {id(node) for node in self._order} | set(self._given)
        pending: list[tuple[Node, bool]] = [(root, False)]
        while pending:
            node, is_expanded = pending.pop()
            if id(node) in seen:
                continue
            if isinstance(node, Apply) and not is_expanded:
                pending.append((node, True))
                pending.extend((resolved(operand), False) for operand in reversed(node.operands))
                continue
            if isinstance(node, Deferred):
                raise TypeError("an expression reads what a kernel has not made yet")
            seen.add(id(node))
            self._order.append(node)

    def lines(self, indices: Sequence[str], prefix: str = "v", *, vector: bool = False) -> tuple[list[str], dict[int, str]]:
        """Statements that compute the expressions at an index.

        Args:
            indices: text of the index along each axis; along the last one the first of the vector's elements.
            prefix: of the variables' names.
            vector: compute on ``VW`` elements along the last axis.

        Returns:
            (statements, ``id`` of each node → the variable that has its value).
        """
        names, lines = dict(self._given), []
        for number, node in enumerate(self._order):
            name = names[id(node)] = f"{prefix}{number}"
            if vector and isinstance(node, Strided) and self._leaves[id(node)][2][-1] not in ("0", "1"):
                lines.append(self._gather(node, indices, name))
            lines.append(f"{_variable(node.element_type, vector)} {name} = {self._value(node, indices, names, name, vector)};")
        return lines, names

    def _value(self, node: Node, indices: Sequence[str], names: Mapping[int, str], name: str, vector: bool) -> str:
        if isinstance(node, Constant):
            text = self._constants[id(node)]
            return f"splat_{COMPUTE[node.element_type]}({text})" if vector else text
        if isinstance(node, Strided):
            return self._load(node, indices, name, vector)
        if not isinstance(node, Apply):
            raise TypeError(f"an expression has a {type(node).__name__} whose value is not given")
        operands = [names[id(resolved(operand))] for operand in node.operands]
        source = node.operands[0].element_type
        if node.function.name == "cast":
            return _cast(operands[0], source, node.element_type, vector)
        integer = node.function.integer_text
        text = integer if integer is not None and not is_floating(source) else node.function.text
        text = text.format(*operands, T=COMPUTE[source])
        if vector:
            return text.replace("SELECT(", "SELECT_V(")
        # C computes small integers as int: they wrap around when they are cast back
        return f"({COMPUTE[node.element_type]})({text})" if is_integer(node.element_type) else text

    def _gather(self, node: Strided, indices: Sequence[str], name: str) -> str:
        """A statement that loads a vector's elements that are not next to each other."""
        position, (memory, _, steps) = self._position(node, indices), self._leaves[id(node)]
        element = f"{memory}[{position} + lane * {steps[-1]}]"
        loaded = f"get_mask({element})" if node.element_type is _BOOL else _loaded(element, node.element_type)
        return f"{COMPUTE[node.element_type]} {name}e[VW]; for (int lane = 0; lane < VW; lane++) {name}e[lane] = {loaded};"

    def _position(self, node: Strided, indices: Sequence[str]) -> str:
        _, offset, steps = self._leaves[id(node)]
        terms = [index if step == "1" else f"{index} * {step}" for index, step in zip(indices, steps, strict=True) if step != "0"]
        return " + ".join(([] if offset == "0" else [offset]) + terms) or "0"

    def _load(self, node: Strided, indices: Sequence[str], name: str, vector: bool) -> str:
        memory, offset, steps = self._leaves[id(node)]
        if not memory:
            return _counted(node, offset, indices, steps)
        element = f"{memory}[{self._position(node, indices)}]"
        if not vector:
            return _loaded(element, node.element_type)
        if steps[-1] == "1":
            return f"load_{STORAGE[node.element_type]}v({memory} + {self._position(node, indices)})"
        if steps[-1] == "0":
            loaded = f"get_mask({element})" if node.element_type is _BOOL else _loaded(element, node.element_type)
            return f"splat_{COMPUTE[node.element_type]}({loaded})"
        return f"VLOAD({name}e)"


def _counted(node: Strided, offset: str, indices: Sequence[str], steps: Sequence[str]) -> str:
    terms = [f"(i64){index} * {step}" for index, step in zip(indices, steps, strict=True) if step != "0"]
    return f"({COMPUTE[node.element_type]})({' + '.join([f'(i64){offset}', *terms])})"


def _literal(node: Constant) -> str | None:
    """A small whole number as text, so that compilers know it."""
    if node.value in (0, 1, -1, 2) and (node.value != 0 or str(node.value)[0] != "-"):
        text = f"{int(node.value)}"
        if is_floating(node.element_type):
            return f"{text}.0f" if COMPUTE[node.element_type] == "f32" else f"{text}.0"
        return f"(({COMPUTE[node.element_type]}){text})"
    return None


def _variable(element_type: TensorElementType, vector: bool) -> str:
    return f"{COMPUTE[element_type]}v" if vector else COMPUTE[element_type]


def _loaded(text: str, element_type: TensorElementType) -> str:
    if element_type is _BOOL:
        return f"({text} != 0)"
    return f"get_{STORAGE[element_type]}({text})" if element_type in CONVERTED_TYPES else text


def _cast(value: str, source: TensorElementType, target: TensorElementType, vector: bool) -> str:
    if vector:
        return _vector_cast(value, source, target)
    if target is _BOOL:
        return value if source is _BOOL else f"{value} != 0"
    wide = "(i64)" if is_floating(source) and COMPUTE[target] in {"i8", "i16", "u8", "u16", "u32", "i32"} else ""
    converted = f"({COMPUTE[target]}){wide}{value}"
    if target not in CONVERTED_TYPES:
        return converted
    return value if source is target else f"get_{STORAGE[target]}(put_{STORAGE[target]}({converted}))"


def _vector_cast(value: str, source: TensorElementType, target: TensorElementType) -> str:
    if source is _BOOL:
        return value if target is _BOOL else f"SELECT_V({value}, splat_f32(1.0f), splat_f32(0.0f))"
    if target is _BOOL:
        return f"{value} != 0.0f"
    return f"round_{STORAGE[target]}v({value})" if target in HALF_TYPES and source is not target else value


def stored(target: str, position: str, value: str, element_type: TensorElementType, *, vector: bool = False) -> str:
    """A statement that writes a variable, or a vector, to memory at a position."""
    storage = STORAGE[element_type]
    if vector:
        return f"store_{storage}v({value}, {target} + {position});"
    if element_type is _BOOL:
        return f"{target}[{position}] = (b8)({value} != 0);"
    return f"{target}[{position}] = {f'put_{storage}({value})' if element_type in CONVERTED_TYPES else value};"
