"""Models and providers for tests of memory on devices."""

import contextlib

import numpy as np
from onnx import TensorProto, helper

from ort_sdk import GraphOptimizationLevel, OrtValue, SessionOptions
from ort_sdk.plugins import plugin_manager
from ort_sdk.session.inference_session import InferenceSession


def chain_model(op_types, shape, *, weight=False):
    """Operators of one input, one after the other, behind an Add of a weight if there is one."""
    count = len(op_types)
    names = ["x", *(f"v{index}" for index in range(count - 1)), "y"]
    nodes = [helper.make_node(op, [a], [b], name=f"node {b}") for op, a, b in zip(op_types, names[:-1], names[1:], strict=True)]
    inputs, constants = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)], []
    if weight:
        nodes[0].input[0] = "shifted"
        nodes.insert(0, helper.make_node("Add", ["x", "w"], ["shifted"], name="node shifted"))
        constants = [helper.make_tensor("w", TensorProto.FLOAT, [shape[-1]], np.arange(shape[-1], dtype=np.float32))]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)]
    return model_of(nodes, inputs, outputs, constants)


def model_of(nodes, inputs, outputs, constants=()):
    graph = helper.make_graph(nodes, "g", inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()


@contextlib.contextmanager
def registered(provider, name):
    plugin_manager().register(provider, name=name)
    try:
        yield provider
    finally:
        plugin_manager().unregister(name)


def run_on_device(session, x, device="null"):
    """Run a model of one input and one output on a value of the device; the result stays there, and is dropped."""
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", OrtValue.ortvalue_from_numpy(x, device, 0))
    binding.bind_output("y", device)
    session.run_with_iobinding(binding)
    return tuple(binding.get_outputs()[0].shape())


def session_on(model, provider, options=None, **config):
    """A session as the model is, with config entries of the session."""
    settings = SessionOptions()
    settings.graph_optimization_level = GraphOptimizationLevel.ORT_DISABLE_ALL
    for key, value in config.items():
        settings.add_session_config_entry(f"session.{key}", value)
    return InferenceSession(model, settings, providers=[(provider, options or {})])
