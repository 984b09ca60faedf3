"""``ort-sdk explain``: on which provider each node runs and by which algorithm, why not elsewhere, and what its runs come to."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ort_sdk.api import NoKernelError
from ort_sdk.api.data_classes import dataclass
from ort_sdk.cli.arguments import LEVELS, add_model_argument, add_nodes_argument, add_provider_arguments, provider_entries
from ort_sdk.cli.exit_codes import ExitCode
from ort_sdk.cli.inputs.measured_model import add_feed_arguments, measured_feeds
from ort_sdk.cli.models.node_types import describe_types, resolve_types, session_lookups, sources_text, types_text
from ort_sdk.cli.output import print_json, print_table, print_text, progress
from ort_sdk.graph import Model
from ort_sdk.kernels import ResolvedTypes
from ort_sdk.partition import COPY_DOMAIN, Placement

if TYPE_CHECKING:
    from ort_sdk.cli.models.building import BuiltModel
    from ort_sdk.run import ProgramRow

__all__ = ["add_arguments", "run"]

NOWHERE = "(no provider)"
MAX_NAMES = 5
"""Values that are named where the nodes are not listed."""


@dataclass(frozen=True, slots=True)
class _Placed:
    """A model taken as far as it goes."""

    placements: Sequence[Placement]
    types: Sequence[ResolvedTypes]
    """Of each node, in the order of the placements."""
    built: BuiltModel | None = None
    """None if a node has no kernel."""

    @property
    def kept_in_float(self) -> Sequence[str]:
        """float16 and bfloat16 values."""
        return () if self.built is None else self.built.state.assignment.kept_in_float

    @property
    def copies(self) -> Counter[str]:
        """Operators of the copies between devices."""
        graphs = () if self.built is None else self.built.state.model.graph.walk()
        return Counter(node.op_type for graph in graphs for node in graph.nodes if node.domain == COPY_DOMAIN)

    def of_nodes(self, algorithms: Mapping[str, str | None]) -> Sequence[str | None]:
        """What is known of each node by its name, in the order of the placements."""
        if self.built is None:
            return [None] * len(self.placements)
        return [algorithms.get(node.name) for node in self.built.state.assignment.nodes]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    add_model_argument(parser)
    add_nodes_argument(parser)
    parser.add_argument("--program", action="store_true", help="also run the model, and show what replays runs with these shapes")
    parser.add_argument(
        "--no-run",
        action="store_true",
        help="do not run the model to learn its nodes' algorithms; else it runs once if nodes are listed (--nodes, --json) and "
        "all sizes of its inputs are known, or given with --input or --dim",
    )
    add_feed_arguments(parser)
    add_provider_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the command; ``NO_KERNEL`` if a node has no kernel."""
    from ort_sdk.cli.models.algorithms import algorithms_of
    from ort_sdk.cli.models.building import read_model

    entries = provider_entries(arguments)
    model = read_model(arguments.model, lambda: entries)
    feeds = _feeds(arguments, model)
    # A default that is fed is no constant.
    feeds_default = not model.graph.initializers.keys().isdisjoint(feeds or ())
    with progress(f"placing {arguments.model}"):
        placed = _placed(arguments.model, entries, LEVELS[arguments.level], fixes_defaults=not feeds_default)
    summary = _summary(placed)
    algorithms: dict[str, str | None] = {}
    program: dict[str, Any] = {}
    if placed.built is not None:
        with progress(f"running {arguments.model}"):
            algorithms |= algorithms_of(placed.built, feeds if _lists_nodes(arguments) else None)
            if arguments.program:
                row = placed.built.settle(feeds or {}, 1)
                program = {"program": None if row is None else _program(row)}
                algorithms |= {} if row is None else row.algorithms
    if arguments.json:
        rows = zip(placed.placements, placed.types, placed.of_nodes(algorithms), strict=True)
        print_json(summary | program | {"nodes": [_row(*row) for row in rows]})
    else:
        _print(placed, summary, placed.of_nodes(algorithms), by_node=arguments.nodes)
        if arguments.nodes and feeds is None and placed.built is not None:
            print_text("algorithms are those known before a run: --dim NAME=N or --input gives the sizes for one")
        if program:
            print_text(_program_text(program["program"]))
    return ExitCode.NO_KERNEL if summary["unplaced"] else ExitCode.OK


def _lists_nodes(arguments: argparse.Namespace) -> bool:
    return bool(arguments.nodes or arguments.json)


def _feeds(arguments: argparse.Namespace, model: Model) -> dict[str, Any] | None:
    """Feeds of the runs that are asked for; None if the model is not run."""
    from ort_sdk.cli.models.algorithms import feeds_of_known_shapes

    if arguments.program:
        return measured_feeds(arguments, model)
    return feeds_of_known_shapes(arguments, model) if _lists_nodes(arguments) and not arguments.no_run else None


def _placed(path: str, entries: Sequence[Any], level: int, *, fixes_defaults: bool) -> _Placed:
    """The model with all nodes on providers; or what is known of one that has a node without a kernel."""
    from ort_sdk.cli.models.algorithms import name_nodes
    from ort_sdk.cli.models.building import BuiltModel
    from ort_sdk.session.build import build_session
    from ort_sdk.session.environment import environment
    from ort_sdk.session.options.build_settings import BuildSettings

    loaded: list[Model] = []

    def observe(stage: str, product: Any) -> None:
        if stage == "load":
            loaded.append(product)
        elif stage == "partition":
            name_nodes(product.nodes)

    providers = environment().open_providers(entries, None, {})
    settings = BuildSettings(config={}, optimization_level=level, fixes_defaults=level > 0 and fixes_defaults)
    try:
        state = build_session(path, settings, providers, observe)
    except NoKernelError:
        model = loaded[0]
        left = [node for graph in model.graph.walk() for node in graph.nodes]
        return _Placed(_refused(model, providers), resolve_types(model, model.graph, left, providers))
    assignment = state.assignment
    types = resolve_types(state.model, assignment.graph, assignment.nodes, providers)
    return _Placed(assignment.placements, types, BuiltModel(state))


def _program(row: ProgramRow) -> dict[str, Any]:
    """What replays runs."""
    return {
        "steps": len(row.operators) - sum(len(group) - 1 for group in row.fused),
        "operators": len(row.operators),
        "bound": row.bound_count,
        "fused": dict(Counter("+".join(group) for group in row.fused).most_common()),
        "layout_copies": row.layout_copies,
        "kept_bytes": row.kept_bytes,
        "device_bytes": row.device_bytes,
    }


def _program_text(program: dict[str, Any] | None) -> str:
    if program is None:
        return "\nruns with these shapes go step by step: no program came of them"
    on_devices = f"\nbytes of buffers on devices: {program['device_bytes']}" if program["device_bytes"] else ""
    fused = ", ".join(f"{count} x {names}" for names, count in program["fused"].items()) or "none"
    return (
        f"\nruns with these shapes are replayed by a program of {program['steps']} steps: {program['operators']} operators do "
        f"not follow from the shapes, {program['bound']} of them write into its own buffers\n"
        f"fused: {fused}\n"
        f"values copied into another layout in each run: {program['layout_copies']}{on_devices}"
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


def _summary(placed: _Placed) -> dict[str, Any]:
    counts = Counter(placement.provider for placement in placed.placements if placement.provider)
    return {
        "node_count": len(placed.placements),
        "providers": dict(counts.most_common()),
        "unplaced": sum(not placement.provider for placement in placed.placements),
        "copies": dict(placed.copies),
        "kept_in_float": list(placed.kept_in_float),
    }


def _row(placement: Placement, types: ResolvedTypes, algorithm: str | None) -> dict[str, Any]:
    return {
        "graph": placement.graph,
        "node": placement.node,
        "operator": _operator(placement),
        "provider": placement.provider,
        "algorithm": algorithm,
        "rejections": {provider: list(reasons) for provider, reasons in placement.rejections.items()},
    } | describe_types(types)


def _operator(placement: Placement) -> str:
    domain = f"{placement.domain}." if placement.domain else ""
    return f"{domain}{placement.op_type}-{placement.since_version}"


def _print(placed: _Placed, summary: dict[str, Any], algorithms: Sequence[str | None], *, by_node: bool) -> None:
    placements = placed.placements
    if by_node:
        rows = [
            (row.node, _operator(row), row.provider or NOWHERE, algorithm or "", types_text(types), types.source or "")
            for row, types, algorithm in zip(placements, placed.types, algorithms, strict=True)
        ]
        print_table(["node", "operator", "provider", "algorithm", "types", "type strings by"], rows)
    else:
        counts = Counter((_operator(row), row.provider or NOWHERE) for row in placements)
        print_table(["operator", "provider", "nodes"], [(*key, count) for key, count in sorted(counts.items())], right=(2,))
    _print_rejections(placements, by_node=by_node)
    on_providers = ", ".join(f"{count} on {name}" for name, count in summary["providers"].items())
    missing = f", {summary['unplaced']} on no provider" if summary["unplaced"] else ""
    copies = ", ".join(f"{count} {name}" for name, count in summary["copies"].items()) or "none"
    print_text(f"\n{summary['node_count']} nodes: {on_providers or 'none placed'}{missing}; copies inserted: {copies}")
    if sources := sources_text(placed.types):
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
