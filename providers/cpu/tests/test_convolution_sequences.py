"""Convolutions that follow each other, in one call where shapes vary, beside onnxruntime."""

import concurrent.futures

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from ort_sdk_cpu.fusion.conv import sequence
from ort_sdk_cpu.platform import libraries

import ort_sdk as ort

pytestmark = pytest.mark.skipif(
    not (libraries.compiled_kernels().is_usable and libraries.onednn().is_usable),
    reason=f"{libraries.compiled_kernels()}; {libraries.onednn()}",
)


def random(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


def network():
    """Convolutions of all kinds behind each other: a picture's first, Winograd's, one tap, one filter per channel, with sums."""
    rng, nodes, weights = np.random.default_rng(1), [], []

    def convolved(x, name, shape, kind="Relu", **attributes):
        w = random(rng, *shape) / np.float32(np.sqrt(np.prod(shape[1:])))
        weights.extend(numpy_helper.from_array(array, f"{name}_{at}") for at, array in (("w", w), ("b", random(rng, shape[0]))))
        nodes.append(helper.make_node("Conv", [x, f"{name}_w", f"{name}_b"], [name], **attributes))
        if not kind:
            return name
        nodes.append(helper.make_node(kind, [name], [f"{name}_a"]))
        return f"{name}_a"

    def added(x, y, name):
        nodes.append(helper.make_node("Add", [x, y], [name]))
        return name

    around = {"pads": [1, 1, 1, 1]}
    stem = convolved("x", "stem", (24, 3, 3, 3), strides=[2, 2], **around)
    wide = convolved(stem, "wide", (48, 24, 3, 3), **around)
    low = convolved(convolved(wide, "expanded", (96, 48, 1, 1)), "filters", (96, 1, 3, 3), group=96, strides=[2, 2], **around)
    low = convolved(low, "low", (40, 96, 1, 1), kind="")
    same = convolved(convolved(low, "again", (80, 40, 1, 1)), "more", (80, 1, 5, 5), group=80, pads=[2, 2, 2, 2])
    total = added(low, convolved(same, "same", (40, 80, 1, 1), kind=""), "total")
    last = convolved(convolved(total, "three", (40, 40, 3, 3), **around), "last", (33, 40, 1, 1), kind="")
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None] * 4) for name in (last, wide, total)]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, "h", "w"])
    graph = helper.make_graph(nodes, "network", [x], outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


@pytest.mark.parametrize("threads", [1, 2])
def test_convolutions_that_follow_each_other_are_one_call(monkeypatch, threads):
    calls = []
    run_sequence = sequence.run_sequence
    monkeypatch.setattr(sequence, "run_sequence", lambda *arguments: calls.append(len(arguments)) or run_sequence(*arguments))
    model, options, rng = network(), ort.SessionOptions(), np.random.default_rng(2)
    options.intra_op_num_threads = threads
    ours = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    theirs = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    sizes = [(1, 40 + 3 * step, 61 - 2 * step) for step in range(10)] + [(2, 33, 40), (1, 8, 8), (3, 17, 90), (1, 2, 2)]
    kept = []
    for samples, height, width in (*sizes, *reversed(sizes)):
        feed = {"x": random(rng, samples, 3, height, width)}
        found, expected = ours.run(None, feed), theirs.run(None, feed)
        kept.append((found, expected))
    for found, expected in kept:
        for array, wanted in zip(found, expected, strict=True):
            np.testing.assert_allclose(array, wanted, rtol=1e-5, atol=2e-5 * np.abs(wanted).max())
    assert len(calls) >= len(sizes)


def test_sequences_of_convolutions_run_on_several_threads_at_once():
    model, rng = network(), np.random.default_rng(3)
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    feeds = [{"x": random(rng, 1, 3, 32 + 2 * step, 48)} for step in range(12)]
    expected = [session.run(None, feed)[0] for feed in feeds]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for found, wanted in zip(pool.map(lambda feed: session.run(None, feed)[0], feeds * 3), expected * 3, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
