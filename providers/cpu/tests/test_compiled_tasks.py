"""Compiled tasks and oneDNN's products beside float64, over shapes with and without rests of vectors."""

import math
import os
import shutil
import subprocess
import sys
import threading
import weakref
from pathlib import Path

import numpy as np
import ort_sdk_cpu
import pytest
from ort_sdk_cpu.gemm import operators
from ort_sdk_cpu.jit.task import TaskCall
from ort_sdk_cpu.platform import libraries

MICROSOFT = "com.microsoft"
needs_numba = pytest.mark.skipif(not libraries.compiled_kernels().is_usable, reason=str(libraries.compiled_kernels()))
needs_onednn = pytest.mark.skipif(not libraries.onednn().is_usable, reason=str(libraries.onednn()))

erf = np.vectorize(math.erf)


def random(*shape, scale=1.0, seed=0):
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float32)


def normalized(x, axis_mean=True):
    centred = x - x.mean(-1, keepdims=True) if axis_mean else x
    return centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + 1e-5)


def softmax(x):
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


@pytest.fixture
def close(run_both):
    """The bound kernel's first output is near a float64 reference."""

    def check(op_type, reference, *inputs, tolerance=2e-6, **options):
        _, bound = run_both(op_type, *inputs, **options)
        assert bound is not None
        np.testing.assert_allclose(bound[0], reference, rtol=tolerance, atol=tolerance)

    return check


ELEMENTWISE = [
    ("Sigmoid", "", {}, lambda x: 1 / (1 + np.exp(-x))),
    ("Erf", "", {}, erf),
    ("Gelu", "", {}, lambda x: x * (1 + erf(x / math.sqrt(2))) / 2),
    ("Gelu", "", {"approximate": "tanh"}, lambda x: x / (1 + np.exp(-2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))),
    ("QuickGelu", MICROSOFT, {"alpha": 1.5}, lambda x: x / (1 + np.exp(-1.5 * x))),
]


@needs_numba
@pytest.mark.parametrize("count", [4096, 5003, 70001])
@pytest.mark.parametrize(("op_type", "domain", "attributes", "reference"), ELEMENTWISE)
def test_functions_of_elements(close, op_type, domain, attributes, reference, count):
    x = random(count, scale=4)
    version = 20 if (op_type, domain) == ("Gelu", "") else None
    close(op_type, reference(x.astype(np.float64)), x, domain=domain, version=version, **attributes)


@needs_numba
@pytest.mark.parametrize("op_type", ["Sigmoid", "Erf"])
def test_extreme_elements(run_both, op_type):
    x = np.resize(np.array([np.inf, -np.inf, np.nan, 0.0, 1e-30, 200.0, -200.0], np.float32), 5000)
    expected, bound = run_both(op_type, x)
    np.testing.assert_allclose(bound[0], expected[0], rtol=1e-6, atol=1e-30)


@needs_numba
@pytest.mark.parametrize(("rows", "width"), [(300, 16), (64, 100), (3, 5001), (129, 768), (4099, 1)])
class TestRows:
    def test_softmax(self, close, rows, width):
        x = random(rows, width, scale=5)
        close("Softmax", softmax(x.astype(np.float64)), x)

    def test_masked_softmax(self, close, rows, width):
        x = random(rows, width) - 90
        x[:, width // 2 :] = -np.inf if width > 1 else -1.0
        close("Softmax", softmax(x.astype(np.float64)), x)

    def test_layer_normalization(self, close, rows, width):
        x, scale, shift = random(rows, width, scale=3), random(width, seed=1), random(width, seed=2)
        expected = normalized(x.astype(np.float64)) * scale + shift
        close("LayerNormalization", expected, x, scale, shift, tolerance=5e-6)

    @pytest.mark.parametrize("has_bias", [True, False])
    def test_skip_layer_normalization(self, run_both, rows, width, has_bias):
        x, skip = random(rows, width).reshape(1, rows, width), random(rows, width, seed=3).reshape(1, rows, width)
        scale, shift, bias = (random(width, seed=seed) for seed in (1, 2, 4))
        inputs = [x, skip, scale, shift, *([bias] if has_bias else [])]
        _, bound = run_both("SkipLayerNormalization", *inputs, domain=MICROSOFT, wanted=(0, 3), epsilon=1e-5)
        total = x.astype(np.float64) + skip + (bias if has_bias else 0)
        np.testing.assert_allclose(bound[-1], total, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(bound[0], normalized(total) * scale + shift, rtol=5e-6, atol=5e-6)

    def test_rms_normalization(self, close, rows, width):
        x, scale = random(rows, width, scale=3), random(width, seed=1)
        expected = normalized(x.astype(np.float64), axis_mean=False) * scale
        close("SimplifiedLayerNormalization", expected, x, scale, version=1, tolerance=5e-6)

    def test_bias_gelu(self, close, rows, width):
        x, bias = random(rows, width, scale=3), random(width, seed=1)
        total = x.astype(np.float64) + bias
        close("BiasGelu", total * (1 + erf(total / math.sqrt(2))) / 2, x, bias, domain=MICROSOFT)


def attended(query, key, value, heads, mask):
    def split(x):
        return x.astype(np.float64).reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)

    q, k, v = map(split, (query, key, value))
    scores = q @ k.swapaxes(2, 3) / math.sqrt(q.shape[3])
    found = softmax(scores if mask is None else scores + mask) @ v
    return found.transpose(0, 2, 1, 3).reshape(*query.shape[:2], -1)


@needs_numba
@pytest.mark.parametrize(("length", "keys"), [(1, 700), (16, 16), (33, 130), (40, 3), (128, 257)])
@pytest.mark.parametrize("mask", ["none", "keys", "all"])
@pytest.mark.parametrize("has_bias", [True, False])
def test_attention(close, length, keys, mask, has_bias):
    batch, heads, size = 2, 3, 24
    width = heads * size
    query, key, value = random(batch, length, width), random(batch, keys, width, seed=1), random(batch, keys, width, seed=2)
    shape = {"none": None, "keys": (batch, 1, 1, keys), "all": (1, heads, length, keys)}[mask]
    added = None if shape is None else random(*shape, seed=3)
    bias = random(3 * width, seed=4) if has_bias else None
    parts = np.split(bias, 3) if has_bias else [0, 0, 0]
    expected = attended(query + parts[0], key + parts[1], value + parts[2], heads, added)
    inputs = [query, key, value, bias, None, added]
    while inputs[-1] is None:
        inputs.pop()
    close("MultiHeadAttention", expected, *inputs, domain=MICROSOFT, num_heads=heads, tolerance=1e-5)


def recurrent_reference(op_type, x, w, r, b, *, reverse, resets_after):
    hidden = r.shape[2]
    h, c = np.zeros((x.shape[1], hidden)), np.zeros((x.shape[1], hidden))
    w, r, b = (array[0].astype(np.float64) for array in (w, r, b))
    found = np.zeros((len(x), x.shape[1], hidden))

    def sigmoid(z):
        return 1 / (1 + np.exp(-z))

    for time in reversed(range(len(x))) if reverse else range(len(x)):
        own, past = x[time] @ w.T + b[: len(w)], h @ r.T + b[len(w) :]
        if op_type == "LSTM":
            entry, output, forget, candidate = np.split(own + past, 4, axis=1)
            c = sigmoid(forget) * c + sigmoid(entry) * np.tanh(candidate)
            h = sigmoid(output) * np.tanh(c)
        else:
            (z, n, new), (past_z, past_n, past_new) = np.split(own, 3, axis=1), np.split(past, 3, axis=1)
            z, n = sigmoid(z + past_z), sigmoid(n + past_n)
            last = slice(2 * hidden, None)
            reset = n * past_new if resets_after else (n * h) @ r[last].T + b[len(w) :][last]
            h = (1 - z) * np.tanh(new + reset) + z * h
        found[time] = h
    return found[:, None]


@needs_numba
@pytest.mark.parametrize("op_type", ["LSTM", "GRU", "GRU that resets first"])
@pytest.mark.parametrize("direction", ["forward", "reverse"])
@pytest.mark.parametrize(
    ("steps", "batch", "hidden"), [(7, 1, 128), (7, 3, 70), (2, 2, 301), (7, 4, 512), (3, 9, 256), (1, 1, 130)]
)
def test_recurrent(close, op_type, direction, steps, batch, hidden):
    op_type, *resets_first = op_type.split(maxsplit=1)
    gates = {"LSTM": 4, "GRU": 3}[op_type]
    x, w = random(steps, batch, 40), random(1, gates * hidden, 40, scale=0.1, seed=1)
    r, b = random(1, gates * hidden, hidden, scale=0.05, seed=2), random(1, 2 * gates * hidden, seed=3)
    resets_after = op_type == "GRU" and not resets_first
    attributes = {"hidden_size": hidden, "direction": direction} | ({"linear_before_reset": 1} if resets_after else {})
    expected = recurrent_reference(op_type, x, w, r, b, reverse=direction == "reverse", resets_after=resets_after)
    close(op_type, expected, x, w, r, b, **attributes, tolerance=1e-5)


@needs_onednn
@pytest.mark.parametrize(("inner", "columns"), [(128, 128), (300, 100), (777, 33)])
@pytest.mark.parametrize("rows", [(1,), (7,), (2, 3), (0,), ()])
@pytest.mark.parametrize("attributes", [{}, {"transB": 1, "alpha": 0.5, "beta": 2.0}])
def test_packed_products(make_kernel, monkeypatch, inner, columns, rows, attributes):
    from ort_sdk_cpu.gemm.onednn import OneDnnGemm

    monkeypatch.setattr(operators, "stores_packed_weights", lambda _info: True)
    op_type = "Gemm" if len(rows) == 1 else "MatMul" if not attributes else "FusedMatMul"
    attributes = {name: value for name, value in attributes.items() if op_type == "Gemm" or name != "beta"}
    x, weight, bias = random(*rows, inner), random(inner, columns, scale=inner**-0.5, seed=1), random(columns, seed=2)
    given = np.ascontiguousarray(weight.T) if attributes.get("transB") else weight
    inputs = [x, given, *([bias] if op_type == "Gemm" else [])]
    domain = MICROSOFT if op_type == "FusedMatMul" else ""
    kernel = make_kernel(op_type, inputs, attributes, domain, None, range(1, len(inputs)), (None,))
    assert isinstance(kernel, OneDnnGemm)

    class Weight:
        element_type, shape = operators.TensorElementType.FLOAT, given.shape
        numpy = staticmethod(lambda: given)

    kernel.use_prepacked(kernel.prepack(Weight(), 1, None), 1)
    expected = x.astype(np.float64) @ weight * attributes.get("alpha", 1.0)
    if op_type == "Gemm":
        expected += bias * attributes.get("beta", 1.0)
    found = kernel.compute(x, None, *inputs[2:])
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    assert found.shape == expected.shape


@needs_numba
def test_tasks_of_several_threads_at_once():
    from ort_sdk_cpu.jit.task import TaskCall

    failures = []

    def work(seed):
        x = random(257, 300, seed=seed)
        out = np.empty_like(x)
        call = TaskCall("normalization.rows", "softmax", (x, out, *x.shape), 2)
        expected = softmax(x.astype(np.float64))
        for _ in range(50):
            out.fill(7)
            call.run()
            if not np.allclose(out, expected, atol=1e-6):
                failures.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


@needs_numba
@pytest.mark.parametrize("threads", [1, 2])
def test_a_call_outlives_its_object(threads):
    x = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
    out = np.empty_like(x)
    call = TaskCall("normalization.rows", "softmax", (x, out, *x.shape), threads)
    call.run()
    record, run = weakref.ref(call._record), call.run
    del call
    out.fill(7)
    assert record() is not None, "the arguments are read where no array is any more"
    run()
    exponentials = np.exp(x.astype(np.float64))
    np.testing.assert_allclose(out, exponentials / exponentials.sum(axis=1, keepdims=True), rtol=1e-6)


CHECK = """
import logging
logging.basicConfig()
logging.getLogger("ort_sdk.cpu").setLevel(logging.INFO)
import numpy as np
from ort_sdk_cpu.jit.task import TaskCall
x = np.random.default_rng(0).standard_normal((50, 131)).astype(np.float32)
out = np.empty_like(x)
TaskCall("normalization.rows", "softmax", (x, out, *x.shape), 2).run()
e = np.exp(x.astype(np.float64)); assert abs(out - e / e.sum(1, keepdims=True)).max() < 1e-6
TaskCall("elementwise.functions", "gelu", (x, out, x.size), 2).run()
assert abs(out[x > 6] - x[x > 6]).sum() == 0
for width in (1, 16, 131):
    y, out = np.ascontiguousarray(x[::-1, :width]), np.full((51, width), 7, np.float32)
    own = np.ascontiguousarray(x[:, :width])
    TaskCall("elementwise.functions", "add_rows", (own, y, out, *own.shape), 2).run()
    assert (out[:50] == own + y).all() and (out[50:] == 7).all()
"""


def in_process(code, **environment):
    command = [sys.executable, "-P", "-c", code]
    return subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)


@needs_numba
@pytest.mark.parametrize("level", ["amx", "avx512", "avx2", "portable"])
def test_forced_instruction_sets(level):
    done = in_process(CHECK, ORT_SDK_CPU_ISA=level)
    assert done.returncode == 0 or "this machine allows" in done.stderr, done.stderr


@needs_numba
def test_kernels_are_compiled_once(tmp_path):
    first, second = (in_process(CHECK, ORT_SDK_CPU_CACHE_DIR=str(tmp_path)) for _ in range(2))
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert "compiled CPU kernel 2, normalization.rows-softmax" in first.stderr
    assert second.stderr == ""
    (path,) = tmp_path.glob("*/normalization.rows-softmax-*")
    path.write_bytes(path.read_bytes()[:-1])
    assert "compiled CPU kernel 1, normalization.rows-softmax" in in_process(CHECK, ORT_SDK_CPU_CACHE_DIR=str(tmp_path)).stderr


@needs_numba
def test_kernels_for_other_arguments_are_compiled_anew(tmp_path, monkeypatch):
    from ort_sdk_cpu.jit.archive import sources

    shutil.copytree(Path(ort_sdk_cpu.__file__).parent, tmp_path, dirs_exist_ok=True)
    monkeypatch.setattr(sources, "PACKAGE", tmp_path)
    sources.forget()
    before = sources.sources_digest("normalization.compiled.rows")
    arguments = tmp_path / "normalization" / "arguments" / "rows.py"
    arguments.write_text(arguments.read_text().replace("rows: int\n    width: int", "width: int\n    rows: int"))
    sources.forget()
    after = sources.sources_digest("normalization.compiled.rows")
    monkeypatch.undo()
    sources.forget()
    assert after != before


SESSION = """
import sys
import numpy as np, onnx, ort_sdk
from onnx import helper, numpy_helper
weight = np.random.default_rng(0).standard_normal((256, 256)).astype(np.float32) / 16
nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Softmax", ["p"], ["y"])]
value = lambda name: helper.make_tensor_value_info(name, 1, [64, 256])
graph = helper.make_graph(nodes, "g", [value("x")], [value("y")], [numpy_helper.from_array(weight, "w")])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
session = ort_sdk.InferenceSession(model.SerializeToString())
x = np.random.default_rng(1).standard_normal((64, 256)).astype(np.float32)
p = np.exp(x.astype(np.float64) @ weight); expected = p / p.sum(1, keepdims=True)
for _ in range(3):
    assert abs(session.run(None, {"x": x})[0] - expected).max() < 1e-5
assert "numba" not in sys.modules or sys.argv[1] == "first"
assert "llvmlite" not in sys.modules or sys.argv[1] == "first" or not sys.platform.startswith("linux"), "llvmlite"
"""


@needs_numba
@pytest.mark.parametrize("disabled", ["", "onednn", "onednn,kernels", "onednn,numba"])
def test_without_libraries(disabled):
    in_process(f"import sys; sys.argv = ['', 'first']\n{SESSION}")
    done = in_process(f"import sys; sys.argv = ['', 'warm']\n{SESSION}", ORT_SDK_CPU_DISABLE=disabled)
    assert done.returncode == 0, done.stderr


@needs_numba
@pytest.mark.parametrize(("version", "is_usable"), [("0.61.2", False), ("0.9", False), ("0.62.0rc1", True), ("1.0", True)])
def test_numba_that_is_too_old_is_not_used(version, is_usable, monkeypatch):
    monkeypatch.setattr(libraries, "version_of", lambda _name: version)
    found = libraries.numba.__wrapped__()
    assert found.is_usable == is_usable
    assert is_usable or str(found) == f"numba: not used: {version} is installed, 0.62 is needed; pip install 'numba>=0.62'"


def test_unknown_libraries_are_refused():
    done = in_process("from ort_sdk_cpu.platform import libraries; libraries.numba()", ORT_SDK_CPU_DISABLE="mkl")
    assert "mkl" in done.stderr
    assert "onednn, numba" in done.stderr
