"""DequantizeLinear of blocks, and a number added to each, before MatMul and Gemm: when it becomes MatMulNBits."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest

import ort_sdk
from tests.optimizer.extended.fused_graph import FLOAT, feeds_of, node, op_types, open_session, optimized, saved_graph
from tests.optimizer.extended.quantized_models import DTYPES, EXACT, integers, model_of, scales

RNG = np.random.default_rng(5)
UNIT = float(np.finfo(np.float32).eps) / 2


def shifted(name, sizes, *, zero_points=False):
    """Constants of a weight [N, blocks, block size], with a number of each block to add."""
    rows, blocks, block_size = sizes
    of_blocks = (rows, blocks, 1)
    made = {"w": integers(name, sizes), "s": scales(of_blocks), "m": RNG.uniform(-1, 1, of_blocks).astype(np.float32)}
    made |= {"z": integers(name, of_blocks)} if zero_points else {}
    return made | {"shape": np.array([rows, blocks * block_size])}


def shifted_model(constants, operator="Add", inputs=("d", "m"), *, products=1, perm=(1, 0), bias=None, outputs=()):
    _, blocks, block_size = constants["w"].shape
    nodes = [
        node("DequantizeLinear", [name for name in "wsz" if name in constants], ["d"], axis=2, block_size=block_size),
        *(node(operator, list(inputs), ["a"]), node("Reshape", ["a", "shape"], ["r"])),
        node("Transpose", ["r"], ["t"], perm=list(perm)),
    ]
    given = constants if bias is None else constants | {"bias": bias}
    names = [f"y{index}" if index else "y" for index in range(products)]
    nodes += [node("MatMul", ["x", "t"], [name]) if bias is None else node("Gemm", ["x", "t", "bias"], [name]) for name in names]
    results = [(name, FLOAT, None) for name in (*names, *outputs)]
    return model_of(nodes, [("x", FLOAT, ["n", blocks * block_size])], given, results)


def weight_of(constants, sign=1):
    """[K, N] in float64, and the sum of the magnitudes of its parts."""
    zeros = constants["z"].astype(np.float64) if "z" in constants else 0.0
    scaled = (constants["w"].astype(np.float64) - zeros) * constants["s"].astype(np.float64)
    added = constants["m"].astype(np.float64)
    parts = np.abs(constants["w"].astype(np.float64) * constants["s"]) + np.abs(zeros * constants["s"]) + np.abs(added)
    return [array.reshape(len(array), -1).T for array in (scaled + sign * added, parts)]


def assert_near(model, constants, *, sign=1, bias=0.0):
    """Both runs are as near float64's result as sums of rounded products of rounded weights are."""
    feeds = feeds_of(model)
    weight, parts = weight_of(constants, sign)
    x = feeds["x"].astype(np.float64)
    bound = (len(weight) + 8) * UNIT * (np.abs(x) @ parts + np.abs(bias)) + len(weight) * np.finfo(np.float32).tiny * 16
    session = open_session(model, 2, config=EXACT)
    for _ in range(2):
        (result,) = session.run(["y"], feeds)
        assert np.all(np.abs(result - (x @ weight + bias)) <= bound)


@pytest.mark.parametrize("zero_points", [False, True])
@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("sizes", [(20, 3, 32), (7, 5, 16)])
def test_a_number_of_each_block(name, zero_points, sizes):
    constants = shifted(name, sizes, zero_points=zero_points)
    model = shifted_model(constants)
    (fused,) = optimized(model, config=EXACT).nodes
    assert fused.op_type == "MatMulNBits"
    assert len(fused.inputs) == 4
    assert_near(model, constants)


@pytest.mark.parametrize(("operator", "inputs", "sign"), [("Add", ("m", "d"), 1), ("Sub", ("d", "m"), -1)])
def test_added_from_either_side_or_subtracted(operator, inputs, sign):
    constants = shifted("uint4", (12, 2, 32))
    model = shifted_model(constants, operator, inputs)
    assert op_types(model, config=EXACT) == ["MatMulNBits"]
    assert_near(model, constants, sign=sign)


def test_scales_that_are_zero_or_lost_beside_their_minimum():
    constants = shifted("uint4", (16, 2, 32), zero_points=True)
    constants["s"][:4] = 0
    constants["s"][4:8] = 1e-40
    constants["s"][8:10] = -constants["s"][8:10]
    constants["m"][0] = 0
    constants["m"][1] = 1e-42
    constants["m"][5] = 1e30
    constants["m"][10] = 1e-30
    constants["s"][11], constants["m"][11] = 1e-9, 1
    model = shifted_model(constants)
    assert op_types(model, config=EXACT) == ["MatMulNBits"]
    assert_near(model, constants)
    (fused,) = optimized(model, config=EXACT).nodes
    for name in fused.inputs[2:4]:
        assert np.isfinite(optimized(model, config=EXACT).initializers[name].numpy()).all()


def test_scales_are_read_where_they_are_if_none_is_lost():
    constants = shifted("uint4", (16, 2, 32))
    graph = optimized(shifted_model(constants), config=EXACT)
    scales_tensor = graph.initializers[graph.nodes[0].inputs[2]]
    assert np.shares_memory(scales_tensor.numpy(), scales_tensor.sources[0].numpy())


def test_a_gemm_with_a_bias_and_several_readers():
    constants = shifted("uint4", (12, 2, 32))
    bias = RNG.standard_normal(12).astype(np.float32)
    model = shifted_model(constants, bias=bias, products=2)
    assert op_types(model, config=EXACT) == ["MatMulNBits", "MatMulNBits"]
    assert_near(model, constants, bias=bias)


@pytest.mark.parametrize("accuracy", ["0", "4"])
def test_as_onnxruntime_computes_it(accuracy):
    constants = shifted("uint4", (24, 4, 32))
    constants["m"] = -np.abs(constants["m"]) / 2
    model = shifted_model(constants)
    feeds = feeds_of(model)
    (wanted,) = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, feeds)
    session = open_session(model, 2, config={"session.qdq_matmulnbits_accuracy_level": accuracy})
    _, parts = weight_of(constants)
    tolerance = (np.abs(feeds["x"]) @ parts).max() * (1e-5 if accuracy == "0" else 1 / 127)
    np.testing.assert_allclose(session.run(None, feeds)[0], wanted, rtol=0, atol=tolerance)


@pytest.mark.parametrize("shape", [(12, 1, 1), (1, 2, 1), (12, 2, 32), (1,)])
def test_what_is_no_number_of_each_block_is_left(shape):
    constants = shifted("uint4", (12, 2, 32)) | {"m": RNG.standard_normal(shape).astype(np.float32)}
    model = shifted_model(constants)
    assert "MatMulNBits" not in op_types(model, config=EXACT)
    assert_near(model, constants | {"m": np.broadcast_to(constants["m"], (12, 2, 32))})


def test_what_others_read_is_left():
    model = shifted_model(shifted("uint4", (12, 2, 32)), outputs=("a",))
    assert "MatMulNBits" not in op_types(model, config=EXACT)
    model = shifted_model(shifted("uint4", (12, 2, 32)), "Sub", ("m", "d"))
    assert "MatMulNBits" not in op_types(model, config=EXACT)


def test_it_can_be_left_out():
    model = shifted_model(shifted("uint4", (12, 2, 32)))
    assert "MatMulNBits" not in op_types(model, ["DQShiftMatMulToMatMulNBits"])
    assert "MatMulNBits" not in op_types(model, config={"session.disable_quant_qdq": "1"})


def test_what_is_saved_gives_the_same(tmp_path):
    constants = shifted("uint4", (12, 2, 32))
    model = shifted_model(constants)
    graph = saved_graph(model, 2, tmp_path)
    assert [found.op_type for found in graph.node] == ["MatMulNBits"]
    feeds = feeds_of(model)
    (wanted,) = open_session(model, 2).run(None, feeds)
    for library in (ort_sdk, onnxruntime):
        session = library.InferenceSession(str(tmp_path / "saved.onnx"), providers=["CPUExecutionProvider"])
        (found,) = session.run(None, feeds)
        _, parts = weight_of(constants)
        np.testing.assert_allclose(found, wanted, rtol=0, atol=(np.abs(feeds["x"]) @ parts).max() / 127)
