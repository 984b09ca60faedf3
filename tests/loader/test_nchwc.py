"""Models that onnxruntime wrote at ORT_ENABLE_ALL: its nodes on blocks of channels run here as ONNX's."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import ort_sdk
from ort_sdk.api import InvalidGraph
from ort_sdk.loader import load_model
from ort_sdk.loader.nchwc.block_size import block_size_of, machine_block_size
from ort_sdk.loader.nchwc.domain import NCHWC
from ort_sdk.testing.cases import KINDS, load_cases
from tests.loader.ort_files import quiet_options, run_reference
from tests.loader.test_ort_format_corpus import check, data_sets_of, source
from tests.models.test_models import FEEDS, QUANTIZED_FEEDS

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / "tests" / "models" / "data"
CPU = ["CPUExecutionProvider"]
LEVELS = ("ORT_DISABLE_ALL", "ORT_ENABLE_ALL")
LIGHT_MODEL = re.compile(r"resnet50|squeezenet|densenet|inception|vgg|zfnet|shufflenet|alexnet")
"""Models whose weights are computed from inputs with defaults, which onnxruntime takes out when it saves them optimized."""
CASES = [
    case
    for kind in KINDS
    for case in load_cases(kind)
    if re.search(r"conv|pool|upsample|resize|batchnorm", case.name, re.IGNORECASE) and not LIGHT_MODEL.search(case.name)
]
RANDOM = np.random.default_rng(7)
BLOCKS = (8, 16)


def weights(*shape):
    return (RANDOM.random(shape) - 0.5).astype(np.float32)


def node(op_type, inputs, output, **attributes):
    return helper.make_node(op_type, inputs.split(",") if inputs else [], [output], output, **attributes)


def make(nodes, constants, *, shape=("n", 16, "h", "w"), opset=21):
    """A model from x to y."""
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid(NCHWC, 1)]
    graph = helper.make_graph(nodes, "g", [x], [y], tensors)
    return helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString()


def optimize(model, path, level="ORT_ENABLE_ALL"):
    """Let onnxruntime write a model, in the format of the path's extension; returns its session."""
    options = quiet_options(level=level)
    options.optimized_model_filepath = str(path)
    options.add_session_config_entry("session.save_model_format", path.suffix[1:].upper())
    return onnxruntime.InferenceSession(model, options, providers=CPU)


def ours(model, level="ORT_ENABLE_ALL", **config):
    options = ort_sdk.SessionOptions()
    options.graph_optimization_level = getattr(ort_sdk.GraphOptimizationLevel, level)
    for name, value in config.items():
        setattr(options, name, value)
    return ort_sdk.InferenceSession(model, options, providers=CPU)


def operators(session):
    return sorted(row.op_type for row in session.placements())


def has_blocks(path):
    """Whether a file has nodes on blocks."""
    return NCHWC.encode() in path.read_bytes() and b"Reorder" in path.read_bytes()


def run_both(model, path, feeds, *, tolerance=1e-5):
    """Compare what onnxruntime computes and what we do of the file it wrote, as it is and optimized, three times each."""
    expected = optimize(model, path).run(None, feeds)
    for level in LEVELS:
        session = ours(path, level)
        assert not any("Reorder" in op_type for op_type in operators(session))
        for _ in range(3):
            for actual, wanted in zip(session.run(None, feeds), expected, strict=True):
                np.testing.assert_allclose(actual, wanted, rtol=tolerance, atol=tolerance * np.abs(wanted).max())
    return ours(path)


@pytest.mark.parametrize("suffix", ["ort", "onnx"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_onnx_case(case, suffix, tmp_path):
    path, data_sets = tmp_path / f"m.{suffix}", data_sets_of(case)
    try:
        optimize(source(case), path)
    except Exception:  # noqa: BLE001 - its errors have no base class
        assert not path.exists()
        pytest.skip("onnxruntime cannot load it")
    check(case, ours(path), data_sets)


def test_some_cases_have_blocks(tmp_path):
    """So that the test above tests something."""
    found = 0
    for case in [case for case in CASES if "Conv2d" in case.name]:
        optimize(source(case), tmp_path / "m.ort")
        found += has_blocks(tmp_path / "m.ort")
    assert found >= 5


@pytest.mark.parametrize("suffix", ["ort", "onnx"])
@pytest.mark.parametrize("name", sorted(name for name in FEEDS | QUANTIZED_FEEDS if not name.startswith("control_flow")))
def test_real_model(name, suffix, tmp_path):
    feeds = (FEEDS | QUANTIZED_FEEDS)[name][0]
    session = run_both(str(MODELS / f"{name}.onnx"), tmp_path / f"m.{suffix}", feeds, tolerance=1e-4)
    assert session.get_providers() == CPU


def test_digits(tmp_path):
    path = ROOT / "examples" / "digits" / "digits.onnx"
    (image,) = ours(path).get_inputs()
    shape = [size if isinstance(size, int) else 2 for size in image.shape]
    run_both(str(path), tmp_path / "m.ort", {image.name: weights(*shape)})


def conv(output, *, source="x", filters="w", bias="b", **attributes):
    return node("Conv", f"{source},{filters},{bias}" if bias else f"{source},{filters}", output, **attributes)


TWENTY = {"w": weights(20, 16, 3, 3), "b": weights(20)}
"""A convolution with 20 channels, which fill no whole blocks."""
SCALES = {"k": np.array([1, 1, 2, 2], np.float32), "r": np.zeros(0, np.float32)}
TAILS = {
    **{name: ([node(name, "c", "y")], {}) for name in ("Relu", "LeakyRelu", "Sigmoid", "Tanh", "HardSigmoid", "Gelu")},
    "HardSwish": ([node("HardSwish", "c", "d"), node("MaxPool", "d", "y", kernel_shape=[2, 2])], {}),
    "Elu": ([node("Elu", "c", "d"), node("MaxPool", "d", "y", kernel_shape=[2, 2])], {}),
    "clip": ([node("Clip", "c,lo,hi", "y")], {"lo": np.float32(0.1), "hi": np.float32(6)}),
    "silu": ([node("Sigmoid", "c", "s"), node("Mul", "c,s", "y")], {}),
    "add": ([conv("d", bias=""), node("Add", "c,d", "e"), node("Relu", "e", "y")], {}),
    "sum": ([conv("d", bias=""), conv("e"), node("Sum", "c,d", "f"), node("Add", "f,e", "y")], {}),
    "div": ([conv("d", bias=""), node("Exp", "d", "e"), node("Div", "c,e", "y")], {}),
    "gate": ([node("GlobalAveragePool", "c", "p"), conv("g", source="p", filters="w1", bias=""), node("Sigmoid", "g", "s"),
              node("Mul", "c,s", "d"), conv("y", source="d", filters="w1", bias="")], {"w1": weights(20, 20, 1, 1)}),
    "nearest": ([node("Resize", "c,r,k", "y", coordinate_transformation_mode="asymmetric", nearest_mode="floor")], SCALES),
    "linear": ([node("Resize", "c,r,k", "y", mode="linear")], SCALES),
    "aligned": ([node("Resize", "c,r,k", "y", mode="linear", coordinate_transformation_mode="align_corners")], SCALES),
    "channels_last": ([node("Transpose", "c", "y", perm=[0, 2, 3, 1])], {}),
    "both_orders": ([node("Transpose", "c", "t", perm=[0, 2, 3, 1]), node("Relu", "t", "r"),
                     node("Transpose", "r", "s", perm=[0, 3, 1, 2]), conv("y", source="s", filters="w2", bias="")],
                    {"w2": weights(16, 20, 3, 3)}),
    "depthwise": ([conv("y", source="c", filters="w1", bias="", group=20)], {"w1": weights(20, 1, 3, 3)}),
    "depthwise_sigmoid": ([node("Sigmoid", "c", "s"), conv("d", source="s", filters="w1", group=20), node("Sigmoid", "d", "e"),
                           conv("y", source="e", filters="w2", bias="")],
                          {"w1": weights(20, 1, 3, 3), "w2": weights(8, 20, 1, 1)}),
    "normalized": ([node("Relu", "c", "r"), node("BatchNormalization", "r,k,k,k,k", "y")], {"k": weights(20) + 1}),
    "concatenated": ([conv("d", filters="w3", bias=""), node("Relu", "d", "e"), node("Concat", "d,e", "f", axis=1),
                      conv("y", source="f", filters="w4", bias="")], {"w3": weights(32, 16, 1, 1), "w4": weights(12, 64, 1, 1)}),
    "groups": ([conv("d", filters="w3", bias=""), conv("y", source="d", filters="w4", bias="", group=2)],
               {"w3": weights(32, 16, 1, 1), "w4": weights(64, 16, 3, 3)}),
    "average": ([node("AveragePool", "c", "d", kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2], count_include_pad=1),
                 conv("y", source="d", filters="w1", bias="")], {"w1": weights(4, 20, 1, 1)}),
    "pools": ([node("MaxPool", "c", "d", kernel_shape=[2, 2], ceil_mode=1, strides=[2, 2]), node("GlobalMaxPool", "d", "e"),
               conv("y", source="e", filters="w1", bias="")], {"w1": weights(4, 20, 1, 1)}),
    "dead_channels": ([node("Relu", "c", "d"), conv("y", source="d", filters="w1", bias="")],
                      {"w1": weights(4, 20, 1, 1), "w": np.zeros((20, 16, 3, 3), np.float32), "b": np.zeros(20, np.float32)}),
    "first": ([conv("d", filters="w5", bias="", source="f", pads=[1, 1, 1, 1]), conv("y", source="d", filters="w6", bias="")],
              {"w5": weights(24, 3, 3, 3), "w6": weights(8, 24, 3, 3),
               "s": np.int64([0]), "t": np.int64([3]), "a": np.int64([1])}),
}  # fmt: skip
TAILS["first"][0].insert(0, node("Slice", "x,s,t,a", "f"))


@pytest.mark.parametrize("opset", [12, 21])
@pytest.mark.parametrize("suffix", ["ort", "onnx"])
@pytest.mark.parametrize("tail", TAILS)
def test_pattern(tail, suffix, opset, tmp_path):
    nodes, constants = TAILS[tail]
    if opset < 14 and tail in ("HardSwish", "Gelu", "normalized"):
        pytest.skip("not in that opset")
    model = make([conv("c"), *nodes], {**TWENTY, **constants}, opset=opset)
    session = run_both(model, tmp_path / f"m.{suffix}", {"x": weights(2, 16, 8, 9)})
    # No channels that only fill blocks are computed, added or taken off.
    assert not {"Pad", "Slice", "Identity", "Reshape"} & set(operators(session)) - {n.op_type for n in nodes}


def test_unknown_sizes(tmp_path):
    """A value of unknown rank is filled up to whole blocks when the model runs."""
    nodes = [node("Expand", "x,t", "e"), conv("y", source="e", bias="")]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, None)
    t = helper.make_tensor_value_info("t", TensorProto.INT64, ["rank"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    tensors = [numpy_helper.from_array(weights(8, 20, 3, 3), "w")]
    graph = helper.make_graph(nodes, "g", [x, t], [y], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8).SerializeToString()
    run_both(model, tmp_path / "m.ort", {"x": weights(2, 20, 1, 7), "t": np.int64([2, 20, 6, 7])})


def test_saved_again_runs_there(tmp_path):
    nodes, constants = TAILS["gate"]
    feeds = {"x": weights(2, 16, 8, 9)}
    expected = optimize(make([conv("c"), *nodes], {**TWENTY, **constants}), tmp_path / "m.ort").run(None, feeds)
    for name in ("again.ort", "again.onnx"):
        ours(tmp_path / "m.ort", "ORT_ENABLE_BASIC", optimized_model_filepath=str(tmp_path / name))
        np.testing.assert_allclose(run_reference(tmp_path / name, feeds)[0], expected[0], rtol=1e-5, atol=1e-5)


# Operators one by one


def blocked(op_type, inputs, output, **attributes):
    return helper.make_node(op_type, inputs.split(","), [output], output, domain=NCHWC, **attributes)


WINDOW = {"kernel_shape": [3, 3], "pads": [1, 0, 1, 2], "strides": [2, 1]}
SINGLE = {
    "average": ([blocked("AveragePool", "x", "y", **WINDOW)], {}),
    "average_with_pads": ([blocked("AveragePool", "x", "y", count_include_pad=1, **WINDOW)], {}),
    "max": ([blocked("MaxPool", "x", "y", dilations=[1, 2], **WINDOW)], {}),
    "global_average": ([blocked("GlobalAveragePool", "x", "y")], {}),
    "global_max": ([blocked("GlobalMaxPool", "x", "y")], {}),
    "upsample": ([blocked("Upsample", "x", "y", scales=[1, 1, 2, 3])], {}),
    "upsample_linear": ([blocked("Upsample", "x", "y", scales=[1, 1, 2, 3], mode="linear")], {}),
    "out": ([blocked("ReorderOutput", "x", "y", channels=20)], {}),
    "out_last": ([blocked("ReorderOutput", "x", "y", channels=27, channels_last=1)], {}),
    "conv": ([blocked("Conv", "x,w,b", "y", **WINDOW)], {"w": weights(16, 32, 3, 3), "b": weights(16)}),
    "pointwise": ([blocked("Conv", "x,w", "y", activation="Relu", strides=[2, 2])], {"w": weights(48, 32, 1, 1)}),
    "depthwise": ([blocked("Conv", "x,w,b", "y", group=32, activation="Sigmoid")], {"w": weights(32, 1, 3, 3), "b": weights(32)}),
    "groups": ([blocked("Conv", "x,w", "y", group=2, activation="LeakyRelu", activation_params=[0.2])],
               {"w": weights(32, 16, 3, 3)}),
    "added": ([blocked("Conv", "x,w,b,x", "y", activation="Tanh")], {"w": weights(32, 32, 1, 1), "b": weights(32)}),
    "between": ([blocked("MaxPool", "x", "p", kernel_shape=[2, 2]), node("Transpose", "p", "y", perm=[0, 2, 1, 3])], {}),
    "split": ([blocked("MaxPool", "x", "p", kernel_shape=[2, 2]), node("Reshape", "p,t", "y")],
              {"t": np.int64([0, -1, 0, 0, machine_block_size()])}),
    "softmax": ([blocked("MaxPool", "x", "p", kernel_shape=[2, 2]), node("Softmax", "p", "y", axis=1)], {}),
    "in": ([blocked("ReorderInput", "x", "y")], {}),
}  # fmt: skip


@pytest.mark.parametrize("name", SINGLE)
def test_blocks_as_inputs_and_outputs(name, tmp_path):
    """Nodes that onnxruntime does not leave without ReorderInput and ReorderOutput; it runs them, too."""
    nodes, constants = SINGLE[name]
    model = make(nodes, constants, shape=("n", 32, "h", "w"))
    path = tmp_path / "m.onnx"
    path.write_bytes(model)
    feeds = {"x": weights(2, 32, 7, 6)}
    if machine_block_size() != 16 and name == "conv":
        pytest.skip("16 channels are two blocks here")
    expected = run_reference(path, feeds)[0]
    for level in LEVELS:
        np.testing.assert_allclose(ours(path, level).run(None, feeds)[0], expected, rtol=1e-5, atol=1e-5)


# Blocks of the other size, whose files no machine that tests may be at hand to write


def in_blocks(weight, block, *, inputs_too):
    """A weight as MLAS reorders it, channels rounded up: OIHWBiBo, or OIHWBo."""
    outputs, inputs, *kernel = weight.shape
    padded = -(-outputs // block) * block, -(-inputs // block) * block if inputs_too else inputs
    whole = np.zeros((*padded, *kernel), np.float32)
    whole[:outputs, :inputs] = weight
    if inputs_too:
        parts = whole.reshape(padded[0] // block, block, padded[1] // block, block, *kernel).transpose(0, 2, 4, 5, 3, 1)
    else:
        parts = whole.reshape(padded[0] // block, block, padded[1], *kernel).transpose(0, 2, 3, 4, 1)
    return np.ascontiguousarray(parts).reshape(whole.shape)


def two_convolutions(block, channels):
    """(blocked model, plain model): 3 channels → ``channels`` → Relu → depthwise → 5."""
    first, depth, last = weights(channels, 3, 3, 3), weights(channels, 1, 3, 3), weights(5, channels, 1, 1)
    plain = [conv("c", filters="f", bias=""), node("Relu", "c", "r"), conv("d", source="r", filters="g", bias="", group=channels),
             conv("y", source="d", filters="h", bias="")]  # fmt: skip
    padded = -(-channels // block) * block
    nodes = [blocked("Conv", "x,f", "c", activation="Relu"), blocked("Conv", "c,g", "d", group=padded),
             blocked("Conv", "d,h", "e"), blocked("ReorderOutput", "e", "y", channels=5)]  # fmt: skip
    stored = {"f": in_blocks(first, block, inputs_too=False), "g": in_blocks(depth, block, inputs_too=False),
              "h": in_blocks(last, block, inputs_too=True)}  # fmt: skip
    shape = ("n", 3, "h", "w")
    return make(nodes, stored, shape=shape), make(plain, {"f": first, "g": depth, "h": last}, shape=shape)


@pytest.mark.parametrize("channels", [12, 24, 40])
@pytest.mark.parametrize("block", BLOCKS)
def test_block_size_is_found(block, channels, monkeypatch):
    monkeypatch.setattr("ort_sdk.loader.nchwc.block_size.machine_block_size", lambda: 24 - block)
    model, plain = two_convolutions(block, channels)
    feeds = {"x": weights(1, 3, 9, 8)}
    expected = onnxruntime.InferenceSession(plain, quiet_options(), providers=CPU).run(None, feeds)[0]
    for level in LEVELS:
        np.testing.assert_allclose(ours(model, level).run(None, feeds)[0], expected, rtol=1e-5, atol=1e-5)
    assert set(operators(ours(model))) <= {"Conv", "FusedConv"}


@pytest.mark.parametrize("block", BLOCKS)
def test_block_size_of_the_machine(block, monkeypatch):
    """64 channels are whole blocks of both sizes."""
    monkeypatch.setattr("ort_sdk.loader.nchwc.block_size.machine_block_size", lambda: block)
    stored = weights(64, 64, 1, 1)
    nodes = [blocked("ReorderInput", "x", "a"), blocked("Conv", "a,w", "b"), blocked("ReorderOutput", "b", "y", channels=64)]
    plain = make([conv("y", bias="")], {"w": stored}, shape=("n", 64, "h", "w"))
    model = make(nodes, {"w": in_blocks(stored, block, inputs_too=True)}, shape=("n", 64, "h", "w"))
    feeds = {"x": weights(1, 64, 3, 4)}
    expected = onnxruntime.InferenceSession(plain, quiet_options(), providers=CPU).run(None, feeds)[0]
    np.testing.assert_allclose(ours(model).run(None, feeds)[0], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["mobilenet_opset9", "unet_opset11"])
def test_block_size_of_files(name, tmp_path):
    """ONNX Runtime on this machine writes the size that is said to be this machine's."""
    optimize(str(MODELS / f"{name}.onnx"), tmp_path / "m.onnx")
    proto = onnx.load(tmp_path / "m.onnx")
    sizes = [init.dims[0] for init in proto.graph.initializer if init.name.startswith("reorder") and len(init.dims) == 4]
    assert sizes
    assert all(size % machine_block_size() == 0 for size in sizes)


BAD = {
    "no whole blocks": ([blocked("Conv", "x,w", "y")], {"w": weights(20, 32, 1, 1)}, "channels are in no blocks of 8 or 16"),
    "two sizes": ([blocked("Conv", "x,w", "a"), blocked("Conv", "x,v", "b"), blocked("ReorderOutput", "a", "y", channels=20)],
                  {"w": weights(32, 32, 1, 1), "v": weights(8, 32, 1, 1)}, "channels are in no blocks of 8"),
    "input": ([blocked("Conv", "x,w", "y")], {"w": weights(16, 48, 1, 1)}, "input 'x' has 32 channels in blocks"),
    "bias": ([blocked("Conv", "x,w,b", "y")], {"w": weights(16, 32, 1, 1), "b": weights(8)}, "do not fit blocks of 16"),
    "computed": ([node("Abs", "v", "w"), blocked("Conv", "x,w", "y")], {"v": weights(16, 32, 1, 1)}, "must be constants"),
    "operator": ([blocked("Gemm", "x", "y")], {}, "the domain has no such operator; known: AveragePool, Conv"),
    "activation": ([blocked("Conv", "x,w", "y", activation="Nonsense")], {"w": weights(16, 32, 1, 1)}, "'Nonsense' is unknown"),
    "channels": ([blocked("ReorderOutput", "x", "y", channels=40)], {}, "channels"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_nodes_are_refused(name, monkeypatch):
    monkeypatch.setattr("ort_sdk.loader.nchwc.block_size.machine_block_size", lambda: 16)
    nodes, constants, message = BAD[name]
    with pytest.raises(InvalidGraph, match=message):
        ours(make(nodes, constants, shape=("n", 32, "h", "w")), "ORT_DISABLE_ALL")


def test_weights_are_not_copied_when_loaded(tmp_path):
    nodes, constants = TAILS["groups"]
    optimize(make([conv("c"), *nodes], {**TWENTY, **constants}), tmp_path / "m.ort")
    graph = load_model(tmp_path / "m.ort").graph
    assert all(graph.constant(node.inputs[1]).sources for node in graph.nodes if "Conv" in node.op_type)
    assert len(graph.initializers) == sum(len(node.inputs) - 1 for node in graph.nodes if "Conv" in node.op_type)


def test_a_model_without_blocks_has_this_machines():
    assert block_size_of(()) == machine_block_size()
