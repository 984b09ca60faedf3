"""Shapes that broadcast or do not fit: what an operator allows is computed alike in every run, all else is refused in each.

Runs 1 and 2 of a session go step by step, later ones go over a program whose tasks do not look at shapes again.
"""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import ort_sdk as ort
from ort_sdk.api import InvalidArgument, OrtSdkError
from ort_sdk.testing.error_bounds import assert_sums_close

MICROSOFT = "com.microsoft"
RUNS = 5
RNG = np.random.default_rng(28)


def floats(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def bytes_(*shape):
    return RNG.integers(0, 255, shape).astype(np.uint8)


class Node:
    """An operator with inputs that fit. ``held``: those that are constants where weights are."""

    def __init__(self, op_type, inputs, attributes=None, *, domain="", opset=21, outputs=1, kinds=(), held=()):
        self.op_type, self.inputs, self.attributes, self.domain = op_type, inputs, attributes or {}, domain
        self.opset, self.outputs, self.kinds, self.held = opset, outputs, kinds, held

    def session(self, changed, held, *, with_programs):
        """A session of the node alone, with inputs of any shape, and feeds."""
        arrays = {**self.inputs, **changed}
        names = [name if array is not None else "" for name, array in arrays.items()]
        outputs = [f"out_{index}" for index in range(self.outputs)]
        given = {name: array for name, array in arrays.items() if array is not None}
        feeds = {name: array for name, array in given.items() if name not in held}
        kinds = self.kinds or [TensorProto.FLOAT] * self.outputs
        graph = helper.make_graph(
            [helper.make_node(self.op_type, names, outputs, "node", domain=self.domain, **self.attributes)],
            "graph",
            [_info(name, helper.np_dtype_to_tensor_dtype(array.dtype)) for name, array in feeds.items()],
            [_info(name, kind) for name, kind in zip(outputs, kinds, strict=True)],
            [numpy_helper.from_array(given[name], name) for name in held if name in given],
        )
        domains = [helper.make_opsetid("", self.opset)] + [helper.make_opsetid(MICROSOFT, 1)] * (self.domain == MICROSOFT)
        model = helper.make_model(graph, opset_imports=domains, ir_version=10)
        options = ort.SessionOptions()
        options.add_session_config_entry("session.disable_programs", "0" if with_programs else "1")
        options.log_severity_level = 4
        return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"]), feeds


def _info(name, kind):
    return helper.make_tensor_value_info(name, kind, None)


def layer(op_type, gates, **extra):
    inputs = {
        "x": floats(6, 4, 32),
        "w": floats(1, gates * 64, 32) / 8,
        "r": floats(1, gates * 64, 64) / 8,
        "b": floats(1, 2 * gates * 64),
        "lengths": np.array([6, 5, 2, 6], np.int32),
        "h": floats(1, 4, 64),
        **extra,
    }
    return Node(op_type, inputs, {"hidden_size": 64}, opset=14, outputs=2, held=("w", "r", "b"))


CACHE = {"pk": floats(2, 2, 8, 16), "pv": floats(2, 2, 8, 16)}
GROUPS = {"q": floats(2, 4, 128), "k": floats(2, 4, 32), "v": floats(2, 4, 32), **CACHE}
SCALE, ZERO = np.array(0.02, np.float32), np.array(120, np.uint8)

NODES = {
    "LSTM": layer("LSTM", 4, c=floats(1, 4, 64), p=floats(1, 192)),
    "GRU": layer("GRU", 3),
    "RNN": layer("RNN", 1),
    "BiasGelu": Node("BiasGelu", {"x": floats(4, 512), "b": floats(512)}, domain=MICROSOFT, held=("b",)),
    "FastGelu": Node("FastGelu", {"x": floats(4, 512), "b": floats(512)}, domain=MICROSOFT, held=("b",)),
    "SkipLayerNormalization": Node(
        "SkipLayerNormalization",
        {"x": floats(2, 5, 64), "skip": floats(2, 5, 64), "gamma": floats(64), "beta": floats(64), "bias": floats(64)},
        domain=MICROSOFT,
        held=("gamma", "beta", "bias"),
    ),
    "LayerNormalization": Node(
        "LayerNormalization", {"x": floats(2, 64, 64), "g": floats(64), "b": floats(64)}, opset=17, held=("g", "b")
    ),
    "RMSNormalization": Node("RMSNormalization", {"x": floats(2, 64, 64), "g": floats(64)}, opset=23, held=("g",)),
    "BatchNormalization": Node(
        "BatchNormalization",
        {"x": floats(2, 8, 6, 16), "s": floats(8), "b": floats(8), "m": floats(8), "v": floats(8) ** 2},
        opset=15,
    ),
    "MultiHeadAttention": Node(
        "MultiHeadAttention",
        {"q": floats(2, 64, 64), "k": floats(2, 64, 64), "v": floats(2, 64, 64), "b": floats(192), "m": None, "a": None},
        {"num_heads": 4},
        domain=MICROSOFT,
    ),
    "MultiHeadAttention of heads": Node(
        "MultiHeadAttention",
        {"q": floats(2, 64, 64), "k": floats(2, 4, 64, 16), "v": floats(2, 4, 64, 16)},
        {"num_heads": 4},
        domain=MICROSOFT,
    ),
    "MultiHeadAttention of few": Node(
        "MultiHeadAttention",
        {"q": floats(2, 2, 64), "k": floats(2, 512, 64), "v": floats(2, 512, 64), "b": floats(192)},
        {"num_heads": 4},
        domain=MICROSOFT,
    ),
    "GroupQueryAttention": Node(
        "GroupQueryAttention",
        {
            **GROUPS,
            "lasts": np.array([11, 11], np.int32),
            "longest": np.array([12], np.int32),
            **dict.fromkeys(("cos", "sin", "rows", "bias")),
            "sink": floats(8),
        },
        {"num_heads": 8, "kv_num_heads": 2},
        domain=MICROSOFT,
        outputs=3,
    ),
    "Attention": Node(
        "Attention",
        {"x": floats(2, 16, 64), "w": floats(64, 192) / 8, "b": floats(192)},
        {"num_heads": 4},
        domain=MICROSOFT,
        held=("w",),
    ),
    "Attention of ONNX": Node(
        "Attention", {"q": floats(2, 4, 16, 32), "k": floats(2, 2, 24, 32), "v": floats(2, 2, 24, 32), "m": None}, opset=23
    ),
    "RotaryEmbedding": Node(
        "RotaryEmbedding",
        {"x": floats(2, 8, 64), "p": np.tile(np.arange(8), (2, 1)), "cos": floats(32, 8), "sin": floats(32, 8)},
        domain=MICROSOFT,
    ),
    "RoiAlign": Node(
        "RoiAlign",
        {"x": floats(1, 3, 10, 10), "rois": np.abs(floats(40, 4)), "numbers": np.zeros(40, np.int64)},
        {"output_height": 4, "output_width": 4, "sampling_ratio": 2},
        opset=16,
    ),
    "GatherElements": Node("GatherElements", {"d": floats(9, 9000), "i": RNG.integers(0, 9, (1, 9000))}, {"axis": 0}, opset=13),
    "Conv": Node("Conv", {"x": floats(2, 16, 80), "w": floats(32, 16, 3), "b": floats(32)}, opset=11, held=("w", "b")),
    "FusedConv": Node(
        "FusedConv",
        {"x": floats(2, 4, 8, 8), "w": floats(6, 4, 3, 3), "b": floats(6), "z": floats(2, 6, 6, 6)},
        {"activation": "Relu"},
        domain=MICROSOFT,
        held=("w", "b"),
    ),
    "ConvTranspose": Node(
        "ConvTranspose", {"x": floats(2, 4, 8, 8), "w": floats(4, 6, 3, 3), "b": floats(6)}, opset=11, held=("w",)
    ),
    "QLinearConv": Node(
        "QLinearConv",
        {
            "x": bytes_(2, 4, 8, 8),
            "xs": SCALE,
            "xz": ZERO,
            "w": bytes_(6, 4, 3, 3),
            "ws": np.abs(floats(6)),
            "wz": np.full(6, 100, np.uint8),
            "ys": SCALE,
            "yz": ZERO,
            "b": np.arange(6, dtype=np.int32),
        },
        opset=10,
        kinds=(TensorProto.UINT8,),
        held=("xs", "xz", "w", "ws", "wz", "ys", "yz", "b"),
    ),
    "MatMulIntegerToFloat": Node(
        "MatMulIntegerToFloat",
        {
            "a": bytes_(20, 32),
            "b": bytes_(32, 48),
            "as": SCALE,
            "bs": np.abs(floats(48)),
            "az": ZERO,
            "bz": np.full(48, 7, np.uint8),
            "bias": floats(48),
        },
        domain=MICROSOFT,
        held=("b", "bs", "bz", "bias"),
    ),
    "MatMulNBits": Node(
        "MatMulNBits",
        {"a": floats(5, 64), "b": bytes_(48, 2, 16), "s": floats(48, 2), "z": bytes_(48, 1), "g": None, "bias": floats(48)},
        {"K": 64, "N": 48, "bits": 4, "block_size": 32},
        domain=MICROSOFT,
        held=("b", "s", "z"),
    ),
}

LAYER = [
    *[("h", shape) for shape in ((1, 1, 64), (4, 64), (1, 4, 1), (1, 1, 1), (2, 4, 64), (1, 4, 65), (0, 4, 64))],
    *[("lengths", shape) for shape in ((1,), (), (5,), (4, 1))],
    *[("x", shape) for shape in ((6, 1, 32), (6, 4, 31), (4, 32))],
    *[("r", shape) for shape in ((1, 64, 65), (64, 64), (1, 256, 65))],
]
BIASED = [("x", (512, 1)), ("x", (4, 1)), ("x", ()), *[("b", shape) for shape in ((1,), (512, 1), (1, 512), (4, 512), ())]]

REFUSED = {
    "LSTM": [*LAYER, *[("c", shape) for shape in ((1, 1, 64), (1, 4, 1), (256,), ())], ("p", (1, 64)), ("p", (192,))],
    "GRU": LAYER,
    "RNN": LAYER,
    "BiasGelu": BIASED,
    "FastGelu": BIASED,
    "SkipLayerNormalization": [
        *[("skip", shape) for shape in ((2, 1, 64), (2, 5, 1), (3, 5, 64), (64,), (1, 1, 64))],
        *[(name, shape) for name in ("gamma", "beta", "bias") for shape in ((1,), (1, 64), (5, 64), (63,), ())],
    ],
    "LayerNormalization": [("g", (63,)), ("g", (3, 64, 64)), ("b", (2, 2, 64, 64)), ("x", (2, 64, 1)), ("x", ())],
    "RMSNormalization": [("g", (63,)), ("g", (3, 64, 64)), ("x", (2, 64, 1))],
    "BatchNormalization": [(name, shape) for name in "sbmv" for shape in ((1,), (1, 8), (), (7,), (6, 16))],
    "MultiHeadAttention": [
        *[(name, shape) for name in "kv" for shape in ((1, 64, 64), (2, 1, 64), (2, 63, 64), (3, 64, 64), (2, 64, 64, 1))],
        *[("k", (2, 64, 32)), ("q", (2, 64, 32)), ("q", (1, 64, 64)), ("b", (1, 192)), ("b", (64,)), ("b", (1,))],
        *[("m", shape) for shape in ((3, 64), (2, 63), (64,), (5, 1))],
        *[("a", shape) for shape in ((3, 4, 64, 64), (2, 4, 64, 63), (4, 64, 64), (2, 2, 64, 64))],
    ],
    "MultiHeadAttention of heads": [
        (name, shape) for name in "kv" for shape in ((2, 1, 64, 16), (2, 4, 1, 16), (1, 4, 64, 16), (2, 4, 64, 8), (2, 8, 64, 16))
    ],
    "MultiHeadAttention of few": [("v", (2, 1, 64)), ("k", (2, 1, 64)), ("v", (1, 512, 64)), ("b", (192, 1)), ("b", (1, 192))],
    "GroupQueryAttention": [
        *[("sink", shape) for shape in ((1,), (7,), (1, 8), ())],
        *[(name, shape) for name in "kv" for shape in ((2, 1, 32), (1, 4, 32), (2, 4, 16))],
        *[(name, shape) for name in ("pk", "pv") for shape in ((1, 2, 8, 16), (2, 1, 8, 16), (2, 2, 7, 16), (2, 2, 8, 1))],
        *[("lasts", (1,)), ("lasts", (3,)), ("longest", (2,)), ("q", (2, 3, 128)), ("bias", (1, 8, 4, 3))],
    ],
    "Attention": [("w", (64, 190)), ("w", (1, 192)), ("b", (1,)), ("b", (1, 192)), ("x", (16, 64)), ("x", (2, 16, 1))],
    "Attention of ONNX": [
        *[(name, shape) for name in "kv" for shape in ((1, 2, 24, 32), (2, 1, 24, 32), (2, 2, 1, 32), (2, 3, 24, 32))],
        *[("k", (2, 2, 24, 1)), ("k", (2, 24, 64)), ("m", (3, 4, 16, 24)), ("m", (16, 25)), ("m", (15, 24))],
    ],
    "RotaryEmbedding": [
        *[("p", (1, 8)), ("p", (2, 1)), ("p", (1, 1)), ("p", (2,)), ("p", (8,))],
        *[(name, shape) for name in ("cos", "sin") for shape in ((1, 8), (32, 1), (32,), (32, 9))],
    ],
    "RoiAlign": [*[("rois", shape) for shape in ((40, 1), (1, 4), (40, 5), (40,))], ("numbers", (1,)), ("numbers", (40, 1))],
    "GatherElements": [("d", (0, 9000)), ("d", (9, 8999)), ("d", (9, 1)), ("i", (9000,))],
    "Conv": [("b", (1,)), ("b", (32, 1)), ("b", (31,)), ("b", ()), ("x", (2, 1, 80)), ("x", (2, 16))],
    "FusedConv": [("z", (2, 6, 6, 1)), ("z", (6, 6, 6)), ("z", (1, 6, 6, 6)), ("z", ()), ("b", (1,))],
    "ConvTranspose": [("b", (1,)), ("b", (5,)), ("b", (6, 1)), ("x", (2, 1, 8, 8))],
    "QLinearConv": [
        *[(name, shape) for name in ("ws", "wz") for shape in ((5,), (6, 1), (1, 6))],
        *[(name, (2,)) for name in ("xs", "xz", "ys", "yz")],
        *[("b", (1,)), ("b", (5,))],
    ],
    "MatMulIntegerToFloat": [(name, shape) for name in ("bs", "bz", "bias") for shape in ((47,), (48, 1), (20, 48))],
    "MatMulNBits": [
        *[("bias", shape) for shape in ((1,), (1, 48), (5, 48))],
        *[("s", (48,)), ("z", (47, 1)), ("b", (48, 1, 16)), ("a", (5, 1)), ("a", ())],
    ],
}


def resized(array, shape, like=None):
    """An array of another shape, of the same numbers as far as there are any."""
    source = np.ones(1, like or np.float32) if array is None else array
    return np.resize(source, shape).astype(source.dtype)


CASES = [
    pytest.param(name, input_name, shape, held, id=f"{name}, {input_name} {shape}{', held' * bool(held)}")
    for name, changes in REFUSED.items()
    for input_name, shape in changes
    for held in sorted({(), NODES[name].held})
]
MASKS = {("MultiHeadAttention", "m"): np.int32}


@pytest.mark.parametrize("with_programs", [True, False])
@pytest.mark.parametrize(("name", "input_name", "shape", "held"), CASES)
def test_what_an_operator_does_not_allow_is_refused_in_every_run(name, input_name, shape, held, with_programs):
    node = NODES[name]
    array = resized(node.inputs[input_name], shape, MASKS.get((name, input_name)))
    try:
        session, feeds = node.session({input_name: array}, held, with_programs=with_programs)
    except OrtSdkError:
        return  # It is told of constants when the session is made.
    for _ in range(RUNS if with_programs else 2):
        with pytest.raises(InvalidArgument, match="Name:'node'"):
            session.run(None, feeds)


@pytest.mark.parametrize("name", NODES)
def test_what_fits_gives_the_same_in_every_run(name):
    """The nodes above are right in themselves, so that what is refused is refused for its shape."""
    node = NODES[name]
    for held in sorted({(), node.held}):
        session, feeds = node.session({}, held, with_programs=True)
        first = session.run(None, feeds)
        for _ in range(RUNS - 1):
            for found, wanted in zip(session.run(None, feeds), first, strict=True):
                assert found.shape == wanted.shape
                largest = float(np.abs(wanted.astype(np.float64)).max())
                # Two ways to add at most a thousand terms; a step of a quantized result may be taken or not.
                allowed = 1 if wanted.dtype == np.uint8 else 2000 * np.finfo(np.float32).eps * max(largest, 1)
                assert np.abs(found.astype(np.float64) - wanted.astype(np.float64)).max() <= allowed


# What broadcasts, beside float64


def _standardized(x, axes):
    centred = x - x.mean(axes, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axes, keepdims=True) + 1e-5)


def _divided(x, axes):
    return x / np.sqrt((x**2).mean(axes, keepdims=True) + 1e-5)


NORMALIZED = [
    *[((2, 5, 64), scale, -1) for scale in ((2, 1, 64), (1, 5, 64), (2, 5, 64), (5, 1), (1, 1, 1), (1,), ())],
    *[((2, 3, 4), (3, 4), -1), ((4, 3, 2), (4, 1, 1), -2), ((6, 4, 32), (4, 1), 1), ((6, 4, 32), (6, 1, 1), 1)],
    *[((64, 64), (64, 1), -1), ((8, 64, 64), (64, 1), -1), ((2, 64, 64), (1, 64, 1), -1), ((64, 4, 16), (64, 1, 1), 1)],
]
"""Data, scale and bias, axis; some of the scales have as many elements as a row and run along rows."""


@pytest.mark.parametrize("with_programs", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize(("shape", "scale", "axis"), NORMALIZED)
@pytest.mark.parametrize("op_type", ["LayerNormalization", "RMSNormalization"])
def test_scales_and_biases_that_vary_over_rows(op_type, shape, scale, axis, dtype, with_programs):
    is_layer = op_type == "LayerNormalization"
    arrays = {"x": floats(*shape), "g": floats(*scale)} | ({"b": floats(*scale)} if is_layer else {})
    arrays = {name: array.astype(dtype) for name, array in arrays.items()}
    wide = {name: array.astype(np.float64) for name, array in arrays.items()}
    axes = tuple(range(axis % len(shape), len(shape)))
    exact = (_standardized if is_layer else _divided)(wide["x"], axes) * wide["g"] + wide.get("b", 0)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    node = Node(op_type, arrays, {"axis": axis}, opset=23, kinds=(kind,))
    session, feeds = node.session({}, (), with_programs=with_programs)
    width = int(np.prod([shape[each] for each in axes]))
    # Sums of a row in float32 at least, and two roundings of the result in its own type.
    units = 4 * width * np.finfo(np.float64 if dtype == np.float64 else np.float32).eps + 4 * np.finfo(dtype).eps
    for _ in range(RUNS):
        (found,) = session.run(None, feeds)
        assert found.shape == exact.shape
        assert np.abs(found.astype(np.float64) - exact).max() <= units * np.abs(exact).max() + units


@pytest.mark.parametrize("with_programs", [True, False])
@pytest.mark.parametrize("shape", [(1, 5, 64), (5, 64), (2, 5, 64)])
def test_a_skip_for_all_samples(shape, with_programs):
    skip = floats(*shape)
    node = NODES["SkipLayerNormalization"]
    wide = {name: array.astype(np.float64) for name, array in {**node.inputs, "skip": skip}.items()}
    total = wide["x"] + wide["skip"] + wide["bias"]
    centred = total - total.mean(-1, keepdims=True)
    exact = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12) * wide["gamma"] + wide["beta"]
    session, feeds = node.session({"skip": skip}, (), with_programs=with_programs)
    for _ in range(RUNS):
        (found,) = session.run(None, feeds)
        assert np.abs(found - exact).max() <= 4 * 64 * np.finfo(np.float32).eps * np.abs(exact).max()


def _attended(q, k, v, added):
    """Softmax(q k' / sqrt(size) + added) v of heads, in float64."""
    group = q.shape[1] // k.shape[1]
    q, k, v = q.astype(np.float64), *(np.repeat(each.astype(np.float64), group, axis=1) for each in (k, v))
    scores = q @ k.swapaxes(2, 3) / np.sqrt(q.shape[3]) + added
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


@pytest.mark.parametrize("with_programs", [True, False])
@pytest.mark.parametrize("shape", [(2, 4, 64, 64), (1, 4, 64, 64), (2, 1, 64, 64), (1, 1, 64, 64), (1, 1, 1, 64), (2, 4, 64, 1)])
def test_numbers_added_to_the_scores_of_several_heads(shape, with_programs):
    node, added = NODES["MultiHeadAttention"], floats(*shape)
    session, feeds = node.session({"a": added, "b": None}, (), with_programs=with_programs)
    q, k, v = (node.inputs[name].reshape(2, 64, 4, 16).transpose(0, 2, 1, 3) for name in "qkv")
    exact = _attended(q, k, v, added).transpose(0, 2, 1, 3).reshape(2, 64, 64)
    for _ in range(RUNS):
        (found,) = session.run(None, feeds)
        assert np.abs(found - exact).max() <= 256 * np.finfo(np.float32).eps * np.abs(node.inputs["v"]).max()


@pytest.mark.parametrize("with_programs", [True, False])
@pytest.mark.parametrize("shape", [(2, 4, 16, 24), (16, 24), (1, 24), (24,), (2, 1, 1, 24), (4, 1, 1), (16, 1), ()])
def test_masks_that_broadcast(shape, with_programs):
    node, mask = NODES["Attention of ONNX"], floats(*shape)
    session, feeds = node.session({"m": mask}, (), with_programs=with_programs)
    exact = _attended(*(node.inputs[name] for name in "qkv"), mask)
    for _ in range(RUNS):
        (found,) = session.run(None, feeds)
        assert np.abs(found - exact).max() <= 256 * np.finfo(np.float32).eps * np.abs(node.inputs["v"]).max()


@pytest.mark.parametrize("with_programs", [True, False])
@pytest.mark.parametrize("held", [(), ("b", "bz")])
@pytest.mark.parametrize("shapes", [((), ()), ((1,), (1,)), ((20,), (48,)), ((20, 1), (1, 48)), ((1,), (48,)), ((20,), ())])
def test_zero_points_of_rows_and_columns(shapes, held, with_programs):
    a, b, a_zeros, b_zeros = bytes_(20, 32), bytes_(32, 48), bytes_(*shapes[0]), bytes_(*shapes[1])
    node = Node("MatMulInteger", {"a": a, "b": b, "az": a_zeros, "bz": b_zeros}, opset=10, kinds=(TensorProto.INT32,))
    session, feeds = node.session({}, held, with_programs=with_programs)
    rows = a_zeros.astype(np.int64).reshape(-1, 1)
    exact = (a.astype(np.int64) - rows) @ (b.astype(np.int64) - b_zeros.astype(np.int64).reshape(-1))
    for _ in range(RUNS):
        assert (session.run(None, feeds)[0] == exact).all()


@pytest.mark.parametrize("with_programs", [True, False])
@pytest.mark.parametrize("keys", [64, 48, 80, 1, 512])
@pytest.mark.parametrize("length", [64, 2])
def test_queries_see_as_many_keys_as_come_before_them(length, keys, with_programs):
    """As onnxruntime has it: the first sees one, and those behind the last key see all."""
    arrays = {"q": floats(2, length, 64), "k": floats(2, keys, 64), "v": floats(2, keys, 64)}
    node = Node("MultiHeadAttention", arrays, {"num_heads": 4, "unidirectional": 1}, domain=MICROSOFT)
    session, feeds = node.session({}, (), with_programs=with_programs)
    q, k, v = (each.reshape(2, -1, 4, 16).transpose(0, 2, 1, 3) for each in arrays.values())
    hidden = np.where(np.arange(keys) > np.arange(length)[:, None], -np.inf, 0)
    exact = _attended(q, k, v, hidden).transpose(0, 2, 1, 3).reshape(2, length, 64)
    for _ in range(RUNS):
        (found,) = session.run(None, feeds)
        assert np.abs(found - exact).max() <= 4 * (keys + 64) * np.finfo(np.float32).eps * np.abs(v).max()


@pytest.mark.parametrize("with_programs", [True, False])
@pytest.mark.parametrize("held", [(), ("b",), ("b", "c")])
@pytest.mark.parametrize("shape", [(32,), (1, 32), (32, 1), (32, 32), (1, 1), (1,), ()])
def test_addends_of_a_square_product(shape, held, with_programs):
    """Rows and columns are as long as each other, so that numbers of elements tell nothing."""
    a, b, c = floats(32, 24), floats(24, 32), floats(*shape)
    session, feeds = Node("Gemm", {"a": a, "b": b, "c": c}, opset=13).session({}, held, with_programs=with_programs)
    wide = [each.astype(np.float64) for each in (a, b, c)]
    exact, magnitudes = wide[0] @ wide[1] + wide[2], np.abs(wide[0]) @ np.abs(wide[1]) + np.abs(wide[2])
    for _ in range(RUNS):
        assert_sums_close(session.run(None, feeds)[0], exact, magnitudes, 26)


# Nothing, and lengths of something


@pytest.mark.parametrize("with_programs", [True, False])
@pytest.mark.parametrize("held", [True, False])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize(("op_type", "gates", "states"), [("LSTM", 4, 2), ("GRU", 3, 1), ("RNN", 1, 1)])
def test_a_layer_of_no_steps_ends_with_zeros(op_type, gates, states, direction, held, with_programs):
    """As onnxruntime has it, whatever the state was before."""
    directions = 2 if direction == "bidirectional" else 1
    inputs = {
        "x": floats(0, 3, 32),
        "w": floats(directions, gates * 64, 32),
        "r": floats(directions, gates * 64, 64),
        "b": floats(directions, 2 * gates * 64),
        "lengths": None,
        **{name: floats(directions, 3, 64) for name in ("h", "c")[:states]},
    }
    node = Node(op_type, inputs, {"hidden_size": 64, "direction": direction}, opset=14, outputs=1 + states)
    session, feeds = node.session({}, ("w", "r", "b") if held else (), with_programs=with_programs)
    for _ in range(RUNS):
        sequence, *last = session.run(None, feeds)
        assert sequence.shape == (0, directions, 3, 64)
        assert all(state.shape == (directions, 3, 64) and not state.any() for state in last)


@pytest.mark.parametrize("with_programs", [True, False])
@pytest.mark.parametrize("held", [True, False])
@pytest.mark.parametrize("lengths", [[6, 5, 7, 6], [6, -1, 5, 6], [2**31 - 1] * 4])
@pytest.mark.parametrize("op_type", ["LSTM", "GRU", "RNN"])
def test_lengths_of_more_steps_than_there_are(op_type, lengths, held, with_programs):
    node = NODES[op_type]
    wrong, right = np.array(lengths, np.int32), node.inputs["lengths"]
    session, feeds = node.session({}, node.held if held else (), with_programs=with_programs)
    for _ in range(RUNS):
        with pytest.raises(InvalidArgument, match="sequence_lens"):
            session.run(None, {**feeds, "lengths": wrong})
    first = session.run(None, feeds)
    for _ in range(RUNS):
        # What is refused in the midst of others leaves them as they are.
        assert all(np.allclose(found, wanted, atol=1e-5) for found, wanted in zip(session.run(None, feeds), first, strict=True))
        with pytest.raises(InvalidArgument, match="sequence_lens"):
            session.run(None, {**feeds, "lengths": wrong})
    assert right.max() <= 6
