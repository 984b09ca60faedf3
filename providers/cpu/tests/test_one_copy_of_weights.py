"""A quantized convolution keeps its weight packed, and no other copy of it."""

import gc
import tracemalloc

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from ort_sdk_cpu.platform import libraries
from ort_sdk_cpu.platform.cpu_features import has_vnni

from ort_sdk import InferenceSession
from ort_sdk.testing.collection import only_new_objects

pytestmark = pytest.mark.skipif(not libraries.compiled_kernels().is_usable, reason="numba is not installed")

CHANNELS, KERNEL = 256, 3


def _model(weight):
    scale = numpy_helper.from_array(np.float32(0.02), "s")
    constants = [scale, numpy_helper.from_array(np.uint8(7), "z"), numpy_helper.from_array(weight.dtype.type(0), "v")]
    node = helper.make_node("QLinearConv", ["x", "s", "z", "w", "s", "v", "s", "z"], ["y"], pads=[1] * 4)
    values = [helper.make_tensor_value_info(name, TensorProto.UINT8, [1, CHANNELS, 12, 12]) for name in "xy"]
    graph = helper.make_graph([node], "graph", values[:1], values[1:], [*constants, numpy_helper.from_array(weight, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@only_new_objects()
def test_the_weight_is_kept_once(tmp_path, dtype):
    """``uint8`` weights above 127 have zero points even if theirs is 0."""
    limits = np.iinfo(dtype)
    weight = np.random.default_rng(0).integers(limits.min, limits.max, (CHANNELS, CHANNELS, KERNEL, KERNEL)).astype(dtype)
    for name, each in (("model.onnx", weight), ("other.onnx", weight[::-1])):
        (tmp_path / name).write_bytes(_model(each.copy()).SerializeToString())
    feeds = {"x": np.ones((1, CHANNELS, 12, 12), np.uint8)}

    def session_after_runs(name):
        session = InferenceSession(str(tmp_path / name))
        for _ in range(3):
            session.run(None, feeds)
        return session

    # Workspace is the process's as long as there is a session; what compiles kernels is loaded late.
    _other = session_after_runs("other.onnx")
    tracemalloc.start()
    try:
        _session = session_after_runs("model.onnx")
        gc.collect()
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    # without VNNI nothing is packed of a weight that does not fit into 8 signed bits: it is read in the file
    is_packed = dtype == np.int8 or has_vnni()
    assert weight.nbytes * is_packed <= kept < (0.5 + is_packed) * weight.nbytes
