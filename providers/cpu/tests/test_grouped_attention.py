"""Attention over heads that share keys and values: the compiled task beside float64, and operators beside onnxruntime."""

import math

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from ort_sdk_cpu.attention.grouped import grouped_attention
from ort_sdk_cpu.namespace import CpuNamespace
from ort_sdk_cpu.platform import libraries

import ort_sdk

pytestmark = pytest.mark.skipif(not libraries.compiled_kernels().is_usable, reason=str(libraries.compiled_kernels()))


def random(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def attended(q, k, v, biases, scale):
    group = q.shape[1] // k.shape[1]
    q, k, v = (array.astype(np.float64) for array in (q, np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)))
    scores = sum(biases, q @ k.swapaxes(2, 3) * scale)
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True) @ v


BIASES = {
    "none": lambda *_: [],
    "of keys": lambda *shape: [random(1, 1, 1, shape[3])],
    "of all": lambda *shape: [random(*shape)],
    "of heads": lambda *shape: [random(shape[1], 1, 1), random(shape[2], shape[3])],
    "lowest": lambda *shape: [np.where(random(*shape[2:]) > 0, np.finfo(np.float32).min, np.float32(0))],
    "hidden": lambda *shape: [np.full((1, 1, 1, shape[3]), np.finfo(np.float32).min)],
}


@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize(("heads", "key_heads"), [(4, 4), (6, 2), (5, 1)])
@pytest.mark.parametrize(("length", "keys"), [(1, 1), (1, 300), (3, 17), (40, 129), (65, 65)])
def test_heads_that_share_keys(heads, key_heads, length, keys, bias):
    q, k, v = random(2, heads, length, 24), random(2, key_heads, keys, 24, seed=1), random(2, key_heads, keys, 20, seed=2)
    biases = BIASES[bias](2, heads, length, keys)
    expected = attended(q, k, v, biases, 0.2)
    assert not np.isnan(expected).any()
    np.testing.assert_allclose(grouped_attention(q, k, v, biases, 0.2), expected, rtol=2e-5, atol=2e-6)


def test_arrays_in_other_orders():
    q, k, v = random(2, 33, 4, 24).transpose(0, 2, 1, 3), random(2, 2, 24, 50).swapaxes(2, 3), random(2, 2, 80, 24)[:, :, 5:55]
    np.testing.assert_allclose(grouped_attention(q, k, v, [], 0.2), attended(q, k, v, [], 0.2), rtol=2e-5, atol=2e-6)


def test_other_arrays_are_left_to_the_shared_set():
    q = random(1, 2, 64, 64)
    assert CpuNamespace().attention(q, q, q, [], 1.0) is not None
    assert CpuNamespace().attention(q[:, :, :1, :4], q[..., :4], q, [], 1.0) is None
    assert CpuNamespace().attention(q, q, q, [np.zeros((1, 1, 64, 64), np.float16)], 1.0) is None
    assert CpuNamespace().attention(*[q.astype(np.float64)] * 3, [], 1.0) is None


def _model(inputs, outputs, **attributes):
    names = ["query", "key", "value", "past_key", "past_value", "seqlens_k", "total_sequence_length", "cos", "sin"]
    node = helper.make_node(
        "GroupQueryAttention", names, ["y", "present_key", "present_value"], domain="com.microsoft", **attributes
    )
    given = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for name, a in inputs.items()]
    made = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs.items()]
    graph = helper.make_graph([node], "attention", given, made)
    domains = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=domains, ir_version=9).SerializeToString()


@pytest.mark.parametrize(("length", "past"), [(1, 130), (33, 0), (70, 20)])
@pytest.mark.parametrize(("heads", "key_heads"), [(4, 4), (8, 2)])
def test_group_query_attention_as_onnxruntime(heads, key_heads, length, past):
    size, total = 32, past + length
    angles = np.outer(np.arange(256), 1 / 100 ** (np.arange(size // 2) / size))
    inputs = {
        "query": random(1, length, heads * size),
        "key": random(1, length, key_heads * size, seed=1),
        "value": random(1, length, key_heads * size, seed=2),
        "past_key": random(1, key_heads, past, size, seed=3),
        "past_value": random(1, key_heads, past, size, seed=4),
        "seqlens_k": np.array([total - 1], np.int32),
        "total_sequence_length": np.array([total], np.int32),
        "cos": np.cos(angles).astype(np.float32),
        "sin": np.sin(angles).astype(np.float32),
    }
    cache = (1, key_heads, total, size)
    outputs = {"y": (1, length, heads * size), "present_key": cache, "present_value": cache}
    attributes = {"num_heads": heads, "kv_num_heads": key_heads, "do_rotary": 1, "scale": 1 / math.sqrt(size)}
    model = _model(inputs, outputs, **attributes)
    onnx.checker.check_model(onnx.load_from_string(model))
    expected = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, inputs)
    session = ort_sdk.InferenceSession(model, providers=["CPUExecutionProvider"])
    for _ in range(3):
        for found, wanted in zip(session.run(None, inputs), expected, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-6)
