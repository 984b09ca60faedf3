"""Matrices of small model files are copied to where cache lines begin."""

import gc

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from ort_sdk_cpu.gemm.constant_b import ConstantBGemm
from ort_sdk_cpu.memory import weight_arena
from ort_sdk_cpu.memory.allocator import CpuAllocator
from ort_sdk_cpu.memory.weight_arena import aligned_copy, is_worth_aligning
from ort_sdk_cpu.platform import libraries
from ort_sdk_cpu.platform.addresses import address_of

from ort_sdk import InferenceSession
from ort_sdk.api import OrtMemoryInfo
from ort_sdk.loader import load_model
from ort_sdk.testing.collection import only_new_objects

SIZE, ROWS = 1024, 2
pytestmark = pytest.mark.skipif(not libraries.compiled_kernels().is_usable, reason="products are compiled")


def weights_of(count, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((SIZE, SIZE), dtype=np.float32) / 32 for _ in range(count)]


def save(path, weights, *, external=False):
    """A chain of products of so few rows that no panels are made, with the first weight where no float32 is aligned."""
    nodes = [helper.make_node("MatMul", [f"v{index}", f"w{index}"], [f"v{index + 1}"]) for index in range(len(weights))]
    constants = [numpy_helper.from_array(weight, f"w{index}") for index, weight in enumerate(weights)]
    names = ("v0", f"v{len(weights)}")
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [ROWS, SIZE]) for name in names]
    graph = helper.make_graph(nodes, "graph", values[:1], values[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    for letters in range(1, 5):
        model.producer_name = "x" * letters  # in front of the graph
        onnx.save(model, path, save_as_external_data=external, location="weights.bin" if external else None)
        if external or address_of(tensor_of(path).packed()) % 4:
            return path
    raise AssertionError("the first weight is aligned wherever it begins")


def tensor_of(path):
    return load_model(path).graph.initializers["w0"]


def test_which_weights_are_moved(tmp_path, monkeypatch):
    weights = weights_of(1)
    tensor = tensor_of(save(tmp_path / "model.onnx", weights))
    assert is_worth_aligning(tensor)
    assert not is_worth_aligning(tensor_of(save(tmp_path / "external.onnx", weights, external=True)))
    data = (tmp_path / "model.onnx").read_bytes()
    assert not is_worth_aligning(load_model(data).graph.initializers["w0"])
    monkeypatch.setattr(weight_arena, "MAX_FILE_BYTES", weights[0].nbytes)
    assert not is_worth_aligning(tensor)


@pytest.mark.parametrize("fewest", [0, 1 << 40])
def test_copies_are_aligned_and_the_same(tmp_path, monkeypatch, fewest):
    monkeypatch.setattr(weight_arena, "MIN_SHARED_FILE_BYTES", fewest)
    weights = weights_of(7)
    initializers = load_model(save(tmp_path / "model.onnx", weights)).graph.initializers
    copies = [aligned_copy(initializers[f"w{index}"], CpuAllocator(OrtMemoryInfo())) for index in range(len(weights))]
    for copy, weight in zip(copies, weights, strict=True):
        assert address_of(copy) % 64 == 0
        assert not copy.flags.writeable
        np.testing.assert_array_equal(copy.view(np.float32).reshape(SIZE, SIZE), weight)


@only_new_objects()
def test_sessions_of_one_file_share_the_copies(tmp_path, monkeypatch):
    made = []
    original = ConstantBGemm.use_prepacked

    def use_prepacked(self, weights, index):
        made.append(weights.buffers[0])
        original(self, weights, index)

    monkeypatch.setattr(ConstantBGemm, "use_prepacked", use_prepacked)
    path = save(tmp_path / "model.onnx", weights_of(1))
    sessions = [InferenceSession(path) for _ in range(2)]
    for session in sessions:
        session.run(None, {"v0": np.ones((ROWS, SIZE), np.float32)})
    assert len(made) == 2
    assert address_of(made[0]) == address_of(made[1])
    assert address_of(made[0]) % 64 == 0
    del sessions, session
    made.clear()
    gc.collect()
