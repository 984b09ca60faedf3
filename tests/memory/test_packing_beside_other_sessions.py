"""A folder for packed weights is filled and used whatever other sessions of the same file there are."""

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import ort_sdk

CPU = ["CPUExecutionProvider"]
COLUMNS, DEPTH, BLOCK = 96, 128, 32


def _file(folder):
    """A product by a 4-bit weight whose scales kernels read as float16 where a file holds them so."""
    rng = np.random.default_rng(3)
    blocks = DEPTH // BLOCK
    weights = [
        numpy_helper.from_array(rng.integers(0, 256, (COLUMNS, blocks, BLOCK // 2), np.uint8), "w"),
        numpy_helper.from_array(rng.uniform(0.01, 0.02, COLUMNS * blocks).astype(np.float32), "s"),
    ]
    attributes = {"K": DEPTH, "N": COLUMNS, "bits": 4, "block_size": BLOCK, "accuracy_level": 4}
    node = helper.make_node("MatMulNBits", ["x", "w", "s"], ["y"], domain="com.microsoft", **attributes)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, DEPTH])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, COLUMNS])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(helper.make_graph([node], "g", [x], [y], weights), opset_imports=opsets, ir_version=10)
    path = folder / "model.onnx"
    onnx.save_model(model, path, save_as_external_data=True, location="model.data", size_threshold=0)
    return path


def _session(path, cache=None):
    options = ort_sdk.SessionOptions()
    if cache is not None:
        options.add_session_config_entry("session.prepack_cache_dir", str(cache))
    return ort_sdk.InferenceSession(path, options, providers=CPU)


def test_a_session_without_a_folder_does_not_keep_one_with_a_folder_from_filling_it(tmp_path):
    path, x = _file(tmp_path), np.random.default_rng(5).standard_normal((3, DEPTH)).astype(np.float32)
    alone = tmp_path / "alone"
    _session(path, alone).run(None, {"x": x})
    wanted = onnxruntime.InferenceSession(path, providers=CPU).run(None, {"x": x})[0]
    other = _session(path)
    other.run(None, {"x": x})
    beside = tmp_path / "beside"
    session = _session(path, beside)
    result = session.run(None, {"x": x})[0]
    assert len(list(alone.iterdir())) >= 1
    assert sorted(file.name for file in beside.iterdir()) == sorted(file.name for file in alone.iterdir())
    for found in (result, other.run(None, {"x": x})[0], _session(path).run(None, {"x": x})[0]):
        np.testing.assert_allclose(found, wanted, rtol=0.02, atol=0.02)
