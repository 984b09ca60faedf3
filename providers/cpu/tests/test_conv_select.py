"""Which algorithm computes a convolution: for a table of problems, told before and after a run, and what is loaded for it."""

import subprocess
import sys
import textwrap

import numpy as np
import pytest
from ort_sdk_cpu.conv.operators import KERNELS, kernel_class
from ort_sdk_cpu.conv.problem import ConvAlgorithm
from ort_sdk_cpu.platform import libraries
from ort_sdk_cpu.platform.cpu_features import InstructionSet, instruction_set

pytestmark = pytest.mark.skipif(
    not (libraries.compiled_kernels().is_usable and libraries.onednn().is_usable),
    reason=f"{libraries.compiled_kernels()}; {libraries.onednn()}",
)

MICROSOFT = "com.microsoft"
ONE = {"pads": [1, 1, 1, 1]}


SMALL = {"few_windows", "naive", "im2col_gemm"}


def problem(algorithm, x, w, *, last=None, op="Conv", constant=True, **attributes):
    """What computes it: as it is chosen for the node, and where that differs, in a run on row-major arrays."""
    return algorithm, last or algorithm, op, x, w, constant, attributes


PROBLEMS = {
    "3x3": problem("winograd", (1, 32, 14, 14), (64, 32, 3, 3), **ONE),
    "3x3 with equal zeros around": problem("winograd", (1, 32, 14, 14), (64, 32, 3, 3), auto_pad="SAME_UPPER"),
    "3x3 and Relu": problem("winograd", (1, 32, 14, 14), (64, 32, 3, 3), op="FusedConv", activation="Relu", **ONE),
    "3x3 and Tanh": problem("onednn", (1, 32, 14, 14), (64, 32, 3, 3), op="FusedConv", activation="Tanh", **ONE),
    "3x3 of a small image": problem("onednn", (1, 32, 5, 5), (64, 32, 3, 3), **ONE),
    "3x3 with stride 2": problem("onednn", (1, 32, 28, 28), (64, 32, 3, 3), strides=[2, 2], **ONE),
    "3x3 dilated": problem("onednn", (1, 32, 28, 28), (64, 32, 3, 3), dilations=[2, 2], pads=[2, 2, 2, 2]),
    "3x3 in groups": problem("onednn", (1, 32, 28, 28), (64, 16, 3, 3), group=2, **ONE),
    "3x3 by a given weight": problem("onednn", (1, 32, 14, 14), (64, 32, 3, 3), constant=False, **ONE),
    "5x5": problem("onednn", (1, 32, 28, 28), (64, 32, 5, 5), pads=[2, 2, 2, 2]),
    "11x11": problem("onednn", (1, 32, 28, 28), (64, 32, 11, 11), pads=[5, 5, 5, 5]),
    "first 3x3 of a network": problem("few_input_channels", (1, 3, 64, 64), (32, 3, 3, 3), strides=[2, 2], **ONE),
    "first 7x7 of a network": problem("few_input_channels", (1, 3, 64, 64), (64, 3, 7, 7), strides=[2, 2], pads=[3, 3, 3, 3]),
    "a narrow image": problem("few_input_channels", (1, 3, 64, 6), (32, 3, 3, 3), last="naive", **ONE),
    "3 channels to 4": problem("onednn", (1, 3, 64, 64), (4, 3, 3, 3), **ONE),
    "last 3x3 of a generator": problem("few_output_channels", (1, 64, 32, 32), (3, 64, 3, 3), **ONE),
    "last 9x9 of a generator": problem("few_output_channels", (1, 32, 32, 32), (1, 32, 9, 9), pads=[4, 4, 4, 4]),
    "depthwise": problem("depthwise", (1, 32, 28, 28), (32, 1, 3, 3), group=32, **ONE),
    "depthwise 5x5 with stride 2": problem(
        "depthwise", (1, 32, 28, 28), (32, 1, 5, 5), group=32, strides=[2, 2], pads=[2, 2, 2, 2]
    ),
    "depthwise 3-D": problem("depthwise", (1, 16, 8, 14, 14), (16, 1, 3, 3, 3), group=16, pads=[1] * 6),
    "depthwise of 4 channels": problem("onednn", (1, 4, 28, 28), (4, 1, 3, 3), last="naive", group=4, **ONE),
    "depthwise of little work": problem("depthwise", (1, 8, 4, 4), (8, 1, 3, 3), last="naive", group=8, **ONE),
    "two filters per channel": problem("onednn", (1, 16, 28, 28), (32, 1, 3, 3), group=16, **ONE),
    "1x1": problem("pointwise", (1, 64, 28, 28), (128, 64, 1, 1)),
    "1x1 of a 1-D input": problem("pointwise", (1, 64, 100), (128, 64, 1)),
    "1x1 of a 3-D input": problem("pointwise", (1, 32, 8, 14, 14), (64, 32, 1, 1, 1)),
    "1x1 with stride 2": problem("onednn", (1, 64, 28, 28), (128, 64, 1, 1), strides=[2, 2]),
    "1x1 of 4 channels": problem("few_input_channels", (1, 4, 28, 28), (128, 4, 1, 1)),
    "a gate of channels": problem("pointwise", (1, 64, 1, 1), (128, 64, 1, 1), last="few_windows"),
    "3-D": problem("onednn", (1, 16, 8, 14, 14), (32, 16, 3, 3, 3), pads=[1] * 6),
    "1-D": problem("gemm_1d", (1, 64, 200), (128, 64, 3), last="onednn", pads=[1, 1]),
    "1-D of one channel": problem("gemm_1d", (1, 1, 16000), (1, 1, 400)),
    "1-D as one row": problem("gemm_1d", (1, 64, 1, 200), (128, 64, 1, 3), pads=[0, 1, 0, 1]),
    "1-D dilated": problem("onednn", (1, 64, 200), (128, 64, 3), dilations=[2], pads=[2, 2]),
    "1-D into 40 channels": problem("onednn", (1, 64, 200), (40, 64, 3), pads=[1, 1]),
    "long 1-D": problem("onednn", (1, 64, 20000), (40, 64, 3), last="onednn_tiled_1d", pads=[1, 1]),
    "vectors of words": problem("gemm_1d", (8, 1, 40, 128), (96, 1, 3, 128)),
    "depthwise 1-D": problem("depthwise_1d", (1, 64, 200), (64, 1, 31), group=64, pads=[15, 15]),
    "patches of an image": problem("patch_embedding", (1, 3, 224, 224), (192, 3, 16, 16), strides=[16, 16]),
    "patches of a video": problem("patch_embedding", (1, 3, 4, 32, 32), (64, 3, 2, 8, 8), strides=[2, 8, 8]),
    "small patches": problem("few_input_channels", (1, 3, 64, 64), (192, 3, 4, 4), strides=[4, 4]),
    "dilated patches": problem("onednn", (1, 3, 224, 224), (192, 3, 16, 16), strides=[16, 16], dilations=[2, 2]),
    "few multiplications": problem("onednn", (1, 2, 8, 8), (3, 2, 3, 3), last="naive", **ONE),
    "few multiplications in 3-D": problem("onednn", (1, 2, 4, 4, 4), (3, 2, 3, 3, 3), last="naive", pads=[1] * 6),
    "transposed, side by side": problem("transposed_gemm", (1, 32, 16, 16), (32, 16, 2, 2), op="ConvTranspose", strides=[2, 2]),
    "transposed into 3 channels": problem(
        "transposed_col2im", (1, 32, 16, 16), (32, 3, 4, 4), op="ConvTranspose", strides=[2, 2], **ONE
    ),
    "transposed 1-D into one channel": problem(
        "transposed_col2im", (1, 32, 160), (32, 1, 16), op="ConvTranspose", strides=[8], pads=[4, 4]
    ),
    "transposed": problem("onednn", (1, 32, 16, 16), (32, 32, 4, 4), op="ConvTranspose", strides=[2, 2], **ONE),
    "transposed 1-D": problem("onednn", (1, 64, 100), (64, 32, 4), op="ConvTranspose", strides=[2], pads=[1, 1]),
    "transposed in groups": problem(
        "onednn", (1, 32, 16, 16), (32, 16, 4, 4), op="ConvTranspose", strides=[2, 2], group=2, **ONE
    ),
    "transposed of many channels": problem(
        "onednn_bias_apart", (1, 128, 16, 16), (128, 64, 4, 4), op="ConvTranspose", strides=[2, 2], **ONE
    ),
    "transposed by a given weight": problem(
        "onednn_bias_apart", (1, 32, 16, 16), (32, 32, 4, 4), op="ConvTranspose", strides=[2, 2], constant=False, **ONE
    ),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_algorithm_of_a_node_and_of_its_run(make_kernel, name):
    chosen, last, op_type, x_shape, weight_shape, is_constant, attributes = PROBLEMS[name]
    outputs = weight_shape[1] * attributes.get("group", 1) if op_type == "ConvTranspose" else weight_shape[0]
    inputs = tuple(np.zeros(shape, np.float32) for shape in (x_shape, weight_shape, (outputs,)))
    domain = MICROSOFT if op_type == "FusedConv" else ""
    kernel = make_kernel(op_type, inputs, attributes, domain, None, (1, 2) if is_constant else (), ())
    assert type(kernel) is kernel_class(ConvAlgorithm(chosen))
    assert kernel.algorithm is None
    result = kernel.compute(*inputs)
    if last in SMALL:
        assert kernel.algorithm == "opset"
        kernel.bind([_Slot(each) for each in inputs], [_Slot(np.empty(result.shape, np.float32))])()
    assert kernel.algorithm == last


def test_half_empty_panels_are_left_to_onednn_where_sizes_are_known(make_kernel):
    inputs = tuple(np.zeros(shape, np.float32) for shape in ((1, 32, 14, 14), (16, 32, 3, 3)))
    kernel = make_kernel("Conv", inputs, ONE, "", None, (1,), ())
    kernel.compute(*inputs)
    assert kernel.algorithm == ("onednn" if instruction_set() >= InstructionSet.AVX512 else "winograd")


def test_other_types_are_left_to_im2col(make_kernel):
    inputs = tuple(np.zeros(shape) for shape in ((1, 8, 16, 16), (8, 8, 3, 3)))
    kernel = make_kernel("Conv", inputs, ONE, "", None, (1,), ())
    kernel.bind([_Slot(each) for each in inputs], [_Slot(np.empty((1, 8, 16, 16)))])
    assert kernel.algorithm == "im2col_gemm"


class _Slot:
    is_fixed, is_constant = True, False

    def __init__(self, array):
        self.array, self.shape = array, array.shape


def test_shapes_that_vary_are_told(make_kernel):
    weight = np.zeros((40, 24, 5, 5), np.float32)
    kernel = make_kernel("Conv", (np.zeros((1, 24, 9, 9), np.float32), weight), {}, "", None, (1,), ())
    for size in (20, 21, 22, 23):
        kernel.compute(np.zeros((1, 24, size, size), np.float32), weight)
    assert kernel.algorithm == "dynamic_im2row"


def test_kernels_name_their_own_algorithm():
    for algorithm in KERNELS:
        assert kernel_class(algorithm).own_algorithm is algorithm


SCRIPT = """
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    import ort_sdk
    from ort_sdk_cpu.onednn import library
    from ort_sdk_cpu.platform import libraries

    assert libraries.onednn().is_usable
    weight = np.random.default_rng(0).standard_normal({weight}).astype(np.float32)
    node = helper.make_node("Conv", ["x", "w"], ["y"], **{attributes})
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in (("x", {x}), ("y", None))]
    graph = helper.make_graph([node], "g", ends[:1], ends[1:], [numpy_helper.from_array(weight, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    session = ort_sdk.InferenceSession(model, providers=["CPUExecutionProvider"])
    for _ in range(5):
        session.run(None, {{"x": np.ones({x}, np.float32)}})
    (step,) = session._state.plan.steps
    print(step.kernel.algorithm, library.is_loaded())
"""


@pytest.mark.parametrize("name", ["3x3", "1x1", "depthwise", "last 3x3 of a generator", "first 3x3 of a network"])
def test_onednn_is_not_opened_for_what_compiled_tasks_compute(name):
    algorithm, _, _, x, weight, _, attributes = PROBLEMS[name]
    script = textwrap.dedent(SCRIPT).format(x=x, weight=weight, attributes=attributes)
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    assert found.stdout.split() == [algorithm, "False"]


def test_convolutions_need_no_onednn():
    algorithm, _, _, x, weight, _, attributes = PROBLEMS["3x3"]
    script = textwrap.dedent(SCRIPT).format(x=x, weight=weight, attributes=attributes)
    script = f"import os\nos.environ[{libraries.DISABLE_VARIABLE!r}] = 'onednn'\n" + script.replace(
        "assert libraries.onednn()", "assert not libraries.onednn()"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    assert found.stdout.split() == [algorithm, "False"]
