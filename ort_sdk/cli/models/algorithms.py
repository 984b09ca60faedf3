"""Names of the algorithms that nodes are computed with: kernels that choose by shape know them once they have run."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ort_sdk.api import OrtSdkError
from ort_sdk.cli.inputs.measured_model import measured_feeds
from ort_sdk.cli.output import print_notice
from ort_sdk.graph import Model, Node
from ort_sdk.plan import Step
from ort_sdk.run import RunControl

from .building import BuiltModel

__all__ = ["algorithms_of", "feeds_of_known_shapes", "name_nodes"]


def name_nodes(nodes: Sequence[Node]) -> None:
    """Give nodes without a name, or with that of another, the name of an output: it identifies them."""
    taken: set[str] = set()
    for node in nodes:
        if not node.name or node.name in taken:
            node.name = _unused(next(iter(filter(None, node.outputs)), node.op_type), taken)
        taken.add(node.name)


def _unused(name: str, taken: Collection[str]) -> str:
    numbered = (f"{name}_{number}" for number in itertools.count(2))
    return next(each for each in itertools.chain([name], numbered) if each not in taken)


def feeds_of_known_shapes(arguments: argparse.Namespace, model: Model) -> dict[str, Any] | None:
    """Feeds from files, and made-up ones where all sizes are known or given with ``--dim``; None if a size is not."""
    given = {text.partition("=")[0] for text in arguments.dim}
    feeds = measured_feeds(arguments, model, makes_up=lambda argument: _has_known_shape(argument.shape, given))
    wanted = {argument.name for argument in model.graph.inputs} - model.graph.initializers.keys()
    return feeds if wanted <= feeds.keys() else None


def _has_known_shape(shape: Sequence[int | str | None] | None, given: Collection[str]) -> bool:
    return shape is not None and all(isinstance(dim, int) or dim in given for dim in shape)


def algorithms_of(built: BuiltModel, feeds: Mapping[str, Any] | None) -> dict[str, str | None]:
    """Node → name of its algorithm, where its kernel names one.

    Args:
        built: the model.
        feeds: of one run, step by step, bodies included; None to ask kernels that have not run.
    """
    found = {step.node: step.algorithm for step in built.state.plan.steps}

    def observe(step: Step, start_ns: int, duration_ns: int) -> None:
        del start_ns, duration_ns
        found[step.node] = step.algorithm

    if feeds is not None:
        try:
            built.run(feeds, RunControl(observer=observe))
        except OrtSdkError as error:  # which made-up values may well cause
            print_notice(f"algorithms are those known when a run on made-up or given inputs failed: {error.text}")
    return found
