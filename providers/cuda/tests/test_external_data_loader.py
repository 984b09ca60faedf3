"""Weights from files to the device, through a ring of pinned buffers."""

import os

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from ort_sdk_cuda import external_data_loader
from stand_in.plugin import NAME

import ort_sdk as ort
from ort_sdk.api import ExternalDataInfo, Fail, OrtDevice, OrtMemoryInfo, TensorElementType
from ort_sdk.plugins import plugin_manager

WEIGHT = np.random.default_rng(0).normal(size=(300, 64)).astype(np.float32)
X = np.ones((2, 300), np.float32)
DEVICE = OrtDevice("cuda", 0)


@pytest.fixture
def path(tmp_path):
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 300])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 64])],
        [numpy_helper.from_array(WEIGHT, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save_model(model, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    return tmp_path / "m.onnx"


@pytest.fixture
def opened(driver):
    handle = plugin_manager().handle(NAME)
    execution_provider = handle.create_execution_provider(DEVICE, {}, {})
    loader = handle.get_external_data_loader(execution_provider)
    driver.calls.clear()
    return loader, handle.create_allocator(execution_provider, OrtMemoryInfo(DEVICE))


@pytest.fixture
def small_slots(monkeypatch):
    monkeypatch.setattr(external_data_loader, "SLOT_BYTES", 1 << 17)


def _saved(folder, sizes):
    """A file of weights with gaps, and (its information, what it holds) of each."""
    rng, offset, rows = np.random.default_rng(1), 0, []
    path = folder / "w.bin"
    with path.open("wb") as file:
        for index, size in enumerate(sizes):
            values = rng.standard_normal(size).astype(np.float32)
            file.write(values.tobytes() + b"gap")
            rows.append((f"w{index}", offset, values))
            offset += values.nbytes + 3
    content = np.memmap(path, np.uint8, "r")
    return [
        (ExternalDataInfo(name, "w.bin", path, at, v.nbytes, TensorElementType.FLOAT, v.shape, content), v)
        for name, at, v in rows
    ]


def test_a_session_on_weights_of_a_file(path, cuda):
    session = ort.InferenceSession(path, providers=[NAME, "CPUExecutionProvider"])
    for _ in range(3):
        np.testing.assert_allclose(session.run(None, {"x": X})[0], X @ WEIGHT, rtol=1e-4, atol=1e-4)


def test_a_buffer_in_place_of_the_file(path, cuda):
    content = path.with_name("m.data").read_bytes()
    session = ort.InferenceSession(
        path.read_bytes(), providers=[NAME, "CPUExecutionProvider"], external_files={"m.data": content}
    )
    del content
    np.testing.assert_allclose(session.run(None, {"x": X})[0], X @ WEIGHT, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("has_preadv", [True, False])
def test_many_pieces_by_many_readers(opened, driver, tmp_path, small_slots, monkeypatch, has_preadv):
    if not has_preadv:
        monkeypatch.delattr(os, "preadv")
    loader, allocator = opened
    batch = [
        (info, allocator.allocate(v.shape, TensorElementType.FLOAT), v)
        for info, v in _saved(tmp_path, [1, 50_000, 0, 1 << 15, 333_333])
    ]
    held = driver.pinned_memory.nbytes
    loader.load_tensors([(info, array) for info, array, _ in batch])
    for _, array, values in batch:
        np.testing.assert_array_equal(array.context.download(array.node), values)
    assert driver.pinned_memory.nbytes - held <= external_data_loader.READERS * external_data_loader.SLOT_BYTES
    assert driver.calls["allocate_pinned"] <= external_data_loader.READERS


def test_buffers_go_back(opened, driver, tmp_path, small_slots):
    loader, allocator = opened
    rows = [(info, allocator.allocate(v.shape, TensorElementType.FLOAT)) for info, v in _saved(tmp_path, [100_000])]
    loader.load_tensors(rows)
    held = driver.pinned_memory.nbytes
    loader.load_tensors(rows)
    assert driver.pinned_memory.nbytes <= held


def test_memory_that_queued_work_still_reads(opened, tmp_path):
    """A weight's memory may have been an array's a moment ago: it is written after the work that reads that."""
    loader, allocator = opened
    values = np.random.default_rng(2).standard_normal(1000).astype(np.float32)
    context = allocator.allocate((1,), TensorElementType.FLOAT).context
    node = context.upload(values, TensorElementType.FLOAT)
    copied = context.copied(node)
    address = int(node.held.handle)
    del node
    ((info, wanted),) = _saved(tmp_path, [1000])
    array = allocator.allocate(wanted.shape, TensorElementType.FLOAT)
    assert array.data_ptr == address
    loader.load_tensor(info, array)
    np.testing.assert_array_equal(context.download(copied), values)
    np.testing.assert_array_equal(context.download(array.node), wanted)


def test_ranges_are_checked(opened):
    loader, allocator = opened
    assert loader.can_load(OrtMemoryInfo(DEVICE))
    assert not loader.can_load(OrtMemoryInfo())
    array = allocator.allocate((4,), TensorElementType.FLOAT)
    content = np.zeros(20, np.uint8)
    for offset, length in ((8, 16), (0, 12)):
        info = ExternalDataInfo("w", "w.bin", None, offset, length, TensorElementType.FLOAT, (4,), content)
        with pytest.raises(Fail, match="loading 'w'"):
            loader.load_tensor(info, array)


def test_a_file_of_another_size(opened, tmp_path):
    loader, allocator = opened
    ((info, values),) = _saved(tmp_path, [1000])
    info.path.write_bytes(b"short")
    array = allocator.allocate(values.shape, TensorElementType.FLOAT)
    with pytest.raises(Fail, match=r"'w\.bin' has another size than when the model was opened"):
        loader.load_tensor(info, array)


def test_a_file_that_is_cut_while_it_is_read(opened, tmp_path, monkeypatch):
    loader, allocator = opened
    ((info, values),) = _saved(tmp_path, [1000])
    monkeypatch.setattr(os, "preadv", lambda *_arguments: 0)
    array = allocator.allocate(values.shape, TensorElementType.FLOAT)
    with pytest.raises(Fail, match="ended at 0; it was changed"):
        loader.load_tensor(info, array)
