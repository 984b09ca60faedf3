"""What the host itself costs per run and per node: models of tiny nodes on a provider whose kernels do nothing.

    python -P benchmarks/bench_dispatch.py [--nodes 200 2000] [--runs 200] [--repetitions 15] [--check]

`replay, bound` is a program whose kernels are bound to buffers, `replay` a program that calls kernels with their inputs,
`step by step` a plan run with programs turned off. A run is `session.run` with one array in and one out. Figures are medians
over the repetitions, each the mean of `--runs` calls; the modes take turns. The per-node figure is the slope between the
smallest and the largest model, so that what a run costs by itself is not in it.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import ort_sdk as ort
from ort_sdk.api import Allocator, ExecutionProvider, OrtMemoryInfo, hookimpl
from ort_sdk.plugins import plugin_manager
from ort_sdk.testing.null_provider import NullProvider

sys.path.append(str(Path(__file__).parent))
import models

BOUND_US = 0.3
"""µs per node that replay of bound kernels may cost."""
REPLAY_BOUND, REPLAY, STEPS = "replay, bound", "replay", "step by step"


class UnboundNullProvider(NullProvider):
    """Cannot preallocate, so that no kernel of it is bound."""

    name = "UnboundNullExecutionProvider"

    @hookimpl
    def create_allocator(self, execution_provider: ExecutionProvider, memory_info: OrtMemoryInfo) -> Allocator | None:
        return None


def session_of(model: bytes, provider: str, *, programs: bool) -> Any:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("session.disable_programs", "0" if programs else "1")
    return ort.InferenceSession(model, options, providers=[provider])


def sessions(nodes: int) -> dict[str, Any]:
    model = models.tiny_nodes(nodes)
    return {
        REPLAY_BOUND: session_of(model, NullProvider.name, programs=True),
        REPLAY: session_of(model, UnboundNullProvider.name, programs=True),
        STEPS: session_of(model, NullProvider.name, programs=False),
    }


def run_us(session: Any, feeds: dict[str, Any], runs: int) -> float:
    start = time.perf_counter()
    for _ in range(runs):
        session.run(None, feeds)
    return (time.perf_counter() - start) / runs * 1e6


def measure(sizes: list[int], runs: int, repetitions: int) -> dict[tuple[str, int], float]:
    feeds = {"x": np.ones(4, np.float32)}
    made = {(mode, nodes): session for nodes in sizes for mode, session in sessions(nodes).items()}
    for session in made.values():
        run_us(session, feeds, 3)  # the second run makes the program
    rounds = [{key: run_us(session, feeds, runs) for key, session in made.items()} for _ in range(repetitions)]
    return {key: statistics.median(row[key] for row in rounds) for key in made}


def slopes(times: dict[tuple[str, int], float], sizes: list[int]) -> dict[str, float]:
    few, many = min(sizes), max(sizes)
    return {mode: (times[mode, many] - times[mode, few]) / (many - few) for mode in (REPLAY_BOUND, REPLAY, STEPS)}


def main() -> int:
    parser = argparse.ArgumentParser(description="Host overhead per run and per node")
    parser.add_argument("--nodes", type=int, nargs=2, default=[200, 2000], help="nodes of the two models")
    parser.add_argument("--runs", type=int, default=200, help="calls in one repetition")
    parser.add_argument("--repetitions", type=int, default=15)
    parser.add_argument("--check", action="store_true", help=f"exit with 1 above {BOUND_US} µs per node in bound replay")
    arguments = parser.parse_args()
    for provider in (NullProvider, UnboundNullProvider):
        plugin_manager().register(provider)
    times = measure(arguments.nodes, arguments.runs, arguments.repetitions)
    per_node = slopes(times, arguments.nodes)
    print(f"{'mode':<16}" + "".join(f"{f'{nodes} nodes, µs':>18}" for nodes in arguments.nodes) + f"{'µs per node':>14}")
    for mode, slope in per_node.items():
        print(f"{mode:<16}" + "".join(f"{times[mode, nodes]:>18.1f}" for nodes in arguments.nodes) + f"{slope:>14.3f}")
    return int(arguments.check and per_node[REPLAY_BOUND] > BOUND_US)


if __name__ == "__main__":
    sys.exit(main())
