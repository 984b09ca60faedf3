"""Weights from files straight into device buffers, once per file and device."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import ort_sdk as ort
from ort_sdk.api import Fail
from ort_sdk.plugins import plugin_manager

cl = pytest.importorskip("pyopencl")
pytestmark = pytest.mark.opencl

WEIGHT = np.random.default_rng(0).normal(size=(300, 50)).astype(np.float32)
X = np.ones((2, 300), np.float32)


@pytest.fixture(autouse=True, scope="module")
def _device():
    if "OpenCLExecutionProvider" not in ort.get_available_providers():
        pytest.skip("no OpenCL device")


@pytest.fixture
def path(tmp_path):
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 300])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 50])],
        [numpy_helper.from_array(WEIGHT, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save_model(model, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    return tmp_path / "m.onnx"


@pytest.fixture
def maps(monkeypatch):
    """Counts mappings of device buffers; copies to the device are errors."""
    from ort_sdk_opencl import data_transfer, external_data_loader

    counted = []
    original = cl.enqueue_map_buffer

    class Counting:
        def __getattr__(self, name):
            return getattr(cl, name)

        def enqueue_map_buffer(self, queue, buffer, flags, offset, shape, dtype, **kwargs):
            counted.append(shape[0])
            return original(queue, buffer, flags, offset, shape, dtype, **kwargs)

    monkeypatch.setattr(external_data_loader, "cl", Counting())
    upload = data_transfer.OpenClDataTransfer._upload

    def no_weights(self, array, destination):
        assert array.nbytes != WEIGHT.nbytes
        upload(self, array, destination)

    monkeypatch.setattr(data_transfer.OpenClDataTransfer, "_upload", no_weights)
    return counted


def test_one_file_is_read_once(path, maps):
    sessions = [ort.InferenceSession(path, providers=["OpenCLExecutionProvider"]) for _ in range(4)]
    on_cpu = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    assert maps == [WEIGHT.nbytes]
    for session in (*sessions, on_cpu):
        np.testing.assert_allclose(session.run(None, {"x": X})[0], X @ WEIGHT, rtol=1e-4, atol=1e-4)


def test_a_buffer_in_place_of_the_file(path, maps):
    content = path.with_name("m.data").read_bytes()
    session = ort.InferenceSession(path.read_bytes(), providers=["OpenCLExecutionProvider"], external_files={"m.data": content})
    assert maps == [WEIGHT.nbytes]
    np.testing.assert_allclose(session.run(None, {"x": X})[0], X @ WEIGHT, rtol=1e-4, atol=1e-4)


def test_ranges_are_checked():
    from ort_sdk.api import ExternalDataInfo, OrtMemoryInfo, TensorElementType

    handle = plugin_manager().handle("opencl")
    device = handle.get_supported_devices()[0]
    execution_provider = handle.create_execution_provider(device, {}, {})
    loader = handle.get_external_data_loader(execution_provider)
    allocator = handle.create_allocator(execution_provider, OrtMemoryInfo(device))
    assert loader.can_load(OrtMemoryInfo(device))
    assert not loader.can_load(OrtMemoryInfo())
    array = allocator.allocate((4,), TensorElementType.FLOAT)
    content = np.zeros(20, np.uint8)
    for offset, length in ((8, 16), (0, 12)):
        info = ExternalDataInfo("w", "w.bin", None, offset, length, TensorElementType.FLOAT, (4,), content)
        with pytest.raises(Fail, match="loading 'w'"):
            loader.load_tensor(info, array)
