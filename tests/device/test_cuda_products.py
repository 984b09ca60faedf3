"""Products and what is made of them in CUDA's dialect: every form compiles for a GPU, within registers and without spills."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ort_sdk.api import KernelInfo, NodeArg, TensorElementType
from ort_sdk.device import CUDA, GPU_CLASS, DeviceContext
from ort_sdk.device.namespace.device_namespace import DeviceNamespace
from ort_sdk.device.products.overrides import PRODUCT_OVERRIDES
from ort_sdk.device.recurrent.layers import recurrent

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
MOST_REGISTERS = {"product": 176, "multiply": 80, "pad": 64, "dequantize": 64, "prepare": 40, "sum_parts": 40, "sum_windows": 64}
"""Kernel → registers of a lane, about one and a half times what it takes: more let fewer lanes run at once."""
MOST_SHARED_BYTES = 48 << 10
FLOAT, DOUBLE = TensorElementType.FLOAT, TensorElementType.DOUBLE


def _launched(run, units=1):
    """The sources that a function over a namespace launches."""
    launcher = recording_provider.RecordingLauncher(replace(GPU_CLASS, units=units), CUDA)
    xp = DeviceNamespace(DeviceContext(launcher))
    result = run(xp)
    xp.context.dense(result.node)
    return {
        (launch.kernel.name, CUDA.source(launch.kernel.text, {"HAS_F64": 1, **dict(launch.kernel.defines)}))
        for launch in launcher.launches
    }


def _array(xp, shape, dtype="f4"):
    return xp.from_host(np.zeros(shape, dtype))


def _product(m, k, n, dtype="f4", *, transposed=False):
    def run(xp):
        right = _array(xp, (n, k), dtype).T if transposed else _array(xp, (k, n), dtype)
        result = _array(xp, (m, k), dtype) @ right
        return xp.maximum(result + _array(xp, (n,), dtype), _array(xp, (m, n), dtype))

    return run


def _exact(xp):
    left, right = (xp.astype(_array(xp, shape, "u1"), DOUBLE) for shape in ((100, 900), (900, 100)))
    return xp.astype(left @ right, FLOAT)


def _operator(op_type, domain, shapes, kinds, **attributes):
    names = {"f4": "tensor(float)", "f2": "tensor(float16)", "u1": "tensor(uint8)"}
    info = KernelInfo(op_type, 11, domain, attributes=attributes, inputs=tuple(NodeArg("x", names[kind], None) for kind in kinds))

    def run(xp):
        arrays = [None if shape is None else _array(xp, shape, kind) for shape, kind in zip(shapes, kinds, strict=True)]
        return PRODUCT_OVERRIDES[domain, op_type](info, xp, None)(*arrays)

    return run


def _bits(m, bits, size, kind, zeros=None):
    shapes = ((m, 256), (64, 256 // size, size * bits // 8), (64, 256 // size), zeros)
    attributes = {"K": 256, "N": 64, "bits": bits, "block_size": size}
    return _operator("MatMulNBits", "com.microsoft", shapes, (kind, "u1", kind, "u1"), **attributes)


def _recurrent(op_type, gates):
    attributes = {"linear_before_reset": 1} if op_type == "GRU" else {}
    inputs = tuple(NodeArg(name, "tensor(float)", None) for name in "xwrb")
    outputs = (NodeArg("y"), NodeArg("h"))
    info = KernelInfo(op_type, 14, attributes=attributes, inputs=inputs, outputs=outputs)
    shapes = ((5, 6, 20), (1, gates * 40, 20), (1, gates * 40, 40), (1, 2 * gates * 40))
    return lambda xp: recurrent(info, xp, None)(*(_array(xp, shape) for shape in shapes))[0]


def _causal(xp):
    keys, queries = xp.arange(200, dtype=xp.int64), xp.reshape(xp.arange(70, dtype=xp.int64), (-1, 1)) + 130
    bias = xp.where(keys > queries, xp.asarray(-np.inf, dtype=xp.float32), xp.asarray(0, dtype=xp.float32))
    return xp.attention(*(_array(xp, (2, 4, length, 64)) for length in (70, 200, 200)), [bias], 0.1)


FORMS = {
    "large tiles": _product(300, 64, 300),
    "middle tiles": (_product(100, 64, 100), 2),
    "small tiles": _product(20, 64, 40),
    "parts of terms": _product(20, 4096, 40),
    "transposed": _product(300, 64, 300, transposed=True),
    "halves": _product(300, 64, 300, "f2"),
    "whole numbers": _exact,
    "small integers": lambda xp: _array(xp, (20, 300)) @ xp.astype(_array(xp, (300, 400), "i1"), FLOAT),
    "RNN": _recurrent("RNN", 1),
    "GRU": _recurrent("GRU", 3),
    "LSTM": _recurrent("LSTM", 4),
    "causal attention": _causal,
    "float64": _product(20, 30, 40, "f8"),
    "int64": lambda xp: _array(xp, (20, 30), "i8") @ _array(xp, (30, 40), "i8"),
    "a row": _product(1, 300, 400),
    "rows by terms": _product(4, 300, 400, "f2", transposed=True),
    "convolution": _operator("Conv", "", ((2, 16, 20, 20), (64, 16, 3, 3), (64,)), ("f4",) * 3, strides=(2, 2)),
    "padded halves": _operator("Conv", "", ((2, 16, 20, 20), (64, 16, 3, 3)), ("f2",) * 2, pads=(1, 1, 1, 1)),
    "depthwise": _operator("Conv", "", ((2, 16, 20, 20), (16, 1, 3, 3)), ("f4",) * 2, group=16),
    "transposed convolution": _operator("ConvTranspose", "", ((2, 16, 9, 9), (16, 8, 3, 3)), ("f4",) * 2, strides=(2, 2)),
    "4 bits": _bits(1, 4, 32, "f4", (64, 4)),
    "8 bits": _bits(4, 8, 16, "f2"),
    "many rows": _bits(40, 4, 64, "f2", (64, 2)),
}


@pytest.mark.parametrize("form", FORMS)
def test_forms_compile_and_keep_to_their_resources(form, tmp_path):
    run, units = FORMS[form] if isinstance(FORMS[form], tuple) else (FORMS[form], 1)
    for name, text in _launched(run, units):
        needs = nvrtc.resources(nvrtc.compiled(text, "sm_90"), tmp_path)[name]
        assert needs.spilled_bytes == 0, (name, needs)
        assert needs.stack_bytes <= 64, (name, needs)
        assert needs.registers <= MOST_REGISTERS.get(name, 64), (name, needs)
        assert needs.shared_bytes <= MOST_SHARED_BYTES, (name, needs)
