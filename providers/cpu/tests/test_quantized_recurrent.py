"""DynamicQuantizeLSTM by tasks over 8 bits, against the definition in float64 and onnxruntime."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from ort_sdk_cpu.platform import libraries
from ort_sdk_cpu.platform.cpu_features import InstructionSet, machine_instruction_set

import ort_sdk as ort
from ort_sdk.api.errors import OrtSdkError

MICROSOFT = "com.microsoft"
pytestmark = pytest.mark.skipif(not libraries.compiled_kernels().is_usable, reason="numba is not installed")


def layer(size, hidden, direction, *, kind=np.int8, per_column=True, bias=True, seed=0):
    """A node's constants: weights (directions, K, 4 * hidden) whose zero points are the middle of their type."""
    rng, directions, limits = np.random.default_rng(seed), 2 if direction == "bidirectional" else 1, np.iinfo(kind)
    count, middle = (directions, 4 * hidden) if per_column else (directions,), 128 if kind == np.uint8 else 0
    constants = {}
    for name, rows in (("w", size), ("r", hidden)):
        constants[name] = rng.integers(limits.min, limits.max + 1, (directions, rows, 4 * hidden)).astype(kind)
        constants[f"{name}s"] = ((rng.random(count) + 0.5) * 0.002).astype(np.float32)
        constants[f"{name}z"] = np.full(count, middle, kind)
    if bias:
        constants["b"] = rng.standard_normal((directions, 8 * hidden)).astype(np.float32)
    return constants


def model(constants, given, direction):
    names = ["x", "w", "r", "b", "lengths", "h0", "c0", "", "ws", "wz", "rs", "rz"]
    names = [name if name in {*constants, *given} else "" for name in names]
    hidden = constants["r"].shape[1]
    node = helper.make_node(
        "DynamicQuantizeLSTM", names, ["y", "h", "c"], domain=MICROSOFT, hidden_size=hidden, direction=direction
    )
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), [None] * array.ndim)
        for name, array in given.items()
    ]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "yhc"]
    initializers = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid(MICROSOFT, 1)]
    graph = helper.make_graph([node], "graph", infos, results, initializers)
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


def feeds(steps, batch, constants, *, states=True, seed=1):
    rng, (directions, hidden), size = np.random.default_rng(seed), constants["r"].shape[:2], constants["w"].shape[1]
    given = {"x": rng.standard_normal((steps, batch, size)).astype(np.float32)}
    if states:
        given["lengths"] = np.maximum(steps - np.arange(batch) * 2, 1).astype(np.int32)
        given |= {name: rng.standard_normal((directions, batch, hidden)).astype(np.float32) for name in ("h0", "c0")}
    return given


def product(x, weight, scale, zero_point):
    """Of x, quantized to uint8 by its own range, and a weight."""
    low, high = min(x.min(), np.float32(0)), max(x.max(), np.float32(0))
    step = np.float32(1) if low == high else (high - low) / np.float32(255)
    zero = np.clip(np.rint(-low / step), 0, 255)
    quantized = np.clip(np.rint(x / step) + zero, 0, 255) - zero
    weights = weight.astype(np.float64) - zero_point.astype(np.float64)
    return quantized.astype(np.float64) @ weights * (float(step) * scale.astype(np.float64))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def expected(given, constants, direction):
    """Y, Y_h and Y_c."""
    x, hidden, found = given["x"], constants["r"].shape[1], []
    steps, batch, _ = x.shape
    lengths = given.get("lengths", np.full(batch, steps, np.int32))
    for index, backwards in enumerate({"forward": [False], "reverse": [True], "bidirectional": [False, True]}[direction]):
        own = {name: array[index] for name, array in constants.items()}
        bias = own["b"].astype(np.float64).reshape(2, -1).sum(axis=0) if "b" in own else 0.0
        gates = product(x, own["w"], own["ws"], own["wz"]) + bias
        h, c = (given[name][index].astype(np.float64) if name in given else np.zeros((batch, hidden)) for name in ("h0", "c0"))
        y = np.zeros((steps, batch, hidden))
        for step in reversed(range(steps)) if backwards else range(steps):
            entry, output, forget, candidate = np.split(
                gates[step] + product(h.astype(np.float32), own["r"], own["rs"], own["rz"]), 4, axis=1
            )
            within = (step < lengths)[:, np.newaxis]
            c = np.where(within, sigmoid(forget) * c + sigmoid(entry) * np.tanh(candidate), c)
            h = np.where(within, sigmoid(output) * np.tanh(c), h)
            y[step] = np.where(within, h, 0)
        found.append((y, h, c))
    return [np.stack(parts, axis=axis) for parts, axis in zip(zip(*found, strict=True), (1, 0, 0), strict=True)]


def check(size, hidden, direction, shapes, *, states=True, **kinds):
    constants = layer(size, hidden, direction, **kinds)
    session = ort.InferenceSession(
        model(constants, feeds(1, 1, constants, states=states), direction), providers=["CPUExecutionProvider"]
    )
    for steps, batch in shapes:
        given = feeds(steps, batch, constants, states=states)
        wanted = expected(given, constants, direction)
        for _ in range(3):
            for result, value in zip(session.run(None, given), wanted, strict=True):
                np.testing.assert_allclose(result, value, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("states", [True, False])
def test_directions(direction, states):
    check(37, 70, direction, [(5, 1), (3, 6), (1, 1), (4, 3)], states=states)


@pytest.mark.parametrize("kinds", [{"kind": np.uint8}, {"per_column": False}, {"bias": False}])
def test_weights(kinds):
    check(64, 64, "forward", [(4, 2)], **kinds)


def test_a_team():
    check(21, 520, "forward", [(3, 1), (2, 5)])


def test_other_zero_points_are_left_to_floats():
    constants = layer(16, 64, "forward", kind=np.uint8)
    constants["rz"] = np.full_like(constants["rz"], 100)
    given = feeds(2, 2, constants)
    session = ort.InferenceSession(model(constants, given, "forward"), providers=["CPUExecutionProvider"])
    for result, value in zip(session.run(None, given), expected(given, constants, "forward"), strict=True):
        np.testing.assert_allclose(result, value, atol=3e-2)  # Inputs are not quantized.


@pytest.mark.parametrize("shape", [(3, 1, 38), (0, 1, 37), (3, 37)])
def test_other_shapes_are_refused_as_without_tasks(shape):
    constants = layer(37, 70, "forward")
    given = feeds(3, 1, constants, states=False)
    session = ort.InferenceSession(model(constants, given, "forward"), providers=["CPUExecutionProvider"])
    x = np.ones(shape, np.float32)
    if shape[0] == 0:
        assert session.run(None, {"x": x})[0].shape == (0, 1, 1, 70)
    else:
        with pytest.raises(OrtSdkError):
            session.run(None, {"x": x})


def test_as_onnxruntime():
    onnxruntime = pytest.importorskip("onnxruntime")
    constants = layer(48, 96, "bidirectional")
    given = feeds(6, 1, constants)
    made = model(constants, given, "bidirectional")
    ours, theirs = (
        library.InferenceSession(made, providers=["CPUExecutionProvider"]).run(None, given) for library in (ort, onnxruntime)
    )
    for result, value in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(result, value, atol=2e-3)  # A number may be rounded to the next step.


_CHILD = """
import sys
sys.path.insert(0, {folder!r})
import test_quantized_recurrent as tests
tests.check(37, 70, "bidirectional", [(5, 1), (3, 6)])
"""


@pytest.mark.instruction_sets
@pytest.mark.parametrize("level", [level for level in InstructionSet if level < machine_instruction_set()])
def test_other_instruction_sets(level):
    environment = {**os.environ, "ORT_SDK_CPU_ISA": level.name.lower()}
    code = _CHILD.format(folder=str(Path(__file__).parent))
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=300)
