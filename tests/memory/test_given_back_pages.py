"""Memory of files that were read once is given back: of models' files, and of external data that was packed."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import ort_sdk
from ort_sdk.api import PrePackedWeights
from ort_sdk.formats.files.byte_source import give_back_pages
from ort_sdk.testing.collection import only_new_objects
from tests.memory.models import close_to, product_model, run
from tests.memory.packing import PackingMatMul

SMAPS = Path("/proc/self/smaps")
WEIGHT = np.random.default_rng(0).standard_normal((1024, 1024), dtype=np.float32) / 32
X = np.random.default_rng(1).standard_normal((2, 1024), dtype=np.float32)
pytestmark = pytest.mark.skipif(not SMAPS.exists(), reason="needs Linux's list of maps")


def memory_of(path):
    """Bytes of a file that are mapped and in memory."""
    found, is_inside = 0, False
    for line in SMAPS.read_text(encoding="utf-8").splitlines():
        if "-" in line.split(" ", 1)[0]:
            is_inside = line.endswith(str(path))
        elif is_inside and line.startswith("Rss:"):
            found += int(line.split()[1]) * 1024
    return found


@pytest.fixture
def files(tmp_path):
    """A model with its large weight in an external file, and that file."""
    model = product_model(WEIGHT)
    onnx.save_model(model, tmp_path / "product.onnx", save_as_external_data=True, location="product.data", size_threshold=0)
    return tmp_path / "product.onnx", tmp_path / "product.data"


@pytest.mark.parametrize("packs_in_first_run", [False, True])
@only_new_objects()
def test_of_what_a_kernel_packed(provider, start, files, monkeypatch, packs_in_first_run):
    monkeypatch.setattr(PackingMatMul, "packs_in_first_run", packs_in_first_run)
    path, data = files
    sizes = []
    provider.on_pack = lambda tensor: sizes.append((tensor.numpy().sum(), memory_of(data))[1])
    session = start(path)
    for _ in range(4):
        close_to(run(session, X), X @ WEIGHT)
    assert sizes == [pytest.approx(WEIGHT.nbytes, abs=1 << 16)]
    assert memory_of(data) < WEIGHT.nbytes // 8
    assert provider.packed == 1


@only_new_objects()
def test_not_of_what_a_kernel_reads_without_a_copy(provider, start, files, monkeypatch):
    def prepack(self, tensor, input_index, allocator):
        assert tensor.packed().max() > 0  # all of it is in memory
        return PrePackedWeights((np.array(tensor.shape[::-1]).view(np.uint8), tensor.packed()))

    monkeypatch.setattr(PackingMatMul, "prepack", prepack)
    path, data = files
    session = start(path)
    give_back_pages()
    assert memory_of(data) >= WEIGHT.nbytes
    close_to(run(session, X), X @ WEIGHT.T)


def products():
    """A chain of products."""
    nodes = [helper.make_node("MatMul", [f"v{index}", f"w{index}"], [f"v{index + 1}"]) for index in range(3)]
    weights = [WEIGHT + index for index in range(3)]
    constants = [numpy_helper.from_array(weight, f"w{index}") for index, weight in enumerate(weights)]
    return nodes, constants, "v0", "v3", X


def convolution():
    """A convolution in 8 bits."""
    weight = np.random.default_rng(2).integers(-100, 100, (512, 512, 3, 3)).astype(np.int8)
    constants = {"s": np.float32(0.1), "z": np.uint8(128), "t": np.float32(0.01), "u": np.int8(0), "w": weight}
    node = helper.make_node("QLinearConv", ["x", "s", "z", "w", "t", "u", "s", "z"], ["y"])
    x = np.random.default_rng(1).integers(0, 255, (1, 512, 8, 8)).astype(np.uint8)
    return [node], [numpy_helper.from_array(value, name) for name, value in constants.items()], "x", "y", x


@pytest.mark.parametrize("make", [products, convolution])
@only_new_objects()
def test_of_a_models_file(tmp_path, make):
    path = tmp_path / "model.onnx"
    nodes, constants, x, y, value = make()
    kind = helper.np_dtype_to_tensor_dtype(value.dtype)
    values = [helper.make_tensor_value_info(name, kind, None) for name in (x, y)]
    model = helper.make_model(helper.make_graph(nodes, "graph", values[:1], values[1:], constants), ir_version=8)
    model.opset_import[0].version = 17
    onnx.save(model, path)
    expected = ort_sdk.InferenceSession(model.SerializeToString()).run(None, {x: value})[0]
    session = ort_sdk.InferenceSession(path)
    for _ in range(4):
        np.testing.assert_array_equal(session.run(None, {x: value})[0], expected)
    assert memory_of(path) < path.stat().st_size // 4
    session = ort_sdk.InferenceSession(path)  # it comes from the file again
    np.testing.assert_array_equal(session.run(None, {x: value})[0], expected)
