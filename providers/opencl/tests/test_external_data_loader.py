"""Weights from files straight into device buffers, once per file and device."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pyopencl as cl
import pytest
from onnx import TensorProto, helper, numpy_helper

import ort_sdk as ort
from ort_sdk.api import ExternalDataInfo, Fail, OrtDevice, OrtMemoryInfo, TensorElementType
from ort_sdk.plugins import plugin_manager

pytestmark = pytest.mark.opencl

WEIGHT = np.random.default_rng(0).normal(size=(300, 64)).astype(np.float32)
X = np.ones((2, 300), np.float32)


PLATFORMS = {"pocl": "Portable Computing Language", "intel": "Intel(R) OpenCL"}


def _save(path, weight):
    rows, columns = weight.shape
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", rows])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", columns])],
        [numpy_helper.from_array(weight, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save_model(model, path, save_as_external_data=True, location=f"{path.stem}.data", size_threshold=0)


@pytest.fixture
def path(tmp_path):
    _save(tmp_path / "m.onnx", WEIGHT)
    return tmp_path / "m.onnx"


def _opened(index):
    handle = plugin_manager().handle("opencl")
    device = OrtDevice("opencl", index)
    execution_provider = handle.create_execution_provider(device, {}, {})
    loader = handle.get_external_data_loader(execution_provider)
    return loader, handle.create_allocator(execution_provider, OrtMemoryInfo(device))


class _Counting:
    """pyopencl, with its mappings and its buffers over memory of the host counted."""

    def __init__(self):
        self.mapped, self.shared = [], []

    def __getattr__(self, name):
        return getattr(cl, name)

    def enqueue_map_buffer(self, queue, buffer, flags, offset, shape, dtype, **kwargs):
        self.mapped.append(shape[0])
        return cl.enqueue_map_buffer(queue, buffer, flags, offset, shape, dtype, **kwargs)

    def Buffer(self, context, flags, **kwargs):
        self.shared.append(kwargs["hostbuf"].nbytes)
        return cl.Buffer(context, flags, **kwargs)


@pytest.fixture
def counted(monkeypatch):
    """Counts how weights come to the device; copies of them by the data transfer are errors."""
    from ort_sdk_opencl import external_data_loader
    from ort_sdk_opencl.queueing import device_queue

    counting = _Counting()
    monkeypatch.setattr(external_data_loader, "cl", counting)
    upload = device_queue.DeviceQueue.upload

    def no_weights(self, array, *arguments):
        assert array.nbytes != WEIGHT.nbytes
        upload(self, array, *arguments)

    monkeypatch.setattr(device_queue.DeviceQueue, "upload", no_weights)
    return counting


@pytest.fixture
def no_sharing(monkeypatch):
    """As on a device with memory of its own."""
    from ort_sdk_opencl import external_data_loader

    monkeypatch.setattr(external_data_loader, "LEAST_SHARED_BYTES", 1 << 60)


def _check(*sessions):
    for session in sessions:
        for _ in range(3):
            np.testing.assert_allclose(session.run(None, {"x": X})[0], X @ WEIGHT, rtol=1e-4, atol=1e-4)


def test_one_file_is_read_once(path, counted, providers, no_sharing):
    sessions = [ort.InferenceSession(path, providers=providers) for _ in range(4)]
    on_cpu = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    assert counted.mapped == [WEIGHT.nbytes]
    assert not counted.shared
    _check(*sessions, on_cpu)


def test_a_processor_reads_the_files_pages(path, counted, providers):
    sessions = [ort.InferenceSession(path, providers=providers) for _ in range(2)]
    assert counted.shared == [WEIGHT.nbytes]
    assert not counted.mapped
    _check(*sessions)


def test_a_buffer_in_place_of_the_file(path, counted, providers):
    content = path.with_name("m.data").read_bytes()
    session = ort.InferenceSession(path.read_bytes(), providers=providers, external_files={"m.data": content})
    assert counted.mapped + counted.shared
    del content
    _check(session)


@pytest.mark.parametrize(
    ("offset", "is_shared"), [(0, True), (4096, True), (128, True), (4096 + 256, True), (64, False), (4, False), (1, False)]
)
def test_weights_that_are_not_aligned_are_copied(providers, index, offset, is_shared):
    loader, allocator = _opened(index)
    content = np.zeros((1 << 17) + 8192, np.uint8)
    start = -content.ctypes.data % 4096
    content = content[start : start + (1 << 17) + 4096 + 256]
    values = np.random.default_rng(1).standard_normal(1 << 14).astype(np.float32)
    content[offset : offset + values.nbytes] = values.view(np.uint8)
    content.flags.writeable = False
    array = allocator.allocate(values.shape, TensorElementType.FLOAT)
    info = ExternalDataInfo("w", "w.bin", None, offset, values.nbytes, TensorElementType.FLOAT, values.shape, content)
    loader.load_tensor(info, array)
    assert hasattr(array.node.memory, "whole") == is_shared
    np.testing.assert_array_equal(array.context.download(array.node), values)
    np.testing.assert_array_equal(array.context.download((array + array).node), values + values)


def test_a_range_that_ends_with_the_file_is_copied_where_its_size_is_odd(index):
    loader, allocator = _opened(index)
    values = np.random.default_rng(1).integers(0, 255, (1 << 17) + 3).astype(np.uint8)
    values.flags.writeable = False
    array = allocator.allocate(values.shape, TensorElementType.UINT8)
    info = ExternalDataInfo("w", "w.bin", None, 0, values.nbytes, TensorElementType.UINT8, values.shape, values)
    loader.load_tensor(info, array)
    assert not hasattr(array.node.memory, "whole")
    np.testing.assert_array_equal(array.context.download(array.node), values)


MEASURE = """
import sys, numpy as np, ort_sdk as ort
def own_bytes():
    with open("/proc/self/smaps_rollup") as file:
        return 1024 * sum(int(line.split()[1]) for line in file if line.startswith("Anonymous:"))
path, platform = sys.argv[1:]
providers = [("OpenCLExecutionProvider", {"platform": platform})]
first = ort.InferenceSession(sys.argv[1].replace("large", "small"), providers=providers)
for _ in range(3): first.run(None, {"x": np.ones((1, 2048), np.float32)})
before = own_bytes()
session = ort.InferenceSession(path, providers=providers)
print(own_bytes() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="the system does not say what a process owns")
def test_one_more_process_takes_no_memory_for_weights(tmp_path, platform):
    wide = np.random.default_rng(0).standard_normal((2048, 1 << 14), np.float32)
    for name, weight in (("large", wide), ("small", wide[:, :64])):
        _save(tmp_path / f"{name}.onnx", np.ascontiguousarray(weight))
    command = [sys.executable, "-P", "-W", "ignore", "-c", MEASURE, str(tmp_path / "large.onnx"), PLATFORMS[platform]]
    result = subprocess.run(command, check=True, capture_output=True, text=True)
    assert int(result.stdout) < wide.nbytes / 100


def test_ranges_are_checked(index):
    loader, allocator = _opened(index)
    assert loader.can_load(OrtMemoryInfo(OrtDevice("opencl", index)))
    assert not loader.can_load(OrtMemoryInfo())
    array = allocator.allocate((4,), TensorElementType.FLOAT)
    content = np.zeros(20, np.uint8)
    for offset, length in ((8, 16), (0, 12)):
        info = ExternalDataInfo("w", "w.bin", None, offset, length, TensorElementType.FLOAT, (4,), content)
        with pytest.raises(Fail, match="loading 'w'"):
            loader.load_tensor(info, array)
