"""``ort-sdk profile``: where the time of a run goes, by operator or by node."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import Any

from ort_sdk.api.data_classes import dataclass, field
from ort_sdk.cli.arguments import LEVELS, add_nodes_argument, provider_entries
from ort_sdk.cli.exit_codes import ExitCode
from ort_sdk.cli.inputs.measured_model import add_measuring_arguments, measured_feeds
from ort_sdk.cli.output import print_json, print_table, print_text, progress
from ort_sdk.plan import Step

__all__ = ["add_arguments", "run"]

OUTSIDE = "(outside of steps)"
"""What a run takes besides its steps: feeds, fetches, the look-up of the program."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    add_measuring_arguments(parser, runs=10)
    add_nodes_argument(parser)
    parser.add_argument("--step-by-step", action="store_true", help="run every node of the plan, as the first run does")


@dataclass(slots=True)
class _Recorder:
    """Nanoseconds and calls by operator or node."""

    by_node: bool
    totals: dict[tuple[str, ...], list[int]] = field(default_factory=dict)
    algorithms: dict[tuple[str, ...], str | None] = field(default_factory=dict)
    """Of each node, as its kernel names it; filled where rows are nodes."""
    _ended: list[tuple[int, int]] = field(default_factory=list)
    """Steps of the run that ended, those inside of a step that ended left out: start, and nanoseconds until this was noted."""

    def start_run(self) -> None:
        """Expect the steps of another run."""
        self._ended.clear()

    def add(self, step: Step, start_ns: int, duration_ns: int) -> None:
        """Note a step whose bodies are not observed (a program observer)."""
        operator = f"{step.domain}.{step.op_type}" if step.domain else step.op_type
        key = (step.node, operator, step.provider or "copy") if self.by_node else (operator, step.provider or "copy")
        total = self.totals.setdefault(key, [0, 0])
        total[0] += duration_ns
        total[1] += 1
        if self.by_node:
            self.algorithms[key] = step.algorithm

    def add_without_bodies(self, step: Step, start_ns: int, duration_ns: int) -> None:
        """Note a step less the steps of its bodies, which were noted before it, and what noting them took."""
        inside = 0
        while self._ended and self._ended[-1][0] >= start_ns:
            inside += self._ended.pop()[1]
        self.add(step, start_ns, duration_ns - inside)
        self._ended.append((start_ns, time.perf_counter_ns() - start_ns))


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from ort_sdk.cli.models.building import BuiltModel, build_state, read_model
    from ort_sdk.run import RunControl
    from ort_sdk.run.device_times import DeviceTimes, clocks_of

    entries = provider_entries(arguments)
    feeds = measured_feeds(arguments, read_model(arguments.model, lambda: entries))
    with progress(f"loading {arguments.model}"):
        model = BuiltModel(build_state(arguments.model, entries, LEVELS[arguments.level]))
    recorder = _Recorder(arguments.nodes)
    with progress(f"running {arguments.model}"):
        clocks = clocks_of(provider.execution_provider for provider in model.state.providers)
        # Devices' clocks time steps that are run one by one: a program may launch several at once.
        replays = model.settle(feeds, arguments.warmup) is not None and not arguments.step_by_step and not clocks
        times = DeviceTimes(recorder.add_without_bodies, clocks)
        stepwise = RunControl(observer=times, timer=times) if clocks else RunControl(observer=recorder.add_without_bodies)
        control = RunControl(program_observer=recorder.add) if replays else stepwise
        total = 0
        for _ in range(arguments.runs):
            recorder.start_run()
            model.run(feeds, control)
            times.finish()
            # The timed run is not observed: it is as long as it is for a user.
            start = time.perf_counter_ns()
            model.run(feeds, None if replays else RunControl(observer=_ignore))
            total += time.perf_counter_ns() - start
    names = ["node", "operator", "provider"] if arguments.nodes else ["operator", "provider"]
    rows = _rows(names, recorder, total, arguments.runs)
    how = "program" if replays else "step by step"
    if arguments.json:
        print_json({"runs": arguments.runs, "how": how, "run_ms": total / arguments.runs / 1e6, "rows": rows})
    else:
        _print(names, rows, total / arguments.runs / 1e6, how)
    return ExitCode.OK


def _ignore(step: Step, start_ns: int, duration_ns: int) -> None:
    """Observe nothing: makes a run go step by step."""


def _without_watching(totals: dict[tuple[str, ...], list[int]], total: int) -> dict[tuple[str, ...], list[int]]:
    """Times less what observing took: together no longer than a run that is not observed.

    The cost of reading the clock is subtracted from each call equally, at most half of the shortest one. What else observed runs
    took longer is chance, and subtracted in proportion.
    """
    spent = sum(nanoseconds for nanoseconds, _ in totals.values())
    if spent <= total:
        return totals
    calls = sum(count for _, count in totals.values())
    watching = min((spent - total) / calls, min(nanoseconds / count for nanoseconds, count in totals.values()) / 2)
    scale = total / (spent - watching * calls)
    return {key: [round((nanoseconds - watching * count) * scale), count] for key, (nanoseconds, count) in totals.items()}


def _rows(names: Sequence[str], recorder: _Recorder, total: int, runs: int) -> list[dict[str, Any]]:
    """Time per run, longest first; what is left of a run's time last."""
    totals = _without_watching(recorder.totals, total)
    ordered = sorted(totals.items(), key=lambda item: (-item[1][0], item[0]))
    rest = total - sum(nanoseconds for nanoseconds, _ in totals.values())
    if rest > 0:
        ordered.append((("",) * (len(names) - 2) + (OUTSIDE, ""), [rest, runs]))
    return [
        dict(zip(names, key, strict=True))
        | ({"algorithm": recorder.algorithms.get(key)} if recorder.by_node else {})
        | {"calls": calls / runs, "ms": nanoseconds / runs / 1e6, "percent": 100 * nanoseconds / total}
        for key, (nanoseconds, calls) in ordered
    ]


def _print(names: Sequence[str], rows: Sequence[dict[str, Any]], run_ms: float, how: str) -> None:
    columns = [*names, *(["algorithm"] if "node" in names else [])]
    cells = [
        (*[row[name] or "" for name in columns], f"{row['calls']:g}", f"{row['ms']:.3f}", f"{row['percent']:.1f}") for row in rows
    ]
    width = len(columns)
    print_table([*columns, "calls", "ms", "%"], cells, right=(width, width + 1, width + 2))
    explained = {
        "program": "as replayed by a program: what follows from the shapes is not run, A+B are operators run as one. "
        "Times of If, Loop and Scan include their bodies.",
        "step by step": "step by step. Times of If, Loop and Scan are without their bodies, whose nodes have their own.",
    }
    print_text(f"\none run, not watched: {run_ms:.3f} ms, {explained[how]}")
