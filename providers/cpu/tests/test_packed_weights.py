"""Packed weights of the CPU provider's kernels."""

import dataclasses
from types import SimpleNamespace

import numpy as np
from ort_sdk_cpu.registry import kernel_registry

from ort_sdk.api import NOT_PACKED, KernelInfo, NodeArg
from ort_sdk.api.element_type import element_type_of


class MappedTensor:
    """A constant some bytes past an aligned address, as in a file."""

    def __init__(self, array, misalignment):
        raw = np.empty(array.nbytes + 128, np.uint8)
        start = -raw.ctypes.data % 64 + misalignment
        self._bytes = raw[start : start + array.nbytes]
        self._bytes[:] = array.reshape(-1).view(np.uint8)
        self.element_type, self.shape, self.nbytes = element_type_of(array), array.shape, array.nbytes

    def numpy(self):
        raise AssertionError("a tensor that is packed must not be copied otherwise")

    def packed(self):
        return self._bytes


def _slot(array, *, is_fixed=True):
    return SimpleNamespace(array=array, is_fixed=is_fixed)


def test_unaligned_weights_are_packed_and_used():
    rng = np.random.default_rng(0)
    x, weight = (rng.standard_normal(shape).astype(np.float32) for shape in ((2, 5), (5, 3)))
    (row,) = [row for row in kernel_registry().candidates("", "MatMul") if row.kernel_def.since_version == 13]
    tensor = MappedTensor(weight, 1)
    inputs = tuple(NodeArg(name, "tensor(float)", array.shape) for name, array in (("x", x), ("w", weight)))
    info = KernelInfo("MatMul", 13, inputs=inputs, outputs=(NodeArg("y", "tensor(float)"),), constants={1: tensor})
    # Without a file to keep it in, a packed copy would only come earlier than the one the first run makes.
    assert row.create(info).packing_identity(1) is None
    assert row.create(info).prepack(tensor, 1, None) is NOT_PACKED
    kernel = row.create(dataclasses.replace(info, session_config={"session.prepack_cache_dir": "folder"}))
    assert kernel.packing_identity(0) is None
    assert "64" in kernel.packing_identity(1)
    assert kernel.prepack(MappedTensor(weight, 4), 1, None) is NOT_PACKED
    packed = kernel.prepack(tensor, 1, None)
    assert packed.buffers[0].ctypes.data % 64 == 0
    kernel.use_prepacked(packed, 1)
    np.testing.assert_array_equal(kernel.compute(x, None), x @ weight)
    out = np.empty((2, 3), np.float32)
    kernel.bind([_slot(x, is_fixed=False), _slot(None)], [_slot(out)])()
    np.testing.assert_array_equal(out, x @ weight)
