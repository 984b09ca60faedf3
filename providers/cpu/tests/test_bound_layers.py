"""Bound kernels of whole layers: products, convolution, pooling, normalization, attention, recurrence."""

import numpy as np
import pytest

MICROSOFT = "com.microsoft"


@pytest.mark.parametrize("shape", [(5,), (3, 4), (2, 3, 5), (0, 4), (700, 130)], ids=str)
def test_softmax(check, layouts, shape):
    for x in layouts(shape):
        for axis in range(-len(shape), len(shape)):
            check("Softmax", x, axis=axis, tolerance=1e-6)
        for axis in range(len(shape)):
            check("Softmax", x, axis=axis, version=11, tolerance=1e-6)


@pytest.mark.parametrize("shape", [(6,), (3, 8), (2, 5, 8), (900, 96)], ids=str)
def test_normalizations_of_rows(check, layouts, shape):
    rng = np.random.default_rng(0)
    scale, shift = (rng.standard_normal(shape[-1]).astype(np.float32) for _ in range(2))
    for x in (np.nan_to_num(layout) for layout in layouts(shape)):
        check("LayerNormalization", x, scale, shift, tolerance=2e-5)
        check("LayerNormalization", x, scale, tolerance=2e-5)
        check("RMSNormalization", x, scale, tolerance=2e-5)
        check("LayerNormalization", x, np.ones(shape, np.float32), np.ones(shape, np.float32), axis=0, tolerance=2e-5)
        if len(shape) > 1:
            check("SkipLayerNormalization", x, x, scale, shift, shift, domain=MICROSOFT, tolerance=2e-5)
            check("SkipLayerNormalization", x, x, scale, domain=MICROSOFT, tolerance=2e-5)
            check("SkipSimplifiedLayerNormalization", x, x, scale, shift, domain=MICROSOFT, tolerance=2e-5)


@pytest.mark.parametrize("constants", [(), (1, 2, 3, 4)])
def test_batch_normalization(check, layouts, constants):
    rng = np.random.default_rng(0)
    parameters = [rng.random(3).astype(np.float32) for _ in range(4)]
    for shape in [(2, 3), (2, 3, 4, 5), (0, 3, 2)]:
        for x in layouts(shape):
            check("BatchNormalization", x, *parameters, constants=constants, tolerance=1e-6)


PRODUCTS = [
    *[((3, 4), (4, 5)), ((2, 3, 4), (4, 5)), ((2, 3, 4), (2, 4, 5)), ((4,), (4, 5)), ((3, 4), (4,)), ((4,), (4,))],
    *[((0, 4), (4, 5)), ((2, 3, 0), (0, 5)), ((5, 1, 3, 4), (2, 4, 6))],
]


@pytest.mark.parametrize("shapes", PRODUCTS, ids=str)
def test_matmul(check, layouts, shapes):
    for a, b in zip(layouts(shapes[0]), layouts(shapes[1], seed=1), strict=True):
        check("MatMul", np.nan_to_num(a, posinf=1, neginf=1), np.nan_to_num(b, posinf=1, neginf=1), tolerance=1e-5)
    check("MatMul", layouts(shapes[0], np.int32)[0], layouts(shapes[1], np.int32)[0])


@pytest.mark.parametrize("trans", [(0, 0), (1, 0), (0, 1), (1, 1)], ids=str)
def test_gemm_and_fused_products(check, trans):
    rng = np.random.default_rng(0)
    a = rng.standard_normal((4, 3) if trans[0] else (3, 4)).astype(np.float32)
    b = rng.standard_normal((5, 4) if trans[1] else (4, 5)).astype(np.float32)
    attributes = {"transA": trans[0], "transB": trans[1], "alpha": 0.5, "tolerance": 1e-5}
    for c in ([], [np.float32(2).reshape(())], [rng.standard_normal((1, 5)).astype(np.float32)]):
        check("Gemm", a, b, *c, beta=1.5, **attributes)
        check("FusedGemm", a, b, *c, domain=MICROSOFT, activation="Relu", **attributes)
    check("FusedMatMul", np.stack([a, a]), b, domain=MICROSOFT, **attributes)
    for activation in ("Relu", "Sigmoid", "Tanh", "LeakyRelu"):
        options = {"activation": activation, "activation_alpha": 0.25}
        check("FusedMatMulActivation", a, b, domain=MICROSOFT, **options, **attributes)


CONVOLUTIONS = [
    ((1, 3, 8, 8), (5, 3, 1, 1), {}),
    ((2, 4, 9, 8), (6, 4, 3, 3), {"pads": [1, 1, 1, 1]}),
    ((2, 4, 9, 8), (6, 2, 3, 2), {"group": 2, "strides": [2, 1], "pads": [0, 1, 2, 0]}),
    ((2, 6, 9, 8), (6, 1, 3, 3), {"group": 6, "pads": [1, 1, 1, 1], "dilations": [2, 1]}),
    ((1, 6, 7), (12, 1, 3), {"group": 6}),
    ((1, 2, 4, 5, 6), (3, 2, 2, 2, 2), {"auto_pad": "SAME_UPPER"}),
    ((0, 3, 8, 8), (5, 3, 3, 3), {}),
    ((1, 32, 64, 64), (8, 32, 5, 5), {"pads": [2, 2, 2, 2]}),
    ((1, 40, 90, 90), (40, 1, 3, 3), {"group": 40, "strides": [2, 2]}),
    ((2, 3, 8, 8), (5, 3, 1, 1), {"strides": [2, 2]}),
]


@pytest.mark.parametrize(("x_shape", "w_shape", "attributes"), CONVOLUTIONS, ids=str)
def test_convolution(check, run_both, layouts, x_shape, w_shape, attributes):
    rng = np.random.default_rng(0)
    weight, bias = rng.standard_normal(w_shape).astype(np.float32), rng.standard_normal(w_shape[0]).astype(np.float32)
    for layout in layouts(x_shape):
        x = np.nan_to_num(layout, posinf=1, neginf=1)
        check("Conv", x, weight, bias, tolerance=1e-4, **attributes)
        check("Conv", x, weight, tolerance=1e-4, **attributes)
        for activation in ("Relu", "HardSigmoid", "LeakyRelu"):
            parameters = [0.1, 0.5][: 1 + (activation == "HardSigmoid")]
            fused = {"domain": MICROSOFT, "activation": activation, "activation_params": parameters}
            check("FusedConv", x, weight, bias, tolerance=1e-4, **fused, **attributes)
    expected, _ = run_both("Conv", x, weight, **attributes)
    check("FusedConv", x, weight, bias, np.ones_like(expected[0]), tolerance=1e-4, domain=MICROSOFT, **attributes)


@pytest.mark.parametrize("op_type", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize(
    "attributes",
    [
        {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]},
        {"kernel_shape": [1, 1]},
        {"kernel_shape": [2, 2], "ceil_mode": 1, "strides": [3, 3]},
        {"kernel_shape": [3, 3], "auto_pad": "SAME_LOWER", "dilations": [2, 2]},
    ],
    ids=str,
)
def test_pooling(check, layouts, op_type, attributes):
    for x in layouts((2, 3, 9, 8)):
        check(op_type, x, tolerance=1e-6, **attributes)
    if op_type == "AveragePool":
        check(op_type, np.ones((1, 2, 7, 7), np.float32), count_include_pad=1, **attributes)
    else:
        check(op_type, layouts((2, 3, 9, 8), np.uint8)[2], **attributes)


def test_global_pooling(check, layouts):
    for shape in [(2, 3, 4, 5), (2, 3, 7), (1, 2, 3, 4, 5)]:
        for x in layouts(shape):
            check("GlobalAveragePool", x, tolerance=1e-6)
            check("GlobalMaxPool", x)


def test_softmax_of_rows_far_apart(check):
    """Rows that vanish beside the largest element of all, masked ones, and rows of nothing but infinities."""
    x = np.random.default_rng(0).standard_normal((6, 50)).astype(np.float32)
    x += np.array([0, -19, -90, 300, -1e9, 1e9], np.float32)[:, None]
    check("Softmax", x, tolerance=1e-6)
    x[2, 10:] = -np.inf
    check("Softmax", x, tolerance=1e-6)
    x[3, :] = -np.inf
    check("Softmax", x, tolerance=1e-6)
    check("Softmax", np.where(np.arange(50) < 30, x[:1], np.finfo(np.float32).min), tolerance=1e-6)


def test_softmax_with_a_bias(check, layouts):
    for x in layouts((2, 3, 4, 5)):
        for axis, inner, shape in [(3, 1, (2, 3, 1, 5)), (3, 0, (4, 5)), (2, 1, (2, 1, 4, 5)), (-1, 0, (1, 1, 4, 5))]:
            options = {"axis": axis, "is_inner_broadcast": inner, "domain": MICROSOFT, "tolerance": 1e-6}
            check("BiasSoftmax", x, layouts(shape)[0], **options)


@pytest.mark.parametrize("keys", [4, 7, 700])
@pytest.mark.parametrize("unidirectional", [0, 1])
def test_multi_head_attention(check, keys, unidirectional):
    rng = np.random.default_rng(keys)
    length = min(keys, 300)
    query, key = (rng.standard_normal((2, size, 12)).astype(np.float32) for size in (length, keys))
    value, bias = rng.standard_normal((2, keys, 12)).astype(np.float32), rng.standard_normal(36).astype(np.float32)
    mask = (rng.random((2, keys)) < 0.8).astype(np.int32)
    added = rng.standard_normal((1, 3, length, keys)).astype(np.float32)
    options = {"domain": MICROSOFT, "num_heads": 3, "unidirectional": unidirectional, "tolerance": 1e-5}
    check("MultiHeadAttention", query, key, value, **options)
    check("MultiHeadAttention", query, key, value, bias, **options)
    check("MultiHeadAttention", query, key, value, None, mask, added, scale=0.3, **options)
    by_head = [np.ascontiguousarray(part.reshape(2, keys, 3, 4).transpose(0, 2, 1, 3)) for part in (key, value)]
    check("MultiHeadAttention", query, *by_head, **options)
    packed = np.stack([part.reshape(2, keys, 3, 4) for part in (key, value)], axis=3)
    check("MultiHeadAttention", query, packed, **options)


@pytest.mark.parametrize(("batch", "length", "keys"), [(0, 3, 3), (1, 0, 3), (1, 3, 0)])
def test_multi_head_attention_of_nothing(check, batch, length, keys):
    query, key = np.ones((batch, length, 12), np.float32), np.ones((batch, keys, 12), np.float32)
    check("MultiHeadAttention", query, key, key, domain=MICROSOFT, num_heads=3)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("op_type", ["LSTM", "GRU"])
def test_recurrent_operators(check, run_both, op_type, direction):
    rng = np.random.default_rng(0)
    directions, gates, hidden = 1 + (direction == "bidirectional"), 4 if op_type == "LSTM" else 3, 6
    x = rng.standard_normal((5, 3, 4)).astype(np.float32)
    w = rng.standard_normal((directions, gates * hidden, 4)).astype(np.float32)
    r, b = (rng.standard_normal((directions, gates * hidden, *rest)).astype(np.float32) for rest in ((hidden,), ()))
    b = np.concatenate([b, b + 1], axis=1)
    initial = [rng.standard_normal((directions, 3, hidden)).astype(np.float32) for _ in range(gates - 2)]
    states = tuple(range(gates - 1))
    for attributes in [{}] if op_type == "LSTM" else [{"linear_before_reset": 0}, {"linear_before_reset": 1}]:
        options = {"hidden_size": hidden, "direction": direction, "wanted": states, "tolerance": 1e-5, **attributes}
        check(op_type, x, w, r, **options)
        check(op_type, x, w, r, b, None, *initial, **options)
        check(op_type, np.asfortranarray(x), w, r, b, **options)
    check(op_type, x, w, r, b, None, *initial, clip=1.0, **options)
    softsigns = ["Softsign"] * directions * (gates - 1)
    _, bound = run_both(op_type, x, w, r, hidden_size=hidden, direction=direction, activations=softsigns)
    assert bound is None
