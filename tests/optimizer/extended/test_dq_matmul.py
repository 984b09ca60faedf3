"""DequantizeLinear before MatMul and Gemm: when it becomes MatMulNBits, and that results stay what they were."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto

from ort_sdk.api import InvalidArgument, InvalidGraph, OrtSdkError
from ort_sdk.graph.derived_tensor import DerivedTensor
from tests.optimizer.extended.fused_graph import FLOAT, feeds_of, node, op_types, open_session, optimized
from tests.optimizer.extended.quantized_models import (
    DTYPES,
    EXACT,
    RNG,
    dequantize,
    integers,
    model_of,
    product,
    quantized,
    real,
    scales,
)

LEVEL = "session.qdq_matmulnbits_accuracy_level"
BLOCK_SIZE = "session.qdq_matmulnbits_block_size"
FUSED = ["MatMulNBits"]
ORT_WRONG = {("int2", 37), ("uint2", 37)}
"""Weights ONNX Runtime 1.31 converts wrongly: 2 bits, rows that end inside a byte."""


def assert_right(model, wanted, config, tolerance):
    """Both runs of a converted model (as steps, then as a program) are near float64's result."""
    feeds = feeds_of(model)
    session = open_session(model, 2, config=config)
    for _ in range(2):
        (result,) = session.run(None, feeds)
        assert result.shape == wanted(feeds["x"]).shape
        np.testing.assert_allclose(result, wanted(feeds["x"]), atol=tolerance, rtol=0)
    return result


def onnxruntime_result(model, config):
    options = onnxruntime.SessionOptions()
    for key, value in config.items():
        options.add_session_config_entry(key, value)
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"]).run(None, feeds_of(model))[0]


def assert_parity(model, weight, config, tolerance, with_onnxruntime=True):
    result = assert_right(model, lambda x: x.astype(np.float64) @ weight, config, tolerance)
    if with_onnxruntime:
        np.testing.assert_allclose(result, onnxruntime_result(model, config), atol=tolerance, rtol=0)
    np.testing.assert_allclose(result, open_session(model, 0).run(None, feeds_of(model))[0], atol=tolerance, rtol=0)


def tolerance_of(weight, accuracy):
    """Rounding of float32 sums; at accuracy level 4 also that of activations to 8 bits (half a step of 127)."""
    largest = np.abs(weight).sum(axis=0).max()
    return largest * (1e-5 if accuracy in {"0", "1"} else 4.5 / 127)


LAYOUTS = {
    "blocks with padding": ((12, 37), 0, 16),
    "blocks": ((96, 40), 0, 32),
    "large blocks": ((300, 8), 0, 256),
    "per tensor with padding": ((37, 12), None, 0),
    "per channel": ((64, 20), 1, 0),
}


@pytest.mark.parametrize("accuracy", ["0", "1", "4"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("zero_points", [False, True])
@pytest.mark.parametrize("name", DTYPES)
def test_matmul(name, zero_points, layout, accuracy):
    shape, axis, block_size = LAYOUTS[layout]
    constants = quantized(name, shape, axis, block_size, zero_points)
    model, config = product(constants, axis, block_size), {LEVEL: accuracy}
    (fused,) = optimized(model, config=config).nodes
    assert fused.op_type == "MatMulNBits"
    expected = {"K": shape[0], "N": shape[1], "bits": int(name[-1]), "block_size": block_size or 32}
    assert fused.attributes == {**expected, "accuracy_level": int(accuracy)}
    has_zero_points = zero_points or name.startswith("u")
    assert len(fused.inputs) == 3 + has_zero_points
    weight = real(constants, axis, block_size)
    assert_parity(model, weight, config, tolerance_of(weight, accuracy), (name, shape[1]) not in ORT_WRONG)


def test_the_default_accuracy_level_is_four():
    (fused,) = optimized(product(quantized("int4", (64, 8), 0, 32, False), 0, 32)).nodes
    assert fused.attributes["accuracy_level"] == 4


@pytest.mark.parametrize("name", ["int4", "uint8"])
def test_half_precision(name):
    constants = quantized(name, (64, 20), 0, 32, True, np.float16)
    model = product(constants, 0, 32, element_type=TensorProto.FLOAT16)
    assert op_types(model) == ["Cast", "Cast", *FUSED]  # the provider computes in float, as it has the small scales
    weight = real(constants, 0, 32)
    assert_parity(model, weight, EXACT, np.abs(weight).sum(axis=0).max() * 2e-3)


def test_bfloat16_is_left():
    import ml_dtypes

    model = product(quantized("int4", (64, 20), 0, 32, False, ml_dtypes.bfloat16), 0, 32, element_type=TensorProto.BFLOAT16)
    assert "MatMulNBits" not in op_types(model)


BIAS = RNG.normal(size=20).astype(np.float32)


@pytest.mark.parametrize("bias", [None, BIAS])
def test_gemm(bias):
    constants = quantized("uint4", (64, 20), 0, 32, True)
    model = product(constants, 0, 32, "Gemm", bias, beta=1.0)
    assert op_types(model) == FUSED
    weight, added = real(constants, 0, 32), 0 if bias is None else bias
    result = assert_right(model, lambda x: x.astype(np.float64) @ weight + added, EXACT, tolerance_of(weight, "0"))
    np.testing.assert_allclose(result, onnxruntime_result(model, EXACT), atol=1e-4)


def test_gemm_whose_bias_is_dequantized_too():
    constants = quantized("int4", (64, 20), 0, 32, False)
    others = {"b": np.arange(20, dtype=np.int32), "bs": np.float32(0.1)}
    nodes = [
        dequantize(constants, 0, 32),
        node("DequantizeLinear", ["b", "bs"], ["bd"]),
        node("Gemm", ["x", "d", "bd"], ["y"]),
    ]
    model = model_of(nodes, [("x", FLOAT, [3, 64])], constants | others)
    assert op_types(model) == ["DequantizeLinear", "MatMulNBits"]
    weight = real(constants, 0, 32)
    wanted = 0.1 * np.arange(20)
    assert_right(model, lambda x: x.astype(np.float64) @ weight + wanted, EXACT, tolerance_of(weight, "0"))


@pytest.mark.parametrize(
    "attributes", [{"alpha": 2.0}, {"transA": 1}, {"transB": 1}, {"beta": 0.5, "bias": BIAS}, {"bias": BIAS[:1]}]
)
def test_gemm_that_is_more_than_a_product_is_left(attributes):
    shape = (20, 64) if attributes.get("transB") else (64, 20)
    constants = quantized("int4", shape, 0, 16, False)
    if attributes.get("transA"):
        nodes = [dequantize(constants, 0, 16), node("Gemm", ["x", "d"], ["y"], transA=1)]
        model = model_of(nodes, [("x", FLOAT, [64, 3])], constants)
    else:
        model = product(constants, 0, 16, "Gemm", **attributes)
    assert "MatMulNBits" not in op_types(model)


@pytest.mark.parametrize(
    ("shape", "axis", "block_size"),
    [((96, 20), 0, 8), ((600, 20), 0, 512), ((96, 20), 0, 24), ((96, 64), 1, 16), ((96, 20), 0, 0)],
    ids=["small blocks", "large blocks", "no power of two", "blocks along N", "channels along K"],
)
def test_other_blocks_are_left(shape, axis, block_size):
    model = product(quantized("int4", shape, axis, block_size, False), axis, block_size)
    assert op_types(model) == ["DequantizeLinear", "MatMul"]


def test_negative_axis_of_blocks_along_n_is_left():
    constants = quantized("int4", (96, 64), 1, 16, False)
    assert "MatMulNBits" not in op_types(product(constants, -1, 16))


def test_weights_of_three_axes_are_left():
    model = model_of(
        [dequantize(constants := quantized("int4", (2, 32, 20), 1, 16, False), 1, 16), node("MatMul", ["x", "d"], ["y"])],
        [("x", FLOAT, [2, 3, 32])],
        constants,
    )
    assert "MatMulNBits" not in op_types(model)


@pytest.mark.parametrize("dtype", [np.int16, np.uint16, np.int32])
def test_wider_types_are_left(dtype):
    constants = {"w": RNG.integers(0, 100, (64, 20)).astype(dtype), "s": scales((2, 20))}
    assert "MatMulNBits" not in op_types(product(constants, 0, 32))


@pytest.mark.parametrize("fed", ["w", "s", "z"])
def test_fed_parameters_are_left(fed):
    constants = quantized("int8", (64, 20), 0, 32, True)
    array = constants.pop(fed)
    kind = FLOAT if fed == "s" else TensorProto.INT8
    node_inputs = node("DequantizeLinear", ["w", "s", "z"], ["d"], axis=0, block_size=32)
    inputs = [("x", FLOAT, [3, 64]), (fed, kind, array.shape)]
    model = model_of([node_inputs, node("MatMul", ["x", "d"], ["y"])], inputs, constants)
    assert "MatMulNBits" not in op_types(model)


def test_dequantized_left_operand_is_left():
    constants = quantized("int4", (64, 64), 0, 32, False)
    model = model_of([dequantize(constants, 0, 32), node("MatMul", ["d", "x"], ["y"])], [("x", FLOAT, [64, 3])], constants)
    assert "MatMulNBits" not in op_types(model)


def test_both_operands_dequantized_are_left():
    constants = quantized("int4", (64, 20), 0, 32, False) | {"as": np.float32(0.1)}
    nodes = [
        dequantize(constants, 0, 32),
        node("DequantizeLinear", ["x", "as"], ["a"]),
        node("MatMul", ["a", "d"], ["y"]),
    ]
    assert "MatMulNBits" not in op_types(model_of(nodes, [("x", TensorProto.INT16, [3, 64])], constants))


def test_quantized_result_is_left():
    constants = quantized("int4", (64, 20), 0, 32, False) | {"ys": np.float32(0.1), "yz": np.array(3, np.uint8)}
    nodes = [dequantize(constants, 0, 32), node("MatMul", ["x", "d"], ["p"]), node("QuantizeLinear", ["p", "ys", "yz"], ["y"])]
    model = model_of(nodes, [("x", FLOAT, [3, 64])], constants, [("y", TensorProto.UINT8, None)])
    assert "MatMulNBits" not in op_types(model)


def test_dequantized_weight_that_is_an_output_is_left():
    constants = quantized("int4", (64, 20), 0, 32, False)
    nodes = [dequantize(constants, 0, 32), node("MatMul", ["x", "d"], ["y"])]
    model = model_of(nodes, [("x", FLOAT, [3, 64])], constants, [("y", FLOAT, None), ("d", FLOAT, None)])
    assert op_types(model) == ["DequantizeLinear", "MatMul"]


def test_dequantized_weight_that_others_read_is_left():
    constants = quantized("int4", (64, 20), 0, 32, False)
    nodes = [dequantize(constants, 0, 32), node("MatMul", ["x", "d"], ["y"]), node("Neg", ["d"], ["n"])]
    model = model_of(nodes, [("x", FLOAT, [3, 64])], constants, [("y", FLOAT, None), ("n", FLOAT, None)])
    assert op_types(model) == ["DequantizeLinear", "MatMul", "Neg"]


@pytest.mark.parametrize("config", [{"session.disable_quant_qdq": "1"}, None])
def test_it_can_be_disabled(config):
    model = product(quantized("int4", (64, 20), 0, 32, False), 0, 32)
    disabled = [] if config else ["DQMatMulToMatMulNBits"]
    assert "MatMulNBits" not in op_types(model, disabled, config)


# Shared weights


def two_products(constants, dequantizers=1):
    names = ["d", "d"] if dequantizers == 1 else ["d", "e"]
    nodes = [dequantize(constants, 0, 32, name) for name in dict.fromkeys(names)]
    nodes += [node("MatMul", ["x", names[0]], ["y"]), node("Gemm", ["v", names[1]], ["z_out"])]
    inputs = [("x", FLOAT, [2, 3, 64]), ("v", FLOAT, [5, 64])]
    return model_of(nodes, inputs, constants, [("y", FLOAT, None), ("z_out", FLOAT, None)])


@pytest.mark.parametrize("dequantizers", [1, 2])
def test_products_that_share_a_weight_share_the_derived_one(dequantizers):
    constants = quantized("int4", (64, 20), 0, 32, True)
    model = two_products(constants, dequantizers)
    graph = optimized(model, config=EXACT)
    first, second = graph.nodes
    assert {first.op_type, second.op_type} == {"MatMulNBits"}
    assert first.inputs[1:4] == second.inputs[1:4]
    assert sorted(graph.initializers) == ["s_T", "w_T", "z_T"]
    feeds, weight = feeds_of(model), real(constants, 0, 32)
    results = open_session(model, 2, config=EXACT).run(None, feeds)
    for result, name in zip(results, ("x", "v"), strict=True):
        np.testing.assert_allclose(result, feeds[name] @ weight, atol=tolerance_of(weight, "0"))


def test_weights_that_share_their_scales():
    constants = quantized("int4", (64, 20), 0, 32, False)
    others = {"w2": integers("int4", (64, 20))}
    nodes = [
        dequantize(constants, 0, 32),
        node("DequantizeLinear", ["w2", "s"], ["d2"], axis=0, block_size=32),
        node("MatMul", ["x", "d"], ["p"]),
        node("MatMul", ["x", "d2"], ["q"]),
        node("Add", ["p", "q"], ["y"]),
    ]
    graph = optimized(model_of(nodes, [("x", FLOAT, [3, 64])], constants | others))
    assert sorted(graph.initializers) == ["s_T", "w2_T", "w_T"]


def test_scales_of_weights_of_different_sizes():
    constants = {"w": integers("int4", (64, 20)), "s": np.float32(0.1), "w2": integers("int4", (20, 8))}
    nodes = [
        dequantize(constants, None, 0),
        node("DequantizeLinear", ["w2", "s"], ["d2"]),
        node("MatMul", ["x", "d"], ["p"]),
        node("MatMul", ["p", "d2"], ["y"]),
    ]
    model = model_of(nodes, [("x", FLOAT, [3, 64])], constants)
    graph = optimized(model)
    assert sorted(graph.initializers) == ["s_T", "s_T_1", "w2_T", "w_T"]
    weight = (constants["w"].astype(np.float64) * 0.1) @ (constants["w2"].astype(np.float64) * 0.1)
    assert_right(model, lambda x: x.astype(np.float64) @ weight, EXACT, 1e-3)


@pytest.mark.parametrize("name", ["int4", "uint4", "int8", "uint8", "uint2"])
@pytest.mark.parametrize("zero_points", [True, False])
@pytest.mark.parametrize(("size_k", "block_size"), [(64, 32), (40, 16), (35, 16)])
def test_embedding_tied_to_the_last_product(name, zero_points, size_k, block_size):
    """One table, [vocabulary, width]: rows are gathered from it, and its transpose gives the logits."""
    constants = quantized(name, (50, size_k), 1, block_size, zero_points)
    nodes = [
        dequantize(constants, 1, block_size),
        node("Gather", ["d", "ids"], ["x"]),
        node("Transpose", ["d"], ["t"], perm=[1, 0]),
        node("MatMul", ["x", "t"], ["y"]),
    ]
    model = model_of(nodes, [("ids", TensorProto.INT64, [2, 3])], constants)
    gathered = ["Gather", "DequantizeLinear"] if name.endswith("2") else ["GatherBlockQuantized"]
    if not name.endswith("2"):
        assert op_types(model) == [*gathered, "MatMulNBits"]
    feeds = {"ids": np.array([[0, 49, 7], [-1, 3, 3]])}
    table = real(constants, 1, block_size)
    session = open_session(model, 2, config=EXACT)
    for _ in range(2):
        (result,) = session.run(None, feeds)
        np.testing.assert_allclose(result, table[feeds["ids"]] @ table.T, atol=1e-2 if name.endswith("8") else 1e-4, rtol=1e-4)


def test_transposed_unsigned_weights_stay_where_they_are():
    constants = quantized("uint4", (50, 64), 1, 32, True)
    nodes = [dequantize(constants, 1, 32), node("Transpose", ["d"], ["t"]), node("MatMul", ["x", "t"], ["y"])]
    graph = optimized(model_of(nodes, [("x", FLOAT, [3, 64])], constants))
    derived = graph.initializers["w_T"]
    assert isinstance(derived, DerivedTensor)
    assert np.shares_memory(derived.numpy(), derived.sources[0].packed())


# Options


def test_block_size_option():
    constants = quantized("int8", (100, 12), None, 0, False)
    model = product(constants, None, 0)
    weight = real(constants, None, 0)
    for value, wanted in {"0": 32, "16": 16, "256": 256, "-1": 16}.items():
        config = EXACT | {BLOCK_SIZE: value}
        (fused,) = optimized(model, config=config).nodes
        assert fused.attributes["block_size"] == wanted
        assert_parity(model, weight, config, tolerance_of(weight, "0"))


@pytest.mark.parametrize(("size_k", "wanted"), [(256, 256), (192, 64), (512, 256), (10, 16), (33, 16), (96, 32)])
def test_block_size_that_fits_best(size_k, wanted):
    model = product(quantized("int8", (size_k, 4), None, 0, False), None, 0)
    (fused,) = optimized(model, config={BLOCK_SIZE: "-1"}).nodes
    assert fused.attributes["block_size"] == wanted


@pytest.mark.parametrize(("key", "value"), [(BLOCK_SIZE, "48"), (BLOCK_SIZE, "many"), (LEVEL, "5"), (LEVEL, "")])
def test_options_that_are_none(key, value):
    model = product(quantized("int8", (64, 4), None, 0, False), None, 0)
    with pytest.raises(InvalidArgument, match=f"{key} is .*allowed are"):
        open_session(model, 2, config={key: value})


def test_weights_of_outer_graphs():
    """A product in a branch, by a weight of the main graph."""
    from onnx import helper

    constants = quantized("int4", (64, 20), 0, 32, False)
    output = helper.make_tensor_value_info("r", FLOAT, None)
    then = helper.make_graph([dequantize(constants, 0, 32), node("MatMul", ["x", "d"], ["r"])], "then", [], [output])
    other = helper.make_graph([node("Neg", ["n"], ["r"])], "else", [], [output])
    nodes = [node("If", ["c"], ["y"], then_branch=then, else_branch=other)]
    inputs = [("c", TensorProto.BOOL, []), ("x", FLOAT, [3, 64]), ("n", FLOAT, [3, 20])]
    model = model_of(nodes, inputs, constants)
    feeds = {"c": np.array(True), "x": RNG.normal(size=(3, 64)).astype(np.float32), "n": np.zeros((3, 20), np.float32)}
    graph = optimized(model, config=EXACT)
    assert [inner.op_type for inner in graph.nodes[0].subgraphs["then_branch"].nodes] == FUSED
    (result,) = open_session(model, 2, config=EXACT).run(None, feeds)
    np.testing.assert_allclose(result, feeds["x"] @ real(constants, 0, 32), atol=1e-4)


def test_constants_are_derived_only_when_they_are_read():
    constants = quantized("int4", (64, 20), 0, 32, True)
    graph = optimized(product(constants, 0, 32))
    assert all(isinstance(tensor, DerivedTensor) for tensor in graph.initializers.values())


def test_shapes_that_do_not_fit_are_refused_as_without_the_pass():
    constants = quantized("int4", (64, 20), 0, 32, False)
    nodes = [dequantize(constants, 0, 32), node("MatMul", ["x", "d"], ["y"])]
    model = model_of(nodes, [("x", FLOAT, ["n", "k"])], constants)
    session = open_session(model, 2)
    with pytest.raises(OrtSdkError, match="K = 64"):
        session.run(None, {"x": np.zeros((2, 63), np.float32)})


def odd_types(what):
    """A model one type in which its operators refuse."""
    dtype = np.float16 if what == "first factor" else np.float32
    axis, block_size = (1, 0) if what == "version" else (0, 32)
    constants = quantized("int4", (64, 20), axis, block_size, True)
    if what == "zero points":
        constants["z"] = integers("uint4", constants["z"].shape)
    x = TensorProto.FLOAT16 if dtype == np.float16 else FLOAT
    nodes = [dequantize(constants, axis, block_size), node("MatMul", ["x", "d"], ["y"])]
    model = onnx.load_from_string(model_of(nodes, [("x", x, ["n", 64])], constants))
    if what == "version":
        next(each for each in model.opset_import if not each.domain).version = 19
    return model.SerializeToString()


@pytest.mark.parametrize("what", ["first factor", "zero points", "version"])
def test_types_that_do_not_fit_are_refused_as_without_the_pass(what):
    for level in (0, 2):
        with pytest.raises(InvalidGraph, match="Type Error"):
            open_session(odd_types(what), level)


def test_a_product_that_reads_another_and_one_of_unknown_type():
    constants = quantized("int4", (64, 64), 0, 32, True)
    nodes = [
        dequantize(constants, 0, 32),
        node("Relu", ["x"], ["r"]),
        node("MatMul", ["r", "d"], ["p"]),
        node("MatMul", ["p", "d"], ["y"]),
    ]
    model = model_of(nodes, [("x", FLOAT, [5, 64])], constants)
    assert op_types(model) == ["MatMulNBits", "MatMulNBits", "Relu"]
    weight = real(constants, 0, 32)
    assert_right(model, lambda x: np.maximum(x, 0).astype(np.float64) @ weight @ weight, EXACT, 1e-2)
