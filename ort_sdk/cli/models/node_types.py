"""The type strings of placed nodes: by which table look-up resolved them, and to which types."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ort_sdk.graph import Graph, Model, Node
from ort_sdk.kernels import RegistryLookup, ResolvedTypes
from ort_sdk.session.providers.opened import SessionProvider, type_str_resolvers

__all__ = ["describe_types", "resolve_types", "session_lookups", "sources_text", "types_text"]

SCHEMAS = "operator schemas"


def resolve_types(model: Model, graph: Graph, nodes: Sequence[Node], providers: Sequence[SessionProvider]) -> list[ResolvedTypes]:
    """What look-up made of some nodes.

    Args:
        model: says what its file describes.
        graph: the graph that the nodes, or bodies with them, are in.
        nodes: each is seen as its provider sees it, or as the first one does if it has none.
        providers: the session's.
    """
    found: dict[int, ResolvedTypes] = {}
    for inner in graph.walk():
        lookups = session_lookups(model, inner, providers)
        for node in inner.nodes:
            found[id(node)] = lookups[node.execution_provider or providers[0].name].resolved_types(node)
    return [found[id(node)] for node in nodes]


def session_lookups(model: Model, graph: Graph, providers: Sequence[SessionProvider]) -> dict[str, RegistryLookup]:
    """Provider → its look-up in one graph, as a session on the model makes it."""
    resolvers = type_str_resolvers(model, providers)
    return {
        provider.name: RegistryLookup(provider.registry, graph, model.opset_imports, resolvers[provider.name])
        for provider in providers
    }


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
