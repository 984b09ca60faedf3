"""``ort-sdk inspect``: a model, or the product of one stage of session creation."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable
from typing import Any

from ort_sdk.api import OrtSdkError
from ort_sdk.cli.arguments import LEVELS, add_model_argument, add_provider_arguments, provider_entries
from ort_sdk.cli.exit_codes import ExitCode
from ort_sdk.cli.output import print_json, print_text, progress
from ort_sdk.graph import Graph, Model

__all__ = ["add_arguments", "run"]

STAGES = ("graph", "optimized", "partition", "kernels", "memory", "plan")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    add_model_argument(parser)
    parser.add_argument(
        "--stage",
        choices=STAGES,
        help="graph: as loaded; optimized: after all passes; partition: with each node's provider; kernels: each node's kernel; "
        "memory: weights and lifetimes of values; plan: the steps of a run. Default: a summary of the file",
    )
    add_provider_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from ort_sdk.cli.models.building import read_model

    with progress(f"loading {arguments.model}"):
        model = read_model(arguments.model, lambda: provider_entries(arguments))
        describe, text = _summary(model) if arguments.stage is None else _stage(arguments, model)
    if arguments.json:
        print_json(describe())
    else:
        print_text(text())
    return ExitCode.OK


Printers = tuple[Callable[[], Any], Callable[[], str]]
"""Makes the JSON value; makes the text."""


def _summary(model: Model) -> Printers:
    summary = _describe_model(model)
    return lambda: summary, lambda: _summary_text(model, summary)


def _describe_model(model: Model) -> dict[str, Any]:
    from ort_sdk.graph.printer import describe_graph

    described = describe_graph(model.graph)
    graphs = list(model.graph.walk())
    operators = Counter(_operator(node.domain, node.op_type) for graph in graphs for node in graph.nodes)
    return {
        "ir_version": model.ir_version,
        "opset_imports": {domain or "ai.onnx": version for domain, version in model.opset_imports.items()},
        "producer": f"{model.producer_name} {model.producer_version}".strip(),
        "domain": model.domain,
        "model_version": model.model_version,
        "doc_string": model.doc_string,
        "inputs": described["inputs"],
        "outputs": described["outputs"],
        "operators": dict(sorted(operators.items(), key=lambda item: (-item[1], item[0]))),
        "functions": ["::".join(filter(None, (domain, name, overload))) for domain, name, overload in model.functions],
        "weights": _weights(graphs),
        "metadata": dict(model.metadata),
    }


def _weights(graphs: list[Graph]) -> dict[str, dict[str, int]]:
    """Element type → number of tensors and their bytes."""
    found: dict[str, dict[str, int]] = {}
    for graph in graphs:
        for tensor in graph.initializers.values():
            row = found.setdefault(tensor.element_type.onnx_name, {"tensors": 0, "size_bytes": 0})
            row["tensors"] += 1
            row["size_bytes"] += tensor.nbytes
    return dict(sorted(found.items()))


def _summary_text(model: Model, summary: dict[str, Any]) -> str:
    from ort_sdk.graph.printer import value_text

    opsets = ", ".join(f"{domain} {version}" for domain, version in summary["opset_imports"].items())
    lines = [f"IR version {summary['ir_version']}, operator sets: {opsets}"]
    lines += [f"producer: {summary['producer']}"] if summary["producer"] else []
    lines += [f"{key}: {summary[key]}" for key in ("domain", "model_version", "doc_string") if summary[key]]
    for title, arguments in (("inputs", model.graph.inputs), ("outputs", model.graph.outputs)):
        lines += [f"{title}:", *(f"  {argument.name}: {value_text(argument)}" for argument in arguments)]
    nodes = sum(summary["operators"].values())
    lines += [f"nodes: {nodes}", *(f"  {count:5}  {name}" for name, count in summary["operators"].items())]
    lines += [f"functions: {', '.join(summary['functions'])}"] if summary["functions"] else []
    lines += ["weights:"] if summary["weights"] else ["weights: none"]
    lines += [f"  {kind}: {row['tensors']} tensors, {row['size_bytes']:,} bytes" for kind, row in summary["weights"].items()]
    lines += ["metadata:"] if summary["metadata"] else []
    lines += [f"  {key}: {value}" for key, value in summary["metadata"].items()]
    return "\n".join(lines)


def _operator(domain: str, op_type: str) -> str:
    return f"{domain}.{op_type}" if domain else op_type


class _Reached(Exception):
    pass


def _stage(arguments: argparse.Namespace, model: Model) -> Printers:
    from ort_sdk.graph.printer import describe_graph, format_graph

    if arguments.stage == "graph":
        from ort_sdk.graph.type_inference import infer_types

        infer_types(model.graph, model.schemas)
        return lambda: describe_graph(model.graph), lambda: format_graph(model.graph)
    if arguments.stage in {"optimized", "partition"}:
        graph = _partitioned(arguments)
        if arguments.stage == "optimized":
            for inner in graph.walk():
                for node in inner.nodes:
                    node.execution_provider = ""
        return lambda: describe_graph(graph), lambda: format_graph(graph)
    return _built(arguments)


def _partitioned(arguments: argparse.Namespace) -> Graph:
    """The graph when it is partitioned, before copies are inserted and weights are placed."""
    from ort_sdk.cli.models.building import build_state

    reached: list[Graph] = []

    def observe(stage: str, product: Any) -> None:
        if stage == "partition":
            reached.append(product.graph)
            raise _Reached

    try:
        build_state(arguments.model, provider_entries(arguments), LEVELS[arguments.level], observe)
    except _Reached:
        return reached[0]
    raise OrtSdkError("session creation ended without a stage 'partition'")


def _built(arguments: argparse.Namespace) -> Printers:
    from ort_sdk.cli.models import stages
    from ort_sdk.cli.models.building import build_state
    from ort_sdk.plan.printer import describe_plan, format_plan

    state = build_state(arguments.model, provider_entries(arguments), LEVELS[arguments.level])
    if arguments.stage == "plan":
        return lambda: describe_plan(state.plan), lambda: format_plan(state.plan)
    if arguments.stage == "kernels":
        return lambda: stages.describe_kernels(state), lambda: stages.kernels_text(state)
    return lambda: stages.describe_memory(state), lambda: stages.memory_text(state)
