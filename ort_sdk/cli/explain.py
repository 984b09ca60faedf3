"""``ort-sdk explain``: on which provider each node runs, why not on those asked before, and what its runs come to."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from typing import Any

from ort_sdk.api import NoKernelError
from ort_sdk.graph import Model
from ort_sdk.kernels import ResolvedTypes
from ort_sdk.partition import COPY_DOMAIN, Placement

from .arguments import LEVELS, add_model_argument, add_nodes_argument, add_provider_arguments, provider_entries
from .exit_codes import ExitCode
from .measured_model import add_feed_arguments, measured_feeds
from .node_types import describe_types, resolve_types, session_lookups, sources_text, types_text
from .output import print_json, print_table, print_text, progress

__all__ = ["add_arguments", "run"]

_Placed = tuple[Sequence[Placement], Sequence[ResolvedTypes], Counter[str], Sequence[str]]

NOWHERE = "(no provider)"
MAX_NAMES = 5
"""Values that are named where the nodes are not listed."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    add_model_argument(parser)
    add_nodes_argument(parser)
    parser.add_argument("--program", action="store_true", help="also run the model, and show what replays runs with these shapes")
    add_feed_arguments(parser)
    add_provider_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the command; ``NO_KERNEL`` if a node has no kernel."""
    from .building import read_model

    entries = provider_entries(arguments)
    model = read_model(arguments.model, lambda: entries)
    with progress(f"placing {arguments.model}"):
        placements, types, copies, kept_in_float = _placed(arguments.model, entries, LEVELS[arguments.level])
    summary = _summary(placements, copies) | {"kept_in_float": list(kept_in_float)}
    program: dict[str, Any] = {}
    if arguments.program and not summary["unplaced"]:
        with progress(f"running {arguments.model}"):
            program = {"program": _program(arguments, entries, measured_feeds(arguments, model))}
    if arguments.json:
        print_json(summary | program | {"nodes": [_row(*row) for row in zip(placements, types, strict=True)]})
    else:
        _print(placements, types, summary, by_node=arguments.nodes)
        if program:
            print_text(_program_text(program["program"]))
    return ExitCode.NO_KERNEL if summary["unplaced"] else ExitCode.OK


def _placed(path: str, entries: Sequence[Any], level: int) -> _Placed:
    """Placement and type strings of every node, the copies, the half values kept in float; also when a node has no kernel."""
    from ort_sdk.session.build import build_session
    from ort_sdk.session.environment import environment
    from ort_sdk.session.options.build_settings import BuildSettings

    loaded: list[Model] = []

    def observe(stage: str, product: Any) -> None:
        if stage == "load":
            loaded.append(product)

    providers = environment().open_providers(entries, None, {})
    settings = BuildSettings(config={}, optimization_level=level, fixes_defaults=level > 0)
    try:
        state = build_session(path, settings, providers, observe)
    except NoKernelError:
        model = loaded[0]
        left = [node for graph in model.graph.walk() for node in graph.nodes]
        return _refused(model, providers), resolve_types(model, model.graph, left, providers), Counter(), ()
    nodes = [node for graph in state.model.graph.walk() for node in graph.nodes]
    copies = Counter(node.op_type for node in nodes if node.domain == COPY_DOMAIN)
    assignment = state.assignment
    types = resolve_types(state.model, assignment.graph, assignment.nodes, providers)
    return assignment.placements, types, copies, assignment.kept_in_float


def _program(arguments: argparse.Namespace, entries: Sequence[Any], feeds: dict[str, Any]) -> dict[str, Any] | None:
    """What replays runs on these feeds; None if nothing does."""
    from .building import BuiltModel, build_state

    row = BuiltModel(build_state(arguments.model, entries, LEVELS[arguments.level])).settle(feeds, 1)
    if row is None:
        return None
    return {
        "steps": len(row.operators) - sum(len(group) - 1 for group in row.fused),
        "operators": len(row.operators),
        "bound": row.bound_count,
        "fused": dict(Counter("+".join(group) for group in row.fused).most_common()),
        "layout_copies": row.layout_copies,
        "kept_bytes": row.kept_bytes,
    }


def _program_text(program: dict[str, Any] | None) -> str:
    if program is None:
        return "\nruns with these shapes go step by step: no program came of them"
    fused = ", ".join(f"{count} x {names}" for names, count in program["fused"].items()) or "none"
    return (
        f"\nruns with these shapes are replayed by a program of {program['steps']} steps: {program['operators']} operators do "
        f"not follow from the shapes, {program['bound']} of them write into its own buffers\n"
        f"fused: {fused}\n"
        f"values copied into another layout in each run: {program['layout_copies']}"
    )


def _refused(model: Model, providers: Sequence[Any]) -> list[Placement]:
    """Placements of a model that partitioning gave up, which left the providers it found on the nodes."""
    found = []
    for graph in model.graph.walk():
        lookups = session_lookups(model, graph, providers)
        for node in graph.nodes:
            names = list(lookups)
            asked = names[: names.index(node.execution_provider)] if node.execution_provider else names
            rejections = {name: tuple(lookups[name].rejections(node)) for name in asked}
            found.append(
                Placement(
                    graph.name, node.name, node.domain, node.op_type, node.since_version, node.execution_provider, rejections
                )
            )
    return found


def _summary(placements: Sequence[Placement], copies: Counter[str]) -> dict[str, Any]:
    counts = Counter(placement.provider for placement in placements if placement.provider)
    return {
        "node_count": len(placements),
        "providers": dict(counts.most_common()),
        "unplaced": sum(not placement.provider for placement in placements),
        "copies": dict(copies),
    }


def _row(placement: Placement, types: ResolvedTypes) -> dict[str, Any]:
    return {
        "graph": placement.graph,
        "node": placement.node,
        "operator": _operator(placement),
        "provider": placement.provider,
        "rejections": {provider: list(reasons) for provider, reasons in placement.rejections.items()},
    } | describe_types(types)


def _operator(placement: Placement) -> str:
    domain = f"{placement.domain}." if placement.domain else ""
    return f"{domain}{placement.op_type}-{placement.since_version}"


def _print(placements: Sequence[Placement], types: Sequence[ResolvedTypes], summary: dict[str, Any], *, by_node: bool) -> None:
    if by_node:
        rows = [
            (row.node, _operator(row), row.provider or NOWHERE, types_text(found), found.source or "")
            for row, found in zip(placements, types, strict=True)
        ]
        print_table(["node", "operator", "provider", "types", "type strings by"], rows)
    else:
        counts = Counter((_operator(row), row.provider or NOWHERE) for row in placements)
        print_table(["operator", "provider", "nodes"], [(*key, count) for key, count in sorted(counts.items())], right=(2,))
    _print_rejections(placements, by_node=by_node)
    placed = ", ".join(f"{count} on {name}" for name, count in summary["providers"].items())
    missing = f", {summary['unplaced']} on no provider" if summary["unplaced"] else ""
    copies = ", ".join(f"{count} {name}" for name, count in summary["copies"].items()) or "none"
    print_text(f"\n{summary['node_count']} nodes: {placed or 'none placed'}{missing}; copies inserted: {copies}")
    if sources := sources_text(types):
        print_text(sources)
    kept = summary["kept_in_float"]
    if kept:
        names = ", ".join(kept[:MAX_NAMES]) + (", ..." if len(kept) > MAX_NAMES else "")
        print_text(
            f"float16 and bfloat16 values kept in float between operators that compute in it: {len(kept)} ({names}); "
            "where one is read in its own type, a Cast is inserted"
        )


def _print_rejections(placements: Sequence[Placement], *, by_node: bool) -> None:
    rows: Counter[tuple[str, str, str]] = Counter()
    for placement in placements:
        label = f"{_operator(placement)} '{placement.node}'" if by_node else _operator(placement)
        for provider, reasons in placement.rejections.items():
            rows.update((label, provider, reason) for reason in reasons)
    if rows:
        print_text("\nwhy not elsewhere:")
    previous = ("", "")
    for (label, provider, reason), count in sorted(rows.items()):
        if (label, provider) != previous:
            print_text(f"  {label}, {provider}:")
            previous = (label, provider)
        print_text(f"    {reason}{f' ({count} times)' if count > 1 else ''}")
