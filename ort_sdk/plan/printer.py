"""A plan as text and as plain values, for people and for JSON."""

from __future__ import annotations

from typing import Any

from .execution_plan import ABSENT, ExecutionPlan, Step

__all__ = ["describe_plan", "format_plan"]


def format_plan(plan: ExecutionPlan) -> str:
    """A plan as text: feeds, constants, numbered steps with the values that end after each, and fetches."""
    lines = [f"plan '{plan.name}': {len(plan.steps)} steps, {len(plan.value_names) - 1} values, {len(plan.constants)} constants"]
    for feed in plan.feeds:
        default = ", has a default" if feed.has_default else ""
        lines.append(f"  feed   {_value(plan, feed.index)} on {feed.device}{default}")
    lines += [f"  {position:4}   {_step_text(plan, step)}" for position, step in enumerate(plan.steps)]
    for fetch in plan.fetches:
        shared = "" if fetch.is_owned else ", shares memory with a feed or a constant"
        lines.append(f"  fetch  {_value(plan, fetch.index)} from {fetch.device}{shared}")
    return "\n".join(lines)


def describe_plan(plan: ExecutionPlan) -> dict[str, Any]:
    """The same as values that JSON can hold. Values are named by index; ``values`` has their names."""
    return {
        "name": plan.name,
        "values": list(plan.value_names),
        "constants": sorted(plan.constants),
        "feeds": [
            {"name": feed.name, "index": feed.index, "device": str(feed.device), "has_default": feed.has_default}
            for feed in plan.feeds
        ],
        "steps": [_step(step) for step in plan.steps],
        "fetches": [
            {"name": fetch.name, "index": fetch.index, "device": str(fetch.device), "is_owned": fetch.is_owned}
            for fetch in plan.fetches
        ],
    }


def _value(plan: ExecutionPlan, index: int) -> str:
    return "_" if index == ABSENT else f"%{index} {plan.value_names[index]}"


def _step_text(plan: ExecutionPlan, step: Step) -> str:
    made = ", ".join(_value(plan, index) for index in step.outputs)
    read = ", ".join("_" if index == ABSENT else f"%{index}" for index in step.inputs)
    operator = f"{step.domain}.{step.op_type}" if step.domain else step.op_type
    where = f"{step.provider or 'copy'} on {step.device}"
    ends = f", ends {' '.join(f'%{index}' for index in step.frees)}" if step.frees else ""
    return f"{made} = {operator}({read})  {where}{ends}"


def _step(step: Step) -> dict[str, Any]:
    return {
        "node": step.node,
        "domain": step.domain,
        "op_type": step.op_type,
        "provider": step.provider,
        "device": str(step.device),
        "inputs": list(step.inputs),
        "outputs": list(step.outputs),
        "frees": list(step.frees),
    }
