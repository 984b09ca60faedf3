"""Sessions on an OpenCL device: closed or dropped, they leave neither arrays on the device nor work for the garbage collector."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import ort_sdk
from ort_sdk.api import ExecutionProvider, OrtSdkError
from ort_sdk.device import DeviceArray, DeviceContext
from ort_sdk.testing.garbage import assert_no_garbage, still_there

pytestmark = pytest.mark.opencl

WIDTH = 64
X = np.ones((8, WIDTH), np.float32)


def model():
    weight = numpy_helper.from_array(np.random.default_rng(0).standard_normal((WIDTH, WIDTH), np.float32), "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Relu", ["m"], ["y"])]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", WIDTH]) for name in "xy")
    graph = helper.make_graph(nodes, "g", [x], [y], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()


def used(providers):
    session = ort_sdk.InferenceSession(MODEL, providers=providers)
    for _ in range(4):
        session.run(None, {"x": X})
    assert still_there(DeviceArray)
    return session


def dropped(providers):
    used(providers)


def closed(providers):
    session = used(providers)
    session.close()
    assert not still_there(DeviceArray, ExecutionProvider)


def bound(providers):
    session = used(providers)
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", ort_sdk.OrtValue.ortvalue_from_numpy(X))
    binding.bind_output("y")
    for _ in range(4):
        session.run_with_iobinding(binding)


def failing(providers):
    session = used(providers)
    with pytest.raises(OrtSdkError):
        session.run(None, {"x": X[:, :3]})


MODEL = model()


@pytest.mark.parametrize("use", [dropped, closed, bound, failing], ids=lambda use: use.__name__)
def test_nothing_is_left(use, providers, context):
    pool = context.launcher.pool
    before = pool.bytes_in_use

    def and_no_array_is_there():
        use(providers)
        assert not still_there(DeviceArray, ExecutionProvider)
        assert pool.bytes_in_use == before

    assert_no_garbage(and_no_array_is_there, use.__name__, ["ort_sdk_opencl", "pyopencl"])


def test_sessions_with_limits_of_their_own_leave_little_memory(providers):
    from ort_sdk_opencl.registry import MOST_REGISTRIES

    (name, options), host = providers

    def and_few_contexts_are_there():
        for mebibytes in range(32, 32 + 3 * MOST_REGISTRIES):
            used([(name, {**options, "gpu_mem_limit": str(mebibytes << 20)}), host])
        assert len(still_there(DeviceContext)) <= MOST_REGISTRIES

    assert_no_garbage(and_few_contexts_are_there, "limits", ["ort_sdk_opencl", "pyopencl"])
