"""Long-lived processes: runs of ever new shapes, and sessions that come and go, leave nothing on the host or the device."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROLLUP = Path("/proc/self/smaps_rollup")
pytestmark = [
    pytest.mark.opencl,
    pytest.mark.skipif(not ROLLUP.exists(), reason="the system does not tell how much memory is private"),
]

COMMON = """
import gc, json, sys
import numpy as np
from onnx import TensorProto, helper, numpy_helper
import ort_sdk as ort
from ort_sdk_opencl.device import device_context

index, count, samples = (int(each) for each in sys.argv[1:4])
launcher = device_context(index).launcher
providers = [("OpenCLExecutionProvider", {"device_id": str(index)}), "CPUExecutionProvider"]
gc.disable()
rng = np.random.default_rng(0)

def private():
    rows = [line.split() for line in open("/proc/self/smaps_rollup") if line.startswith("Private_")]
    return sum(int(row[1]) for row in rows) << 10

def tell():
    pool, programs = launcher.pool, launcher.programs
    made = programs.built + programs.loaded
    print(json.dumps([private(), pool.bytes_in_use, pool.bytes_held, programs.kept, made]), flush=True)

def constant(name, *shape, kind=np.float32):
    return numpy_helper.from_array((rng.standard_normal(shape) / 8).astype(kind), name)

def model(width):
    nodes = [
        helper.make_node("Conv", ["x", "k"], ["c"], pads=[1, 1, 1, 1], strides=[2, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2]),
        helper.make_node("Transpose", ["p"], ["t"], perm=[2, 1, 3, 0]),
        helper.make_node("MatMul", ["t", "w"], ["m"]),
        helper.make_node("Softmax", ["m"], ["s"], axis=2),
        helper.make_node("ReduceMean", ["s"], ["h"], axes=[1], keepdims=1),
        helper.make_node("Sub", ["s", "h"], ["d"]),
        helper.make_node("CumSum", ["d", "axis"], ["e"]),
        helper.make_node("Concat", ["e", "d"], ["y"], axis=2),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, "height", "width"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    axis = numpy_helper.from_array(np.array(2), "axis")
    graph = helper.make_graph(nodes, "g", [x], [y], [constant("k", 4, 3, 3, 3), constant("w", 1, 4, 1, width), axis])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
"""
SHAPES = """
session = ort.InferenceSession(model(5), providers=providers)
for run in range(count):
    shape = (1, 3, 4 + run % 101, 4 + run * 37 % 103)
    for _ in range(1 + 3 * (run % 50 == 0)):
        session.run(None, {"x": np.ones(shape, np.float32)})
    if (run + 1) % (count // samples) == 0:
        tell()
"""
SESSIONS = """
for number in range(count):
    session = ort.InferenceSession(model(5 + number % 7), providers=providers)
    for _ in range(4):
        session.run(None, {"x": np.ones((1, 3, 20, 30), np.float32)})
    session.close()
    del session
    if (number + 1) % (count // samples) == 0:
        tell()
"""
SAMPLES = 8
NOISE_BYTES = 4 << 20
"""That a process, or slabs of the pool, grow by without keeping anything of a run: 420 bytes for each of ten thousand."""
KERNEL_BYTES = {"pocl": 1 << 19, "intel": 4 << 20}
"""What a platform's driver keeps for a kernel."""
MOST_KERNELS = 200
"""For all shapes of the model."""


def _measured(work, index, count):
    """Private bytes, device bytes in use and held, programs kept and made, at eight points."""
    command = [sys.executable, "-P", "-c", COMMON + work, str(index), str(count), str(SAMPLES)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=7200)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def _assert_flat(rows, platform):
    """What grows in the first half is what caches keep; later come a few more kernels for sizes that were not met before."""
    private, in_use, held, kept, _ = zip(*rows, strict=True)
    half = SAMPLES // 2
    shown = f"private, in use, held, programs kept and made: {rows}"
    more = kept[-1] - kept[half - 1]
    assert kept[-1] < MOST_KERNELS, shown
    assert max(private[half:]) <= max(private[:half]) + NOISE_BYTES + more * KERNEL_BYTES[platform], shown
    assert max(in_use[half:]) <= max(in_use[:half]) + NOISE_BYTES, shown
    assert max(held[half:]) <= max(held[:half]) + NOISE_BYTES, shown


def test_runs_of_changing_shapes(platform, index):
    _assert_flat(_measured(SHAPES, index, 400), platform)


def test_sessions_that_come_and_go(platform, index):
    _assert_flat(_measured(SESSIONS, index, 48), platform)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_ten_thousand_runs_of_changing_shapes(platform, index):
    _assert_flat(_measured(SHAPES, index, 10_000), platform)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_five_hundred_sessions(platform, index):
    _assert_flat(_measured(SESSIONS, index, 504), platform)
