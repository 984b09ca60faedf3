"""Layers with kernels of their own in CUDA's dialect: all forms compile for a GPU, without spills."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ort_sdk.api import KernelInfo, NodeArg
from ort_sdk.device import CUDA, GPU_CLASS, DeviceContext
from ort_sdk.device.attention.group_query import group_query_attention
from ort_sdk.device.namespace.device_namespace import DeviceNamespace
from ort_sdk.device.recurrent.lstm import lstm

sys.path.insert(0, str(Path(__file__).parent))
try:
    import nvrtc
    import recording_provider
finally:
    sys.path.pop(0)

pytestmark = pytest.mark.skipif(
    nvrtc.LIBRARY is None or nvrtc.CUOBJDUMP is None,
    reason="CUDA's compiler is not installed: python -m pip install nvidia-cuda-nvrtc nvidia-cuda-cuobjdump",
)
KINDS = {"f4": "tensor(float)", "f2": "tensor(float16)", "i4": "tensor(int32)"}


def _zeros(xp, shape, kind="f4"):
    return xp.from_host(np.zeros(shape, kind))


def _info(op_type, domain, kinds, outputs, **attributes):
    inputs = tuple(NodeArg(f"x{index}", KINDS[kind]) for index, kind in enumerate(kinds))
    made = tuple(NodeArg(f"y{index}", KINDS[kinds[0]]) for index in range(outputs))
    return KernelInfo(op_type, 14, domain, attributes=attributes, inputs=inputs, outputs=made)


def _lstm(xp, units, kind):
    info = _info("LSTM", "", [kind] * 4, 3, direction="bidirectional", hidden_size=units)
    shapes = ((5, 2, 8), (2, 4 * units, 8), (2, 4 * units, units), (2, 8 * units))
    lstm(info, xp, None)(*(_zeros(xp, shape, kind) for shape in shapes))


def _group_query(xp, past, kind):
    kinds = [*[kind] * 5, "i4", "i4", kind, kind]
    info = _info("GroupQueryAttention", "com.microsoft", kinds, 3, num_heads=4, kv_num_heads=2, do_rotary=1)
    shapes = ((1, 2, 64), (1, 2, 32), (1, 2, 32), (1, 2, past, 16), (1, 2, past, 16))
    arrays = [_zeros(xp, shape, kind) for shape in shapes]
    lengths = _zeros(xp, (1,), "i4"), np.array([past + 2], np.int32)
    group_query_attention(info, xp, None)(*arrays, *lengths, *(_zeros(xp, (64, 8), kind) for _ in range(2)))


LAYERS = {
    "lstm": lambda xp: _lstm(xp, 96, "f4"),
    "lstm of many units": lambda xp: _lstm(xp, 256, "f2"),
    "attention to nothing past": lambda xp: _group_query(xp, 0, "f4"),
    "attention to a cache": lambda xp: _group_query(xp, 7, "f4"),
    "attention to a cache of float16": lambda xp: _group_query(xp, 7, "f2"),
}
OWN = ("lstm", "cache", "attend")
"""What the names of the layers' own kernels begin with; the others have tests of their own."""


@pytest.mark.parametrize("name", LAYERS)
def test_kernels_compile_without_spills(name, tmp_path):
    launcher = recording_provider.RecordingLauncher(replace(GPU_CLASS, units=4), CUDA)
    LAYERS[name](DeviceNamespace(DeviceContext(launcher)))
    kernels = {launch.kernel for launch in launcher.launches if launch.kernel.name.startswith(OWN)}
    assert kernels
    for kernel in kernels:
        text = CUDA.source(kernel.text, {"HAS_F64": 1, **dict(kernel.defines)})
        needs = nvrtc.resources(nvrtc.compiled(text, "sm_90"), tmp_path)[kernel.name]
        assert needs.spilled_bytes == 0, (kernel.name, needs)
        assert needs.registers <= 128, (kernel.name, needs)
        assert needs.shared_bytes <= 48 << 10, (kernel.name, needs)
