"""ORT's optional fusion of dequantized uint4 weights, before nodes are placed."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto

from ort_sdk.graph.derived_tensor import DerivedTensor
from tests.optimizer.extended.fused_graph import FLOAT, feeds_of, node, open_session
from tests.optimizer.extended.quantized_models import EXACT, RNG, integers, model_of, scales

CONFIG = EXACT | {"session.enable_dq_matmulnbits_fusion": "1"}
N, BLOCKS, BLOCK = 24, 3, 32
K = BLOCKS * BLOCK
BIAS = RNG.normal(size=N).astype(np.float32)
PRODUCT = ["MatMulNBits"]


def zeros(kind, shape):
    """Zero points: none, all 8, or any."""
    if kind == "none":
        return {}
    return {"z": np.full(shape, 8).astype(ml_dtypes.uint4) if kind == "eights" else integers("uint4", shape)}


def reshaped(kind="none", *, cast=False, target=(N, K), perm=(1, 0), name="uint4"):
    """Nodes of pattern 1, their constants, the name of the matrix, and the matrix in float64."""
    constants = {"w": integers(name, (N, BLOCKS, BLOCK)), "s": scales((N, BLOCKS, 1))} | zeros(kind, (N, BLOCKS, 1))
    nodes = [
        node("DequantizeLinear", list(constants), ["d"], axis=2, block_size=BLOCK),
        node("Reshape", ["d", "target"], ["r"]),
        node("Transpose", ["r"], ["t"], perm=perm),
    ]
    if cast:
        nodes.append(node("Cast", ["t"], ["c"], to=FLOAT))
    offset = constants.get("z", np.zeros(1)).astype(np.float64)
    matrix = ((constants["w"].astype(np.float64) - offset) * constants["s"]).reshape(N, K).T
    return nodes, constants | {"target": np.array(target)}, "c" if cast else "t", matrix


def direct(kind="none", *, size_k=K, name="uint4", block=BLOCK, axis=0):
    """The same of pattern 2."""
    shape = (-(-size_k // block), N) if axis == 0 else (size_k, -(-N // block))
    constants = {"w": integers(name, (size_k, N)), "s": scales(shape)} | zeros(kind, shape)
    nodes = [node("DequantizeLinear", list(constants), ["d"], axis=axis, block_size=block)]
    spread = {key: np.repeat(constants[key].astype(np.float64), block, axis) for key in constants if key != "w"}
    parts = {key: values[:size_k, :N] for key, values in spread.items()}
    return nodes, constants, "d", (constants["w"].astype(np.float64) - parts.get("z", 0)) * parts["s"]


def product_of(pattern, operator="MatMul", bias=None, **attributes):
    nodes, constants, matrix_name, matrix = pattern
    extra = {} if bias is None else {"b": bias}
    model = model_of(
        [*nodes, node(operator, ["x", matrix_name, *extra], ["y"], **attributes)],
        [("x", FLOAT, [5, len(matrix)])],
        constants | extra,
    )
    return model, matrix


def graph_of(model, config=CONFIG):
    return open_session(model, 1, config=config)._state.model.graph


def assert_fused(model, matrix, bias=0.0):
    graph = graph_of(model)
    assert [found.op_type for found in graph.nodes] == PRODUCT
    feeds = feeds_of(model)
    session = open_session(model, 1, config=CONFIG)
    options = onnxruntime.SessionOptions()
    for key, value in CONFIG.items():
        options.add_session_config_entry(key, value)
    wanted = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"]).run(None, feeds)[0]
    for _ in range(2):
        (result,) = session.run(None, feeds)
        np.testing.assert_allclose(result, feeds["x"] @ matrix + bias, atol=1e-3)
        np.testing.assert_allclose(result, wanted, atol=1e-3)
    return graph.nodes[0], graph.initializers


@pytest.mark.parametrize("make", [reshaped, direct])
@pytest.mark.parametrize(("kind", "inputs"), [("none", 4), ("eights", 3), ("any", 4)])
def test_zero_points(make, kind, inputs):
    fused, initializers = assert_fused(*product_of(make(kind)))
    assert len(fused.inputs) == inputs
    assert all(isinstance(initializers[name], DerivedTensor) for name in fused.inputs[1:])


@pytest.mark.parametrize("make", [reshaped, direct])
def test_gemm_with_bias(make):
    fused, _ = assert_fused(*product_of(make(), "Gemm", BIAS), bias=BIAS)
    assert fused.inputs[5] == "b"


@pytest.mark.parametrize("target", [(N, K), (0, -1), (-1, K), (N, -1)])
def test_targets_of_the_reshape(target):
    assert_fused(*product_of(reshaped(target=target)))


def test_a_cast_to_the_same_type():
    model, matrix = product_of(reshaped(cast=True))
    assert_fused(model, matrix)


def test_a_reshaped_weight_stays_where_it_is():
    fused, initializers = assert_fused(*product_of(reshaped()))
    weight = initializers[fused.inputs[1]]
    assert np.shares_memory(weight.numpy(), weight.sources[0].packed())


@pytest.mark.parametrize(
    "make",
    [
        lambda: product_of(reshaped(name="int4")),
        lambda: product_of(direct(name="uint8")),
        lambda: product_of(direct(block=8)),
        lambda: product_of(direct(size_k=80)),
        lambda: product_of(direct(axis=1, block=16)),
        lambda: product_of(direct(), "Gemm", alpha=2.0),
        lambda: product_of(direct(), "Gemm", BIAS, beta=0.5),
        lambda: product_of(direct(), "Gemm", BIAS[:1]),
    ],
    ids=["signed", "bytes", "small blocks", "padding", "blocks along N", "alpha", "beta", "short bias"],
)
def test_others_are_left(make):
    model, _ = make()
    assert "MatMulNBits" not in [found.op_type for found in graph_of(model).nodes]


def test_other_readers_of_the_weight_keep_it():
    nodes, constants, name, _ = direct()
    nodes += [node("MatMul", ["x", name], ["y"]), node("Neg", [name], ["n"])]
    model = model_of(nodes, [("x", FLOAT, [5, K])], constants, [("y", FLOAT, None), ("n", FLOAT, None)])
    assert "MatMulNBits" not in [found.op_type for found in graph_of(model).nodes]


def test_it_is_asked_for():
    model, _ = product_of(direct())
    assert "MatMulNBits" not in [found.op_type for found in graph_of(model, EXACT).nodes]


def test_fed_scales_are_left():
    nodes, constants, name, _ = direct()
    del constants["s"]
    inputs = [("x", FLOAT, [5, K]), ("s", FLOAT, [BLOCKS, N])]
    model = model_of([*nodes, node("MatMul", ["x", name], ["y"])], inputs, constants)
    assert "MatMulNBits" not in [found.op_type for found in graph_of(model).nodes]


def test_float16_and_float_do_not_mix():
    """The scales are float, and so is the product; a Cast to half between them is kept."""
    nodes, constants, _, _ = direct()
    nodes += [node("Cast", ["d"], ["h"], to=TensorProto.FLOAT16), node("MatMul", ["x", "h"], ["y"])]
    model = model_of(nodes, [("x", TensorProto.FLOAT16, [5, K])], constants, [("y", TensorProto.FLOAT16, None)])
    assert "MatMulNBits" not in [found.op_type for found in graph_of(model).nodes]
