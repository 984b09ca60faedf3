"""Tasks called straight on arrays of new shapes: beside onnxruntime, and for shapes that are wrong."""

import threading

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from ort_sdk_cpu.attention import flash_eager
from ort_sdk_cpu.kernel import bindable, eager_tasks
from ort_sdk_cpu.platform import libraries

import ort_sdk as ort

MICROSOFT = "com.microsoft"
pytestmark = pytest.mark.skipif(not libraries.compiled_kernels().is_usable, reason=str(libraries.compiled_kernels()))


def random(*shape, seed=0):
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


def model_of(nodes, ranks, constants=None, opset=20):
    """One node or several; ``ranks`` are those of the inputs that are no constants, by name."""
    nodes = nodes if isinstance(nodes, list) else [nodes]
    constants = constants or {}
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [f"{name}{axis}" for axis in range(rank)])
        for name, rank in ranks.items()
    ]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in nodes[-1].output if name]
    weights = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "graph", inputs, outputs, weights)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


def stepwise(model):
    """A session that makes no programs."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("session.disable_programs", "1")
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


@pytest.fixture
def calls(monkeypatch):
    """How often a task was called directly, and how often its node went another way."""
    counted = {"task": 0, "other": 0}

    def directly(call, otherwise):
        def run(*inputs):
            result = call(*inputs)
            counted["other" if result is NotImplemented else "task"] += 1
            return otherwise(*inputs) if result is NotImplemented else result

        return run

    for module in (bindable, eager_tasks):
        monkeypatch.setattr(module, "with_fallback", directly)
    return counted


def check(model, feeds, tolerance=2e-6):
    theirs = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    session = stepwise(model)
    for fed in feeds:
        for found, expected in zip(session.run(None, fed), theirs.run(None, fed), strict=True):
            assert found.shape == expected.shape
            np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


NODES = {
    "Erf": (helper.make_node("Erf", ["x"], ["y"]), False),
    "Gelu": (helper.make_node("Gelu", ["x"], ["y"]), False),
    "Gelu, tanh": (helper.make_node("Gelu", ["x"], ["y"], approximate="tanh"), False),
    "HardSwish": (helper.make_node("HardSwish", ["x"], ["y"]), False),
    "QuickGelu": (helper.make_node("QuickGelu", ["x"], ["y"], domain=MICROSOFT, alpha=1.5), False),
    "Sigmoid": (helper.make_node("Sigmoid", ["x"], ["y"]), False),
    "Softmax": (helper.make_node("Softmax", ["x"], ["y"]), False),
    "BiasGelu": (helper.make_node("BiasGelu", ["x", "b"], ["y"], domain=MICROSOFT), True),
    "FastGelu": (helper.make_node("FastGelu", ["x", "b"], ["y"], domain=MICROSOFT), True),
    "LayerNormalization": (helper.make_node("LayerNormalization", ["x", "b"], ["y"]), True),
    "SkipLayerNormalization": (
        helper.make_node("SkipLayerNormalization", ["x", "x", "b", "b", "b"], ["y", "", "", "sum"], domain=MICROSOFT),
        True,
    ),
    "SkipSimplifiedLayerNormalization": (
        helper.make_node("SkipSimplifiedLayerNormalization", ["x", "x", "b"], ["y"], domain=MICROSOFT),
        True,
    ),
}


@pytest.mark.parametrize("name", NODES)
def test_growing_rows(name, calls):
    node, has_vector = NODES[name]
    constants = {"b": random(40)} if has_vector else {}
    feeds = [{"x": random(1, rows, 40)} for rows in (0, 400, 1, 13, 14, 1300)]
    check(model_of(node, {"x": 3}, constants), feeds, tolerance=2e-4 if "Fast" in name else 4e-6)
    assert calls == {"task": 5, "other": 1}


@pytest.mark.parametrize("op_type", ["Erf", "QuickGelu", "Sigmoid"])
def test_results_lie_as_the_input_does(op_type, calls):
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[0, 3, 1, 2]),
        helper.make_node(op_type, ["t"], ["u"], domain=MICROSOFT if op_type == "QuickGelu" else ""),
        helper.make_node("Transpose", ["u"], ["y"], perm=[0, 2, 3, 1]),
    ]
    model = model_of(nodes, {"x": 4})
    check(model, [{"x": random(2, 5, width, 24)} for width in (7, 8, 9)])
    assert calls == {"task": 3, "other": 0}


@pytest.mark.parametrize(("low", "high"), [(-0.5, 1.0), (None, 0.25), (0.0, None), (None, None), (1.0, -1.0)])
def test_bounds(low, high, calls):
    names = ["x", "" if low is None else "low", "" if high is None else "high"]
    constants = {name: np.float32(bound) for name, bound in (("low", low), ("high", high)) if bound is not None}
    model = model_of(
        helper.make_node("Clip", names, ["y"]), {"x": 2}, {name: np.asarray(found) for name, found in constants.items()}
    )
    # Without a bound, onnxruntime makes the largest number of infinity.
    ends = [3e38, -3e38] if None in {low, high} else [np.inf, -np.inf]
    special = np.resize(np.array([*ends, -0.0, 0.3], np.float32), (1, 777))
    check(model, [{"x": found} for found in (random(40, 50), random(3, 333), special)])
    found = stepwise(model).run(None, {"x": np.full((30, 30), np.nan, np.float32)})[0]
    assert np.isnan(found).all()
    assert calls == {"task": 4, "other": 0}


@pytest.mark.parametrize("bounds", [{"min": -0.5, "max": 1.0}, {"max": 0.25}, {"min": 0.0}, {}])
def test_bounds_that_are_attributes(bounds, calls):
    model = model_of(helper.make_node("Clip", ["x"], ["y"], **bounds), {"x": 2}, opset=10)
    special = np.resize(np.array([np.inf, -np.inf, -0.0, 0.3], np.float32), (1, 777))
    check(model, [{"x": found} for found in (random(40, 50), random(3, 333), special)])
    assert calls == {"task": 3, "other": 0}


def attention_feeds(length, keys, width=32, values=32, batch=2):
    return {
        "q": random(batch, length, width),
        "k": random(batch, keys, width, seed=1),
        "v": random(batch, keys, values, seed=2),
        "m": random(batch, 1, length, keys, seed=3),
    }


@pytest.mark.parametrize("scale", [0.0, 0.3])
def test_attention_of_growing_lengths(calls, scale):
    attributes = {"scale": scale} if scale else {}
    node = helper.make_node(
        "MultiHeadAttention", ["q", "k", "v", "b", "", "m"], ["y"], domain=MICROSOFT, num_heads=4, **attributes
    )
    model = model_of(node, {"q": 3, "k": 3, "v": 3, "m": 4}, {"b": random(96)})
    check(model, [attention_feeds(length, 5 + length) for length in (7, 16, 17, 130)], tolerance=1e-5)
    assert calls == {"task": 4, "other": 0}


def test_attention_of_few_numbers_goes_the_other_way(calls):
    node = helper.make_node("MultiHeadAttention", ["q", "k", "v"], ["y"], domain=MICROSOFT, num_heads=4)
    model = model_of(node, {"q": 3, "k": 3, "v": 3})
    feeds = [{name: array for name, array in attention_feeds(1, 1).items() if name != "m"}]
    check(model, feeds, tolerance=1e-5)
    assert calls == {"task": 0, "other": 1}


@pytest.mark.parametrize("wrong", [{"k": random(2, 9, 28)}, {"v": random(2, 8, 32)}, {"m": random(2, 1, 7, 8)}])
def test_attention_refuses_shapes_that_do_not_belong_together(wrong):
    node = helper.make_node("MultiHeadAttention", ["q", "k", "v", "", "", "m"], ["y"], domain=MICROSOFT, num_heads=4)
    session = stepwise(model_of(node, {"q": 3, "k": 3, "v": 3, "m": 4}))
    session.run(None, attention_feeds(7, 9))
    with pytest.raises(ort.api.OrtSdkError, match="MultiHeadAttention"):
        session.run(None, attention_feeds(7, 9) | wrong)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize(("op_type", "gates"), [("LSTM", 4), ("GRU", 3)])
def test_recurrent_layers_over_growing_sequences(op_type, gates, direction, calls):
    count = 2 if direction == "bidirectional" else 1
    constants = {
        "w": random(count, gates * 40, 24) / 5,
        "r": random(count, gates * 40, 40, seed=1) / 6,
        "b": random(count, 2 * gates * 40) / 5,
    }
    node = helper.make_node(op_type, ["x", "w", "r", "b", "", "h"], ["y", "z"], hidden_size=40, direction=direction)
    feeds = [{"x": random(steps, batch, 24), "h": random(count, batch, 40)} for steps, batch in ((1, 1), (7, 1), (8, 2), (30, 3))]
    check(model_of(node, {"x": 3, "h": 3}, constants), feeds, tolerance=2e-5)
    assert calls == {"task": 4, "other": 0}


@pytest.mark.parametrize("wrong", [{"x": random(5, 2, 23)}, {"h": random(1, 3, 40)}])
def test_recurrent_layers_refuse_shapes_that_do_not_belong_together(wrong):
    constants = {"w": random(1, 160, 24) / 5, "r": random(1, 160, 40, seed=1) / 6}
    node = helper.make_node("LSTM", ["x", "w", "r", "", "", "h"], ["y"], hidden_size=40)
    session = stepwise(model_of(node, {"x": 3, "h": 3}, constants))
    right = {"x": random(5, 2, 24), "h": random(1, 2, 40)}
    session.run(None, right)
    with pytest.raises(ort.api.OrtSdkError, match="LSTM"):
        session.run(None, right | wrong)


def test_a_plan_of_attention_is_made_once_per_shape():
    flash_eager._planned.cache_clear()
    node = helper.make_node("MultiHeadAttention", ["q", "k", "v"], ["y"], domain=MICROSOFT, num_heads=4)
    session = stepwise(model_of(node, {"q": 3, "k": 3, "v": 3}))
    for length in (20, 20, 21):
        session.run(None, {name: array for name, array in attention_feeds(length, 9).items() if name != "m"})
    assert flash_eager._planned.cache_info().misses == 2


@pytest.mark.parametrize("transposed", [0, 1])
def test_products_of_growing_rows(transposed):
    weight = random(200, 100)
    node = helper.make_node("Gemm", ["x", "w", "b"], ["y"], transB=transposed, alpha=0.5)
    constants = {"w": np.ascontiguousarray(weight.T) if transposed else weight, "b": random(100)}
    check(model_of(node, {"x": 2}, constants), [{"x": random(rows, 200)} for rows in (0, 1, 3, 8, 33, 600)], tolerance=1e-5)


@pytest.mark.parametrize("inner", [199, 201])
def test_a_product_refuses_another_inner_size(inner):
    session = stepwise(model_of(helper.make_node("MatMul", ["x", "w"], ["y"]), {"x": 3}, {"w": random(200, 100)}))
    with pytest.raises(ort.api.InvalidArgument, match=rf"\(1, 4, {inner}\).*200 rows"):
        session.run(None, {"x": random(1, 4, inner)})


def test_one_kernel_serves_threads_with_different_shapes():
    node = helper.make_node("LayerNormalization", ["x", "b"], ["y"])
    session = stepwise(model_of(node, {"x": 2}, {"b": random(64)}))
    wrong = []

    def use(rows):
        x = random(rows, 64)
        expected = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * random(64)
        results = [session.run(None, {"x": x})[0] for _ in range(50)]
        wrong.extend(rows for found in results if not np.allclose(found, expected, rtol=1e-4, atol=1e-5))

    threads = [threading.Thread(target=use, args=(rows,)) for rows in (20, 33, 500, 900)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
