"""Code for processors without AVX2: what it does without their instructions, and that it needs no function they would lack."""

import os
import subprocess
import sys

import pytest
from ort_sdk_cpu.jit import llvm
from ort_sdk_cpu.jit.archive.writer import image_entry
from ort_sdk_cpu.jit.elf.image import LinkError, can_link
from ort_sdk_cpu.platform import libraries

pytestmark = [
    pytest.mark.skipif(not libraries.numba().is_usable, reason=str(libraries.numba())),
    pytest.mark.skipif(not can_link(), reason="archives are for Linux on x86-64"),
]

CONVERSIONS = """
import numpy as np
from ort_sdk_cpu.jit.task import TaskCall
float16_numbers = np.arange(65536, dtype=np.uint16).view(np.float16)
wide = np.empty(65536, np.float32)
TaskCall("elementwise.cast", "f16_to_f32", (float16_numbers, wide, wide.size), 1).run()
np.testing.assert_array_equal(wide, float16_numbers.astype(np.float32))
assert (np.signbit(wide) == np.signbit(float16_numbers)).all()
finite = np.sort(wide[np.isfinite(wide)])
ties = (finite[1:] + finite[:-1]) / 2
limits = np.array([65504, 65519.996, 65520, 65536, 1e30, 2**-24, 2**-25, np.nextafter(np.float32(2**-25), np.float32(1))])
random = np.random.default_rng(0).integers(0, 2**32, 300_000, dtype=np.uint32).view(np.float32)
near = [np.nextafter(ties, np.float32(side)) for side in (-1e9, 1e9)]
with np.errstate(all="ignore"):
    x = np.concatenate([wide, ties, *near, limits, -limits, random]).astype(np.float32)
    expected = x.astype(np.float16)
found = np.empty(x.size, np.float16)
TaskCall("elementwise.cast", "f32_to_f16", (x, found, x.size), 1).run()
np.testing.assert_array_equal(found, expected)
assert (np.signbit(found) == np.signbit(expected)).all()
"""

DECODING = """
import numpy as np, onnx, ort_sdk
from onnx import helper, numpy_helper
rng = np.random.default_rng(0)
rows, columns, block = 64, 256, 32
codes = rng.integers(0, 256, (rows, columns // block, block // 2)).astype(np.uint8)
scales = rng.random((rows, columns // block)).astype(np.float32)
attributes = {"K": columns, "N": rows, "bits": 4, "block_size": block, "accuracy_level": 4, "domain": "com.microsoft"}
value = helper.make_tensor_value_info
nodes = [helper.make_node("MatMulNBits", ["x", "q", "s"], ["y"], **attributes)]
weights = [numpy_helper.from_array(codes, "q"), numpy_helper.from_array(scales.reshape(-1), "s")]
graph = helper.make_graph(nodes, "g", [value("x", 1, [1, columns])], [value("y", 1, [1, rows])], weights)
opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
model = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
session = ort_sdk.InferenceSession(model, providers=["CPUExecutionProvider"])
x = rng.standard_normal((1, columns)).astype(np.float32)
numbers = np.stack([codes & 15, codes >> 4], -1).reshape(rows, columns // block, block) - 8.0
expected = x @ (numbers * scales[..., None]).reshape(rows, columns).T
for _ in range(3):
    (found,) = session.run(None, {"x": x})
    assert abs(found - expected).max() < 0.02 * abs(expected).max()
"""


@pytest.mark.parametrize("code", [CONVERSIONS, DECODING], ids=["conversions", "decoding"])
def test_float16_without_instructions(code):
    environment = os.environ | {"ORT_SDK_CPU_ISA": "portable", "ORT_SDK_COMPILATION": "wait"}
    done = subprocess.run([sys.executable, "-P", "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("function", ["__extendhfsf2", "nobody_has_this"])
def test_archives_call_no_function_that_a_machine_may_lack(function):
    text = f"declare float @{function}(float)\ndefine float @total(float %x) {{\n  %y = call float @{function}(float %x)\n"
    code = llvm.emit_object(text + "  ret float %y\n}")
    with pytest.raises(LinkError, match=f"calls {function}, which machines may lack"):
        image_entry("total", "total", code)


def test_products_are_added_without_the_c_library(tmp_path):
    """A call for each lane takes ten times as long as a product and a sum."""
    path = tmp_path / "x86_64-linux-portable.kernels"
    command = [sys.executable, "-P", "-m", "ort_sdk_cpu.jit.build_archive", "--target", "portable", "--jobs", "1"]
    command += ["--tasks", "normalization.rows.softmax", "--output", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert b"omp_get_thread_num" in path.read_bytes()
    assert b"fmaf" not in path.read_bytes()
