"""What the host pays to replay a program's kernels on an OpenCL device.

A chain of small kernels is bound, joined to one call, and called again and again. *Queueing* is the time of the call itself, for
which the thread of a session is busy; *done* is until the device has computed all of them. The least and the middle of many
repetitions. ``--check`` fails where queueing takes more than ``TARGET_US`` for 200 kernels on every device.

    python -P benchmarks/bench_opencl_dispatch.py --kernels 200
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time

import numpy as np
from ort_sdk_opencl.device import device_context
from ort_sdk_opencl.devices import find_devices
from ort_sdk_opencl.launching.bound_calls import joined

from ort_sdk.api import TensorElementType
from ort_sdk.device import KernelSource, Launch, Scalar

TARGET_US = 250
"""Of 200 kernels."""
LANES = 64
TEXT = """
KERNEL WORKGROUP(64, 1, 1) void one_step(GLOBAL(const f32) x, GLOBAL(f32) y, i32 n) {
  i32 at = GROUP(0) * 64 + LANE(0);
  if (at < n) y[at] = x[at] + 1.0f;
}
"""


def measured(index: int, kernels: int, repetitions: int) -> tuple[list[float], list[float]]:
    """Microseconds of queueing, and until all is done, of each repetition."""
    context = device_context(index)
    launcher = context.launcher
    first, second = (context.upload(np.zeros(LANES, np.float32), TensorElementType.FLOAT) for _ in range(2))
    source = KernelSource("one_step", TEXT)
    arrays = (first.memory, second.memory)
    launches = [
        Launch(source, (1,), (LANES,), (arrays[step % 2], arrays[1 - step % 2], Scalar("i32", LANES)), (1,))
        for step in range(kernels)
    ]
    ((_, call),) = joined([launcher.bind([launch], {}, []) for launch in launches])
    queueing, done = [], []
    for _ in range(repetitions + 3):
        start = time.perf_counter()
        call()
        middle = time.perf_counter()
        launcher.finish()
        queueing.append(1e6 * (middle - start))
        done.append(1e6 * (time.perf_counter() - start))
    last = context.download(first if kernels % 2 == 0 else second)
    assert last[0] == kernels * (repetitions + 3) if kernels % 2 == 0 else last[0] > 0
    return queueing[3:], done[3:]


def main() -> int:
    """Print a line for each device."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kernels", type=int, default=200)
    parser.add_argument("--repetitions", type=int, default=200)
    parser.add_argument("--check", action="store_true", help=f"fail above {TARGET_US} us of queueing for 200 kernels")
    arguments = parser.parse_args()
    print(f"{'device':60} {'queueing us':>12} {'middle':>8} {'done us':>9} {'middle':>8}")
    least = []
    for index, found in enumerate(find_devices()):
        queueing, done = measured(index, arguments.kernels, arguments.repetitions)
        numbers = min(queueing), statistics.median(queueing), min(done), statistics.median(done)
        least.append(numbers[0])
        print("{:60} {:12.0f} {:8.0f} {:9.0f} {:8.0f}".format(f"{found.platform}: {found.name}"[:60], *numbers))
    if arguments.check and min(least) * 200 / arguments.kernels > TARGET_US:
        print(f"queueing takes more than {TARGET_US} us for 200 kernels", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
