"""ConvTranspose into a few channels by a task that keeps windows of some rows, beside onnxruntime."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from ort_sdk_cpu.conv.transposed.col2im import Col2imKernel
from ort_sdk_cpu.platform import libraries
from ort_sdk_cpu.platform.cpu_features import InstructionSet
from ort_sdk_cpu.platform.cpu_features import instruction_set as machine_instruction_set

import ort_sdk as ort

pytestmark = pytest.mark.skipif(
    not (libraries.compiled_kernels().is_usable and libraries.onednn().is_usable),
    reason=f"{libraries.compiled_kernels()}; {libraries.onednn()}",
)

CASES = {
    "side by side": ((2, 24, 11, 37), (1, 2, 2), {"strides": [2, 2]}),
    "overlapping": ((1, 18, 9, 64), (3, 4, 4), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
    "three apart": ((1, 7, 13, 33), (1, 9, 9), {"strides": [3, 3], "pads": [4, 4, 4, 4], "output_padding": [2, 2]}),
    "all sizes unlike": ((3, 5, 6, 50), (2, 3, 7), {"strides": [1, 4], "pads": [2, 0, 0, 5], "output_padding": [0, 3]}),
    "no window at some places": ((1, 16, 4, 5), (2, 1, 2), {"strides": [3, 4], "output_padding": [2, 1]}),
    "more pads than a window": ((1, 3, 9, 40), (1, 3, 3), {"strides": [2, 2], "pads": [5, 8, 4, 7]}),
    "one pixel": ((2, 17, 1, 1), (4, 3, 3), {"strides": [2, 2]}),
    "a size given": ((1, 12, 7, 8), (1, 4, 4), {"strides": [2, 2], "output_shape": [15, 16]}),
    "pads by name": ((1, 12, 7, 8), (2, 3, 3), {"strides": [2, 2], "auto_pad": "SAME_UPPER"}),
    "wide rows": ((1, 9, 3, 600), (1, 3, 4), {"strides": [2, 2], "pads": [1, 1, 0, 1]}),
    "many taps": ((1, 4, 5, 70), (4, 12, 20), {"strides": [5, 6], "pads": [3, 3, 3, 3]}),
    "a signal": ((2, 20, 1200), (1, 16), {"strides": [8]}),
    "a padded signal": ((1, 33, 700), (2, 8), {"strides": [4], "pads": [2, 3], "output_padding": [3]}),
}


def random(*shape, seed=0):
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


def operands(x_shape, weight, seed=0):
    """X, W and B."""
    return random(*x_shape, seed=seed), random(x_shape[1], *weight, seed=seed), random(weight[0], seed=seed)


def of_onnxruntime(arrays, attributes):
    """The result of a node whose inputs are those of a model."""
    inputs = [helper.make_tensor_value_info(f"i{place}", TensorProto.FLOAT, array.shape) for place, array in enumerate(arrays)]
    node = helper.make_node("ConvTranspose", [value.name for value in inputs], ["y"], **attributes)
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * arrays[0].ndim)
    graph = helper.make_graph([node], "graph", inputs, [output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return session.run(None, {f"i{place}": array for place, array in enumerate(arrays)})[0]


def assert_close(found, expected):
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


def check(make_kernel, case):
    """In each layout, with and without a bias."""
    x_shape, weight, attributes = CASES[case]
    x, w, bias = operands(x_shape, weight)
    channels_last = np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1, 1)
    for given in ([x, w, bias], [x, w]):
        expected = of_onnxruntime(given, attributes)
        kernel = make_kernel("ConvTranspose", tuple(given), attributes, "", None, range(1, len(given)), ())
        assert isinstance(kernel, Col2imKernel)
        for source in (x, channels_last, np.asfortranarray(x), np.repeat(x, 2, -1)[..., ::2]):
            assert kernel._takes(source)
            assert_close(kernel.compute(source, *given[1:]), expected)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("threads", [1, 3])
def test_shapes_and_layouts(make_kernel, monkeypatch, case, threads):
    monkeypatch.setattr("ort_sdk_cpu.conv.transposed.col2im.TEAM_WORK", 0)
    monkeypatch.setattr("ort_sdk_cpu.platform.libraries.thread_count", lambda: threads)
    check(make_kernel, case)


@pytest.mark.parametrize("case", ["overlapping", "a padded signal"])
def test_bound_calls(run_both, case):
    x_shape, weight, attributes = CASES[case]
    x, w, bias = operands(x_shape, weight)
    channels_last = np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1, 1)
    for source in (x, channels_last, np.asfortranarray(x)):
        for found in run_both("ConvTranspose", source, w, bias, constants=(1, 2), **attributes):
            assert_close(found[0], of_onnxruntime([x, w, bias], attributes))


@pytest.mark.parametrize("sizes", [[(40, 50)] * 3, [(8 + step, 9) for step in range(5)]])
def test_between_other_nodes(sizes):
    """Behind a convolution whose result has channels last, for known sizes and for others in each run."""
    filters, w, bias = random(24, 3, 3, 3) / 8, random(24, 3, 4, 4) / 16, random(3)
    nodes = [
        helper.make_node("Conv", ["x", "f"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("ConvTranspose", ["r", "w", "b"], ["t"], strides=[2, 2], pads=[1, 1, 1, 1]),
        helper.make_node("Tanh", ["t"], ["y"]),
    ]
    size = sizes[0] if len({*sizes}) == 1 else ("height", "width")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, *size])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * 4)
    constants = [numpy_helper.from_array(array, name) for name, array in (("f", filters), ("w", w), ("b", bias))]
    graph = helper.make_graph(nodes, "graph", [x], [y], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    own, other = (each.InferenceSession(model, providers=["CPUExecutionProvider"]) for each in (ort, onnxruntime))
    for run, (height, width) in enumerate(sizes):
        feeds = {"x": random(1, 3, height, width, seed=run)}
        assert_close(own.run(None, feeds)[0], other.run(None, feeds)[0])


def test_weights_that_are_no_numbers_stay_where_they_belong(make_kernel):
    x, w, bias = operands((1, 6, 4, 9), (1, 4, 4))
    w[2, 0, 3, 3] = np.inf
    attributes = {"strides": [2, 2], "pads": [1, 1, 1, 1]}
    found = make_kernel("ConvTranspose", (x, w, bias), attributes, "", None, (1, 2), ()).compute(x, w, bias)
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(of_onnxruntime([x, w, bias], attributes)))


@pytest.mark.parametrize(
    ("weight", "attributes"),
    [
        ((5, 3, 3), {}),
        ((1, 3, 3), {"dilations": [2, 2]}),
        ((1, 3, 3), {"group": 2}),
        ((4, 16, 17), {}),
        ((1, 2, 2, 2), {}),
    ],
)
def test_others_are_left_to_other_kernels(make_kernel, weight, attributes):
    x, w, bias = operands((1, 6, *range(5, 4 + len(weight))), weight)
    attributes = {"strides": [2] * (len(weight) - 1)} | attributes
    bias = np.repeat(bias, attributes.get("group", 1))
    kernel = make_kernel("ConvTranspose", (x, w, bias), attributes, "", None, (1, 2), ())
    assert not isinstance(kernel, Col2imKernel)
    assert_close(kernel.compute(x, w, bias), of_onnxruntime([x, w, bias], attributes))


@pytest.mark.parametrize(("shape", "attributes"), [((1, 5, 4, 4), {}), ((1, 6, 4), {}), ((1, 6, 4, 4), {"kernel_shape": [3, 3]})])
def test_sizes_that_contradict_the_weight(make_kernel, shape, attributes):
    x, w = random(*shape), random(6, 1, 2, 2)
    kernel = make_kernel("ConvTranspose", (x, w), attributes, "", None, (1,), ())
    with pytest.raises(ort.api.OrtSdkError):
        kernel.compute(x, w)


_CHILD = """
import sys
sys.path.insert(0, {folder!r})
import conftest
import test_transposed_col2im as tests
for case in tests.CASES:
    tests.check(conftest._kernel, case)
"""


@pytest.mark.instruction_sets
@pytest.mark.parametrize("level", [level for level in InstructionSet if level < machine_instruction_set()])
def test_other_instruction_sets(level):
    environment = {**os.environ, "ORT_SDK_CPU_ISA": level.name.lower()}
    code = _CHILD.format(folder=str(Path(__file__).parent))
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=300)
