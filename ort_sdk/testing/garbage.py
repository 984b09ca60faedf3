"""What sessions leave for Python's cyclic garbage collector, which is to be nothing: what is dropped is free at once."""

from __future__ import annotations

import contextlib
import gc
import types
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

__all__ = ["assert_no_garbage", "collected", "is_through_ours", "shortest_cycles", "still_there"]

LARGE_BYTES = 1 << 12
"""Of an array, from which it counts whoever holds it."""
PLUGGY_MANAGERS = frozenset({"ort_sdk.plugins.manager"})
MAX_SHOWN = 5
"""Cycles shown of one failure, at most."""


def assert_no_garbage(work: Callable[[], object], what: str, own: Sequence[str] = ()) -> None:
    """Assert that nothing of ours that some work makes, nor a large array, is left for the cyclic garbage collector.

    The collector is off meanwhile; then it looks through all that was made, so the work has to drop the sessions it makes.
    Modules that are imported and kernels that are compiled, once in a process, may leave something: what the work leaves counts
    if it leaves something again when it is done once more. For one thread at a time.

    Args:
        work: what to do.
        what: named in the failure.
        own: packages whose objects and functions count, beside all whose names begin with ``ort_sdk``.

    Raises:
        AssertionError: something is left; the text shows the shortest cycles that keep it.
    """
    packages = ("ort_sdk", *own)
    text = _left_by(work, packages) and _left_by(work, packages)
    assert not text, f"{what} left something for the garbage collector:\n{text}"


def still_there(*kinds: type) -> list[Any]:
    """Objects of some classes that the work of ``assert_no_garbage`` made and that are not free yet."""
    return [value for value in gc.get_objects() if _is(value, kinds)]


def _left_by(work: Callable[[], object], own: Sequence[str]) -> str:
    with collected() as garbage:
        work()
    return _complaint(garbage, own)


@contextlib.contextmanager
def collected() -> Iterator[list[Any]]:
    """What is made inside and left for the garbage collector, which is off meanwhile; the list is filled at the end."""
    was_enabled, before = gc.isenabled(), gc.get_debug()
    garbage: list[Any] = []
    gc.disable()
    gc.freeze()
    try:
        yield garbage
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        garbage += gc.garbage
    finally:
        gc.set_debug(before)
        gc.garbage.clear()
        gc.unfreeze()
        if was_enabled:
            gc.enable()


def _complaint(garbage: Sequence[Any], own: Sequence[str]) -> str:
    """Why what the collector found is not to be left to it; empty if it may."""
    left = sorted({_name(each) for each in garbage if _counts(each, own)})
    if not left:
        return ""
    cycles = shortest_cycles(garbage)
    lines = [f"{len(left)} kinds of object: {', '.join(left[:12])}{', …' if len(left) > 12 else ''}"]
    lines += [f"cycle: {cycle}" for cycle in cycles[:MAX_SHOWN]]
    return "\n".join(lines + ([f"… and {len(cycles) - MAX_SHOWN} more"] if len(cycles) > MAX_SHOWN else []))


def _counts(value: Any, own: Sequence[str]) -> bool:
    """Whether an object is ours, or holds a large array. Classes are made once."""
    if _is(value, type):
        return False
    is_large = (_is(held, np.ndarray) and held.nbytes >= LARGE_BYTES for held in gc.get_referents(value))
    return _module(value).startswith(tuple(own)) or any(is_large)


def is_through_ours(cycle: Sequence[Any]) -> bool:
    """Whether objects that reach each other are a cycle of our making: one of them is ours, and no variable of others' calls.

    Plugin managers count as pluggy's: a process has one, and only tests make others.
    """
    if any(_is(value, type) or (_is(value, types.FrameType) and _is_of_tests(_module(value))) for value in cycle):
        return False
    modules = {_module(value) for value in cycle}
    return PLUGGY_MANAGERS.isdisjoint(modules) and any(module.startswith("ort_sdk") for module in modules)


def _is_of_tests(module: str) -> bool:
    return not module.startswith("ort_sdk") or module.startswith("ort_sdk.testing")


def _is(value: Any, kinds: type | tuple[type, ...]) -> bool:
    """What ``isinstance`` says, but of a weak proxy itself rather than of what it stands for, which may be gone."""
    return issubclass(type(value), kinds)


def _module(value: Any) -> str:
    if _is(value, types.FrameType):
        name = value.f_globals.get("__name__")
    elif _is(value, types.MethodType):
        name = value.__func__.__module__
    else:
        name = value.__module__ if _is(value, (types.FunctionType, type)) else type(value).__module__
    return str(name)


def shortest_cycles(objects: Sequence[Any], counts: Callable[[Sequence[Any]], bool] = bool) -> list[str]:
    """The shortest cycle in each set of objects that reach each other, shortest first, one of each text.

    Args:
        objects: what to look at.
        counts: whether a set of objects that reach each other is of interest.
    """
    known = {id(value): value for value in objects}
    edges = {key: [id(held) for held in gc.get_referents(value) if id(held) in known] for key, value in known.items()}
    found: dict[str, int] = {}
    for component in _components(edges):
        members = set(component)
        is_cycle = len(component) > 1 or component[0] in edges[component[0]]
        if not is_cycle or not counts([known[key] for key in component]):
            continue
        cycle = min((_cycle_from(start, edges, members) for start in component[:64]), key=len)
        found.setdefault(_shown([known[key] for key in cycle]), len(cycle))
    return sorted(found, key=found.__getitem__)


def _components(edges: Mapping[int, Sequence[int]]) -> Iterator[list[int]]:
    """Strongly connected components (Tarjan's algorithm, without recursion)."""
    order: dict[int, int] = {}
    low: dict[int, int] = {}
    open_nodes: list[int] = []
    is_open: set[int] = set()
    for root in edges:
        if root in order:
            continue
        work = [(root, iter(edges[root]))]
        order[root] = low[root] = len(order)
        open_nodes.append(root)
        is_open.add(root)
        while work:
            node, successors = work[-1]
            for successor in successors:
                if successor not in order:
                    order[successor] = low[successor] = len(order)
                    open_nodes.append(successor)
                    is_open.add(successor)
                    work.append((successor, iter(edges[successor])))
                    break
                if successor in is_open:
                    low[node] = min(low[node], order[successor])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == order[node]:
                    start = open_nodes.index(node)
                    component = open_nodes[start:]
                    del open_nodes[start:]
                    is_open.difference_update(component)
                    yield component


def _cycle_from(start: int, edges: Mapping[int, Sequence[int]], members: set[int]) -> list[int]:
    """The shortest way from an object back to itself, within a component."""
    came: dict[int, int] = {}
    waiting = deque([start])
    while waiting:
        node = waiting.popleft()
        for successor in edges[node]:
            if successor == start:
                path = [node]
                while path[-1] != start:
                    path.append(came[path[-1]])
                return path[::-1]
            if successor in members and successor not in came:
                came[successor] = node
                waiting.append(successor)
    raise AssertionError("no way back within a component")


def _shown(cycle: Sequence[Any]) -> str:
    """A cycle as text, from its first name in order, so that equal cycles read the same."""
    names = [_name(value) + _reference(value, cycle[(number + 1) % len(cycle)]) for number, value in enumerate(cycle)]
    first = names.index(min(names))
    return " → ".join([*names[first:], *names[:first], names[first].split(".", 1)[0] if len(names) == 1 else "…"])


def _name(value: Any) -> str:
    if _is(value, types.FrameType):
        return f"frame {value.f_code.co_qualname} ({value.f_globals.get('__name__')}:{value.f_lineno})"
    if _is(value, (types.FunctionType, types.MethodType)):
        return f"{type(value).__name__} {value.__module__}.{value.__qualname__}"
    if _is(value, type):
        return f"class {value.__module__}.{value.__qualname__}"
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _reference(value: Any, held: Any) -> str:
    """By which attribute or key an object holds another, where that can be seen."""
    if _is(value, dict):
        return next((f"[{_shown_key(key)}]" for key, each in value.items() if each is held), "")
    if _is(value, types.FrameType):
        return next((f" local {name}" for name, each in value.f_locals.items() if each is held), "")
    slots = [name for kind in type(value).__mro__ for name in _slots(kind)]
    return next((f" .{name}" for name in slots if _attribute(value, name) is held), "")


def _shown_key(key: Any) -> str:
    """A key without the addresses that some types show, so that equal cycles read the same."""
    return f"{key!r:.40}" if _is(key, (str, int)) else type(key).__qualname__


def _slots(kind: type) -> Sequence[str]:
    slots = kind.__dict__.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _attribute(value: Any, name: str) -> Any:
    try:
        return object.__getattribute__(value, name)
    except AttributeError:
        return None
