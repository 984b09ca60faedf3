"""Attention on a device against NumPy in float64, and the operators that use it against the CPU provider, with programs."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import ort_sdk as ort
from ort_sdk.api import TensorElementType
from ort_sdk.device.attention.attend import attend_cache
from ort_sdk.device.attention.extras import CacheLengths, Extras

pytestmark = pytest.mark.opencl

DEVICE, HOST = ["OpenCLExecutionProvider", "CPUExecutionProvider"], ["CPUExecutionProvider"]
# batch, heads, key heads, queries, keys, size, value size
SIZES = [
    (2, 4, 2, 3, 7, 8, 8),
    (1, 8, 2, 1, 700, 64, 64),
    (1, 2, 2, 33, 65, 20, 12),
    (2, 3, 1, 5, 130, 128, 128),
    (1, 1, 1, 1, 1, 7, 5),
]


def reference(q, k, v, biases, scale, sink=None, softcap=0.0):
    """(batch, heads, queries, value size) in float64; rows without a key that counts are zeros."""
    q, k, v = (each.astype(np.float64) for each in (q, k, v))
    k, v = (np.repeat(each, q.shape[1] // k.shape[1], 1) for each in (k, v))
    scores = q @ k.swapaxes(-1, -2) * scale
    if softcap:
        scores = softcap * np.tanh(scores / softcap)
    for bias in biases:
        scores = scores + bias
    top = scores.max(-1, keepdims=True)
    if sink is not None:
        top = np.maximum(top, sink.reshape(1, -1, 1, 1))
    top = np.where(np.isinf(top), 0, top)
    powers = np.exp(scores - top)
    total = powers.sum(-1, keepdims=True) + (0 if sink is None else np.exp(sink.reshape(1, -1, 1, 1) - top))
    return powers / np.where(total == 0, 1, total) @ v


def _arrays(sizes, kind, seed=0):
    batch, heads, key_heads, queries, keys, size, value_size = sizes
    rng = np.random.default_rng(seed)
    shapes = ((batch, heads, queries, size), (batch, key_heads, keys, size), (batch, key_heads, keys, value_size))
    return [rng.standard_normal(shape).astype(kind) for shape in shapes]


@pytest.mark.parametrize("kind", [np.float32, np.float16])
@pytest.mark.parametrize("sizes", SIZES)
def test_attention(xp_of_units, sizes, kind):
    xp, rng = xp_of_units, np.random.default_rng(1)
    q, k, v = _arrays(sizes, kind)
    batch, heads, _, queries, keys, *_ = sizes
    hidden = rng.random((batch, 1, queries, keys)) < 0.3
    hidden[..., 0] = False
    if queries > 1:
        hidden[0, 0, 1] = True
    biases = [np.where(hidden, -np.inf, rng.standard_normal(hidden.shape)), rng.standard_normal((1, heads, 1, keys))]
    own = [xp.astype(xp.from_host(each), TensorElementType.FLOAT) for each in (q, k, v)]
    got = xp.attention(*own, [xp.from_host(each.astype(np.float32)) * 1 for each in biases], 0.3)
    assert got.element_type is TensorElementType.FLOAT
    tolerance = 1e-5 if kind == np.float32 else 2e-3
    np.testing.assert_allclose(xp.to_host(got), reference(q, k, v, biases, 0.3), rtol=tolerance, atol=tolerance)


def test_heads_that_are_views(xp):
    q, k, v = (np.random.default_rng(0).standard_normal((2, 9, 3, 16)).astype(np.float32) for _ in range(3))
    own = [xp.permute_dims(xp.from_host(each), (0, 2, 1, 3)) for each in (q, k, v)]
    wanted = reference(*(each.transpose(0, 2, 1, 3) for each in (q, k, v)), [], 0.25)
    np.testing.assert_allclose(xp.to_host(xp.attention(*own, [], 0.25)), wanted, rtol=1e-5, atol=1e-5)
    turned = xp.matrix_transpose(xp.asarray(xp.matrix_transpose(own[1]), copy=True))
    np.testing.assert_allclose(xp.to_host(xp.attention(own[0], turned, own[2], [], 0.25)), wanted, rtol=1e-5, atol=1e-5)


def test_lengths_sinks_and_caps(xp_of_units):
    xp, sizes = xp_of_units, (3, 4, 2, 1, 900, 32, 32)
    q, k, v = _arrays(sizes, np.float32)
    last, sink = np.array([0, 511, 899], np.int32), np.linspace(-1, 6, 4).astype(np.float32)
    own = [xp.from_host(each) for each in (q, k, v)]
    lengths = CacheLengths(xp.from_host(last).dense(), 1, is_first=False)
    extras = Extras(lengths, True, None, xp.from_host(sink).dense(), 3.0)
    bias = np.where(np.arange(900) > last[:, None, None, None], -np.inf, 0)
    got = xp.to_host(attend_cache(*own, [], 0.7, extras))
    np.testing.assert_allclose(got, reference(q, k, v, [bias], 0.7, sink, 3.0), rtol=1e-5, atol=1e-5)


def _causal(xp, queries, keys, past, window=-1):
    """A causal bias, of a sliding window where there is one, as operators write it: an array of the device, and in NumPy."""
    positions = xp.reshape(xp.arange(queries, dtype=xp.int64), (-1, 1)) + past
    columns = xp.arange(keys, dtype=xp.int64)
    allowed = columns <= positions
    if window >= 0:
        allowed = xp.logical_and(allowed, columns > positions - window)
    bias = xp.where(allowed, xp.asarray(0, dtype=xp.float32), xp.asarray(-xp.inf, dtype=xp.float32))
    own = np.arange(queries)[:, None] + past
    is_seen = np.arange(keys) <= own
    if window >= 0:
        is_seen &= np.arange(keys) > own - window
    return bias, is_seen


@pytest.mark.parametrize(("queries", "past", "window"), [(1, 0, -1), (1, 500, -1), (70, 30, -1), (70, 30, 9), (33, 0, 40)])
def test_causal_queries(xp_of_units, queries, past, window):
    xp, keys = xp_of_units, 640
    q, k, v = _arrays((2, 4, 2, queries, keys, 32, 32), np.float32)
    bias, is_seen = _causal(xp, queries, keys, past, window)
    wanted = reference(q, k, v, [np.where(is_seen, 0, -np.inf)], 0.4)
    got = xp.to_host(xp.attention(*(xp.from_host(each) for each in (q, k, v)), [bias], 0.4))
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)
    # NaN in keys and values that tiles ahead of the queries and behind their windows have
    k, v = k.copy(), v.copy()
    k[:, :, past + queries + 32 :] = v[:, :, past + queries + 32 :] = np.nan
    if window >= 0:
        k[:, :, : max(past - window - 1, 0)] = v[:, :, : max(past - window - 1, 0)] = np.nan
    got = xp.to_host(xp.attention(*(xp.from_host(each) for each in (q, k, v)), [bias], 0.4))
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


def test_biases_that_only_look_like_limits(xp):
    q, k, v = _arrays((1, 2, 2, 5, 40, 8, 8), np.float32)
    columns, rows = xp.arange(40, dtype=xp.int64), xp.reshape(xp.arange(5, dtype=xp.int64), (-1, 1))
    low, zero = (xp.asarray(each, dtype=xp.float32) for each in (-xp.inf, 0))
    keys, queries = np.arange(40), np.arange(5)[:, None]
    given = [
        (xp.where(columns * 2 > rows, zero, low), keys * 2 > queries),
        (xp.where(xp.logical_or(columns <= rows, columns > 30), zero, low), (keys <= queries) | (keys > 30)),
        (xp.where(xp.asarray(columns, copy=True) <= rows + 3, zero, low), keys <= queries + 3),
        (xp.where(xp.logical_not(columns > 7 + rows), zero, low), keys <= queries + 7),
        (xp.where(rows < columns, low, zero), keys <= queries),
    ]
    given = [(bias, np.where(is_seen, 0, -np.inf)) for bias, is_seen in given]
    finite = xp.where(columns < 4, xp.asarray(-2.0, dtype=xp.float32), zero)
    for bias, numbers in [*given, (finite, np.where(keys < 4, -2.0, 0)[None])]:
        wanted = reference(q, k, v, [numbers], 0.4)
        got = xp.to_host(xp.attention(*(xp.from_host(each) for each in (q, k, v)), [bias], 0.4))
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


def test_what_the_kernels_do_not_take(xp):
    q, k, v = (xp.from_host(each) for each in _arrays(SIZES[0], np.float32))
    assert xp.attention(q, k, v[:, :, :5, :], [], 1.0) is None
    assert xp.attention(q[:, :3, ...], k, v, [], 1.0) is None
    assert xp.attention(q, k, v, [xp.zeros((5, 2, 4, 3, 7))], 1.0) is None
    assert xp.attention(*(xp.astype(each, TensorElementType.DOUBLE) for each in (q, k, v)), [], 1.0) is None


def _group_query(kind, *, heads=4, key_heads=2, size=16, new=1, capacity=24, total=24, position_ids=False, **attributes):
    batch = 2
    names = ["q", "k", "v", "past_key", "past_value", "seqlens_k", "total", "cos", "sin"]
    node = helper.make_node(
        "GroupQueryAttention",
        names,
        ["y", "key", "value"],
        domain="com.microsoft",
        num_heads=heads,
        kv_num_heads=key_heads,
        **attributes,
    )
    past = [batch, key_heads, capacity, size]
    widths = {"q": heads, "k": key_heads, "v": key_heads}
    inputs = [helper.make_tensor_value_info(name, kind, [batch, new, width * size]) for name, width in widths.items()]
    inputs += [helper.make_tensor_value_info(name, kind, past) for name in ("past_key", "past_value")]
    inputs.append(helper.make_tensor_value_info("seqlens_k", TensorProto.INT32, [batch]))
    rows = np.arange(64)[:, None] / 10 ** (np.arange(size // 2) / size)
    if position_ids:
        node.input.append("position_ids")
        inputs.append(helper.make_tensor_value_info("position_ids", TensorProto.INT64, [batch, new]))
    numpy_type = helper.tensor_dtype_to_np_dtype(kind)
    constants = {"cos": np.cos(rows).astype(numpy_type), "sin": np.sin(rows).astype(numpy_type)}
    constants["total"] = np.array(total, np.int32)
    weights = [onnx.numpy_helper.from_array(array, name) for name, array in constants.items()]
    outputs = [helper.make_tensor_value_info(name, kind, None) for name in ("y", "key", "value")]
    graph = helper.make_graph([node], "g", inputs, outputs, weights)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    rng = np.random.default_rng(0)

    def feeds(lengths):
        arrays = {each.name: [d.dim_value for d in each.type.tensor_type.shape.dim] for each in inputs[:5]}
        made = {name: rng.standard_normal(shape).astype(numpy_type) for name, shape in arrays.items()}
        if position_ids:
            made["position_ids"] = rng.integers(0, 64, (batch, new))
        return made | {"seqlens_k": np.asarray(lengths, np.int32)}

    return model, feeds


@pytest.mark.parametrize(
    "settings",
    [
        {"do_rotary": 1},
        {"do_rotary": 1, "rotary_interleaved": 1, "new": 3},
        {"local_window_size": 5, "new": 2},
        {"softcap": 2.0, "scale": 0.3},
        {"smooth_softmax": 1, "causal": 1},
        {"new": 24, "do_rotary": 1},
        {"total": 40},
        {"do_rotary": 1, "new": 2, "position_ids": True},
    ],
)
@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.FLOAT16])
def test_group_query_attention_appends_where_each_sequence_ends(settings, kind):
    model, feeds = _group_query(kind, **settings)
    session, oracle = ort.InferenceSession(model, providers=DEVICE), ort.InferenceSession(model, providers=HOST)
    assert {each.provider for each in session.placements()} == {DEVICE[0]}
    new = settings.get("new", 1)
    tolerance = 2e-5 if kind == TensorProto.FLOAT else 4e-3
    for lengths in ([new - 1, 20], [21, 23], [new, new], [22, 22], [23, new - 1]):
        # all of a prompt is new: shorter ones are padded behind
        given = feeds([min(length, 23) if new == 24 else max(length, new - 1) for length in lengths])
        wanted = oracle.run(None, given)
        for _ in range(2):
            for own, each in zip(session.run(None, given), wanted, strict=True):
                np.testing.assert_allclose(own.astype(np.float32), each.astype(np.float32), rtol=tolerance, atol=tolerance)


def test_lengths_that_contradict_are_an_error_of_their_run():
    model, feeds = _group_query(TensorProto.FLOAT, do_rotary=1, new=2)
    session = ort.InferenceSession(model, providers=DEVICE)
    for _ in range(3):
        session.run(None, feeds([3, 5]))
        for lengths in ([0, 5], [3, 24], [-7, 1], [np.iinfo(np.int32).max, 1]):
            with pytest.raises(ort.api.InvalidArgument, match=r"seqlens_k.*total_sequence_length"):
                session.run(None, feeds(lengths))
        session.run(None, feeds([3, 5]))
