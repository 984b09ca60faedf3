"""The kernels and the memory of a built model, as plain values and as text."""

from __future__ import annotations

from typing import Any

from ort_sdk.cli.output import table_lines
from ort_sdk.graph import Graph
from ort_sdk.graph.printer import value_text
from ort_sdk.plan import ABSENT, ExecutionPlan
from ort_sdk.session.stages.state import SessionState

__all__ = ["describe_kernels", "describe_memory", "kernels_text", "memory_text"]

_ABILITIES = ("bind", "prepack", "deterministic", "shape_inputs", "contents_from_shapes")


def describe_kernels(state: SessionState) -> list[dict[str, Any]]:
    """One row per node of the main graph, in the order of the run."""
    return [_kernel_row(state, position) for position in range(len(state.plan.steps))]


def kernels_text(state: SessionState) -> str:
    """The same as a table."""
    rows = [
        (row["node"], row["operator"], row["provider"] or "copy", row["versions"], row["kernel"], " ".join(row["abilities"]))
        for row in describe_kernels(state)
    ]
    return "\n".join(table_lines(["node", "operator", "provider", "versions", "kernel", "abilities"], rows))


def _kernel_row(state: SessionState, position: int) -> dict[str, Any]:
    step, node = state.plan.steps[position], state.model.graph.nodes[position]
    found = state.assignment.kernel_for(node)
    return {
        "node": step.node,
        "operator": f"{node.domain}.{node.op_type}" if node.domain else node.op_type,
        "since_version": node.since_version,
        "provider": step.provider,
        "versions": "" if found is None else found.kernel_def.version_text(),
        "types": {} if found is None else {name: list(types) for name, types in found.kernel_def.type_constraints.items()},
        "kernel": type(step.kernel).__name__,
        "abilities": [name for name in _ABILITIES if _has(step.kernel, name)],
    }


def _has(kernel: Any, ability: str) -> bool:
    value = getattr(kernel, ability, None)
    return value not in {None, False, ()}


def describe_memory(state: SessionState) -> dict[str, Any]:
    """Weights with their devices, and for each value of a run where it lives and from which step to which."""
    graph = state.model.graph
    placed: dict[str, set[str]] = {}
    for index, (_, device) in state.plan.constants.sources().items():
        placed.setdefault(state.plan.value_names[index], set()).add(str(device))
    weights = [
        {
            "name": name,
            "type": tensor.element_type.onnx_name,
            "shape": list(tensor.shape),
            "size_bytes": tensor.nbytes,
            "devices": sorted(placed.get(name, ())),
        }
        for name, tensor in graph.initializers.items()
    ]
    values = _lifetimes(state.plan, graph)
    return {
        "weights": weights,
        "weights_bytes": sum(row["size_bytes"] for row in weights),
        "values": values,
        "most_values_at_once": max(
            (sum(row["from"] <= step <= row["to"] for row in values) for step in _steps(state)), default=0
        ),
    }


def memory_text(state: SessionState) -> str:
    """The same as tables."""
    memory = describe_memory(state)
    weights = [
        (row["name"], f"{row['type']}{row['shape']}", f"{row['size_bytes']:,}", " ".join(row["devices"]))
        for row in memory["weights"]
    ]
    values = [(row["name"], row["value"], row["device"], row["from"], row["to"]) for row in memory["values"]]
    return "\n".join(
        [
            f"weights: {memory['weights_bytes']:,} bytes",
            *(f"  {line}" for line in table_lines(["name", "value", "bytes", "devices"], weights, right=(2,))),
            f"values made by a run: {len(values)}, at most {memory['most_values_at_once']} at once",
            *(f"  {line}" for line in table_lines(["name", "value", "device", "from", "to"], values, right=(3, 4))),
        ]
    )


def _steps(state: SessionState) -> range:
    return range(len(state.plan.steps))


def _lifetimes(plan: ExecutionPlan, graph: Graph) -> list[dict[str, Any]]:
    ends = {index: position for position, step in enumerate(plan.steps) for index in step.frees}
    return [
        {
            "name": plan.value_names[index],
            "value": value_text(graph.node_arg(plan.value_names[index])),
            "device": str(step.device),
            "from": position,
            "to": ends.get(index, len(plan.steps) - 1),
        }
        for position, step in enumerate(plan.steps)
        for index in step.outputs
        if index != ABSENT
    ]
