"""The type strings of placed nodes: by which table look-up resolved them, and to which types."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ort_sdk.graph import Graph, Model, Node
from ort_sdk.kernels import RegistryLookup, ResolvedTypes
from ort_sdk.session.session_providers import SessionProvider, type_str_resolvers

__all__ = ["describe_types", "resolve_types", "sources_text", "types_text"]

SCHEMAS = "operator schemas"


def resolve_types(model: Model, graph: Graph, nodes: Sequence[Node], providers: Sequence[SessionProvider]) -> list[ResolvedTypes]:
    """What look-up made of some nodes.

    Args:
        model: says what its file describes.
        graph: the graph that the nodes, or bodies with them, are in.
        nodes: each is seen as its provider sees it, or as the first one does if it has none.
        providers: the session's.
    """
    homes = {id(node): inner for inner in graph.walk() for node in inner.nodes}
    registries = {provider.name: provider.registry for provider in providers}
    resolvers = type_str_resolvers(model, providers)
    found = []
    for node in nodes:
        name = node.execution_provider or providers[0].name
        lookup = RegistryLookup(registries[name], homes[id(node)], model.opset_imports, resolvers[name])
        found.append(lookup.resolved_types(node))
    return found


def describe_types(resolved: ResolvedTypes) -> dict[str, Any]:
    """For JSON."""
    strings = {
        name: {"arguments": [f"{kind} {index}" for kind, index in arguments], "type": resolved.types[name]}
        for name, arguments in resolved.arguments.items()
    }
    return {"resolved_by": resolved.source, "type_strings": strings}


def types_text(resolved: ResolvedTypes) -> str:
    """``T: tensor(float), axes: tensor(int64)``; type strings without an argument are left out."""
    return ", ".join(f"{name}: {found}" for name, found in resolved.types.items() if found is not None)


def sources_text(rows: Iterable[ResolvedTypes]) -> str:
    """How many nodes each table described; empty if all are described by schemas, as usual."""
    counts: Mapping[str, int] = Counter(row.source or "nothing, so that any types match" for row in rows)
    if set(counts) <= {SCHEMAS}:
        return ""
    return "type strings described by " + ", ".join(f"{source} ({count} nodes)" for source, count in counts.items())
