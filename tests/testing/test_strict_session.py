"""Whole sessions on the strict devices: right results, and every fault put into the host shows."""

import contextlib
import gc

import numpy as np
import pytest
from onnx import TensorProto, helper

from ort_sdk.api import CPU_DEVICE, InvalidArgument, OrtSdkError, RuntimeException, TensorElementType
from ort_sdk.memory import DataTransferManager
from ort_sdk.plugins import plugin_manager
from ort_sdk.session.inference_session import InferenceSession
from ort_sdk.testing.collection import only_new_objects
from ort_sdk.testing.strict.provider import STRICT_PROVIDER, STRICT_TYPES, StrictExecutionProvider, StrictProvider


@pytest.fixture
def strict():
    provider = StrictProvider(STRICT_TYPES - {TensorElementType.DOUBLE})
    plugin_manager().register(provider, name="strict")
    yield provider
    plugin_manager().unregister("strict")


def model_bytes():
    """Work on the device, a shape as host input, and a detour over a type the device lacks, which the host computes."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Add", ["a", "w"], ["b"]),
        helper.make_node("Shape", ["b"], ["s"]),
        helper.make_node("Reshape", ["b", "s"], ["c"]),
        helper.make_node("Cast", ["c"], ["wide"], to=TensorProto.DOUBLE),
        helper.make_node("Neg", ["wide"], ["negative"]),
        helper.make_node("Cast", ["negative"], ["d"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["c", "d"], ["y"]),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("y", "b")]
    weight = helper.make_tensor("w", TensorProto.FLOAT, [3], [1.0, 2.0, 3.0])
    graph = helper.make_graph(nodes, "g", inputs, outputs, initializer=[weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()


def feeds(seed=0):
    return {"x": np.random.default_rng(seed).standard_normal((2, 3)).astype(np.float32)}


def expected(values):
    b = np.maximum(values["x"], 0) + np.float32([1, 2, 3])
    return [b * -b, b]


@pytest.mark.parametrize("device_id", [0, 1])
def test_results_are_right_on_either_device_run_after_run(strict, device_id):
    session = InferenceSession(model_bytes(), providers=[(STRICT_PROVIDER, {"device_id": device_id})])
    held = []
    for seed in range(4):
        values = feeds(seed)
        held.append((session.run(None, values), expected(values)))
    for got, wanted in held:
        for one, other in zip(got, wanted, strict=True):
            np.testing.assert_array_equal(one, other)


@only_new_objects()
def test_nothing_stays_on_the_devices_after_a_session(strict):
    session = InferenceSession(model_bytes(), providers=[STRICT_PROVIDER])
    session.run(None, feeds())
    del session
    gc.collect()
    for device in strict.devices.values():
        device.queue.synchronize()
        assert device.live_arrays == 0


def test_a_host_that_forgets_to_enter_the_scope_fails(strict, monkeypatch):
    monkeypatch.setattr(StrictExecutionProvider, "run_scope", lambda _: contextlib.nullcontext())
    with pytest.raises(RuntimeException, match="outside the provider's run_scope"):
        InferenceSession(model_bytes(), providers=[STRICT_PROVIDER]).run(None, feeds())


@pytest.mark.parametrize("to_host", [False, True])
def test_a_host_that_forgets_a_copy_fails(strict, monkeypatch, to_host):
    copy = DataTransferManager.copy

    def forgetful(self, value, source, target):
        skips = target == CPU_DEVICE if to_host else source == CPU_DEVICE
        return value if skips else copy(self, value, source, target)

    monkeypatch.setattr(DataTransferManager, "copy", forgetful)
    with pytest.raises((InvalidArgument, TypeError, OrtSdkError)):
        InferenceSession(model_bytes(), providers=[STRICT_PROVIDER]).run(None, feeds())
