"""What the host costs per run where much is bound: a decoder's cache, on a device whose kernels and copies do nothing.

    python -P benchmarks/bench_bindings.py [--layers 32] [--runs 20] [--repetitions 150] [--check]

A decoder of 32 layers has 66 inputs (64 of its cache) and 65 outputs. `session.run` takes and gives host arrays. With `IOBinding`
all inputs are values on the device, and outputs are made there by the session, or are in memory of the caller's: of their own, or
that of the inputs. Runs are replayed, and all kernels joined to one call. Figures are the least of the repetitions, each the mean
of `--runs` calls; the modes take turns.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import helper

import ort_sdk as ort
from ort_sdk.api import Event, ExecutionProvider, OrtDevice, hookimpl
from ort_sdk.plugins import plugin_manager
from ort_sdk.testing.null_provider import NULL_DEVICE, NullProvider

sys.path.append(str(Path(__file__).parent))
import models

BOUND_US = 60.0
"""µs that a run with 66 inputs and 65 outputs may cost that are bound to a device."""
SHAPE = [1, 2, 16, 8]
RUN, MADE, GIVEN, SHARED = "session.run", "bound, outputs made", "bound, outputs given", "bound, outputs in inputs"


class Happened:
    """An event that happened."""

    is_done = True

    def wait(self) -> None:
        """There is nothing to wait for."""


class JoiningProvider(ExecutionProvider):
    """Makes one call of all, and runs that end before their work."""

    def synchronize(self) -> None:
        """There is nothing to wait for."""

    def record_event(self) -> Event:
        return Happened()

    def join_calls(self, calls: Sequence[Callable[[], Any]]) -> Sequence[tuple[int, Callable[[], Any]]]:
        return [(len(calls), calls[0])] if calls else []


class JoiningNullProvider(NullProvider):
    """As a provider that captures what it launches, and waits only when it is asked to."""

    name = "JoiningNullExecutionProvider"

    @hookimpl
    def create_execution_provider(
        self, device: OrtDevice, provider_options: Mapping[str, str], session_options: Mapping[str, str]
    ) -> ExecutionProvider:
        return JoiningProvider(self.name, device, provider_options)


def decoder(layers: int) -> bytes:
    """Each output is of one part of the cache and of what is new."""
    names = [f"past{index}" for index in range(2 * layers)]
    nodes = [helper.make_node("Add", [name, "x"], [f"present{index}"]) for index, name in enumerate(names)]
    nodes.append(helper.make_node("Mul", ["x", "mask"], ["y"]))
    inputs = [models.value(name, SHAPE) for name in ("x", "mask", *names)]
    outputs = [models.value(node.output[0], SHAPE) for node in nodes]
    return models.as_model(helper.make_graph(nodes, "decoder", inputs, outputs)).SerializeToString()


def bound_run(session: Any, mode: str) -> Callable[[], None]:
    """A call that runs a session on bound values."""

    def on_device() -> Any:
        return ort.OrtValue.ortvalue_from_shape_and_type(SHAPE, np.float32, NULL_DEVICE.name)

    binding = session.io_binding()
    given = [on_device() for _ in session.get_inputs()]
    for value, argument in zip(given, session.get_inputs(), strict=True):
        binding.bind_ortvalue_input(argument.name, value)
    for index, argument in enumerate(session.get_outputs()):
        if mode == MADE:
            binding.bind_output(argument.name, NULL_DEVICE.name)
        else:
            is_shared = mode == SHARED and argument.name != "y"
            binding.bind_ortvalue_output(argument.name, given[2 + index] if is_shared else on_device())
    return lambda: session.run_with_iobinding(binding)


def calls(layers: int) -> dict[str, Callable[[], Any]]:
    """What is measured, by mode."""
    session = ort.InferenceSession(decoder(layers), providers=[JoiningNullProvider.name])
    feeds = {argument.name: np.zeros(SHAPE, np.float32) for argument in session.get_inputs()}
    return {RUN: lambda: session.run(None, feeds)} | {mode: bound_run(session, mode) for mode in (MADE, GIVEN, SHARED)}


def call_us(call: Callable[[], Any], runs: int) -> float:
    start = time.perf_counter()
    for _ in range(runs):
        call()
    return (time.perf_counter() - start) / runs * 1e6


def measure(layers: int, runs: int, repetitions: int) -> dict[str, float]:
    made = calls(layers)
    for call in made.values():
        call_us(call, 4)  # the second run makes the program
    rounds = [{mode: call_us(call, runs) for mode, call in made.items()} for _ in range(repetitions)]
    return {mode: min(row[mode] for row in rounds) for mode in made}


def main() -> int:
    parser = argparse.ArgumentParser(description="Host overhead per run with many inputs and outputs")
    parser.add_argument("--layers", type=int, default=32, help="of the decoder, each with two inputs and two outputs")
    parser.add_argument("--runs", type=int, default=20, help="calls in one repetition")
    parser.add_argument("--repetitions", type=int, default=150)
    parser.add_argument("--check", action="store_true", help=f"exit with 1 above {BOUND_US:g} µs where values are bound")
    arguments = parser.parse_args()
    plugin_manager().register(JoiningNullProvider)
    times = measure(arguments.layers, arguments.runs, arguments.repetitions)
    print(f"{2 * arguments.layers + 2} inputs, {2 * arguments.layers + 1} outputs")
    print(f"{'mode':<26}{'µs per run':>12}")
    for mode, microseconds in times.items():
        print(f"{mode:<26}{microseconds:>12.1f}")
    return int(arguments.check and max(times[mode] for mode in (MADE, GIVEN, SHARED)) > BOUND_US)


if __name__ == "__main__":
    sys.exit(main())
