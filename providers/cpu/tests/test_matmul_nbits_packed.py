"""Weights of DequantizeLinear + MatMul in sessions that keep packed weights in files: what is in them, and what is computed."""

import gc
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from ort_sdk_cpu.gemm.nbits import operators
from ort_sdk_cpu.jit.task import TaskCall
from ort_sdk_cpu.platform import libraries

import ort_sdk
from ort_sdk.testing.collection import only_new_objects

pytestmark = pytest.mark.skipif(not libraries.compiled_kernels().is_usable, reason="numba is not installed")

CACHE = "session.prepack_cache_dir"
FILE = "session.optimized_model_external_initializers_file_name"
SAVE = {FILE: "saved.data", "session.save_external_prepacked_constant_initializers": "1"}
EXACT = {"session.qdq_matmulnbits_accuracy_level": "0"}
CPU = ["CPUExecutionProvider"]
HALVES = {2: 0xAA, 4: 0x88, 8: 0x80}


def pack(codes, bits):
    """Along the last axis, lowest bits first."""
    parts = codes.reshape(*codes.shape[:-1], -1, 8 // bits).astype(np.uint8)
    return np.bitwise_or.reduce(parts << np.arange(0, 8, bits, dtype=np.uint8), axis=-1)


class Product:
    """A model x @ dequantised(w), with the weight in an external file."""

    def __init__(self, folder, name="int4", size_k=130, size_n=256, block=32, *, zeros=False, seed=0, copies=1):
        self.bits, signed = int(name.lstrip("uint")), not name.startswith("u")
        half, blocks = 1 << (self.bits - 1), -(-size_k // block)
        lower = half if signed else 0
        rng = np.random.default_rng([seed, size_k, size_n])
        codes = rng.integers(0, 2 * half, (size_k, size_n))
        scales = rng.uniform(0.5, 1.5, (blocks, size_n)).astype(np.float32)
        points = rng.integers(0, 2 * half, (blocks, size_n)) if zeros else np.full((blocks, size_n), lower)
        wide = [np.repeat(values, block, axis=0)[:size_k] for values in (scales, points)]
        self.weight = (codes - wide[1].astype(np.float64)) * wide[0]
        padded = np.zeros((size_n, blocks * block), np.int64)
        padded[:, :size_k] = codes.T
        self.packed = [pack(padded, self.bits).tobytes(), np.ascontiguousarray(scales.T).tobytes()]
        kind, mask = TensorProto.DataType.Value(name.upper()), 2 * half - 1
        constants = [self._constant("w", kind, (codes - lower) & mask), numpy_helper.from_array(scales, "s")]
        if zeros:
            constants.append(self._constant("z", kind, (points - lower) & mask))
        names = [constant.name for constant in constants]
        nodes = [helper.make_node("DequantizeLinear", names, ["d"], axis=0, block_size=block)]
        nodes += [helper.make_node("MatMul", [f"x{index}", "d"], [f"y{index}"]) for index in range(copies)]
        inputs, outputs = (
            [helper.make_tensor_value_info(f"{side}{index}", TensorProto.FLOAT, ["rows", size]) for index in range(copies)]
            for side, size in (("x", size_k), ("y", size_n))
        )
        graph = helper.make_graph(nodes, "product", inputs, outputs, constants)
        opset = 21 if self.bits > 2 else 25
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10 if self.bits > 2 else 13)
        self.path = folder / "model.onnx"
        self.path.with_suffix(".data").unlink(missing_ok=True)
        onnx.save(model, self.path, save_as_external_data=True, location="model.data", size_threshold=0)
        self.copies = copies

    def _constant(self, name, kind, values):
        return helper.make_tensor(name, kind, values.shape, pack(values, self.bits).tobytes(), raw=True)

    def check(self, session, tolerance=1e-5):
        for rows in (1, 2, 40):
            x = np.random.default_rng(rows).standard_normal((rows, len(self.weight))).astype(np.float32)
            wanted = x @ self.weight
            for result in session.run(None, {f"x{index}": x for index in range(self.copies)}):
                np.testing.assert_allclose(result, wanted, rtol=0, atol=tolerance * np.abs(wanted).max())


def start(path, config, saved_to=None):
    options = ort_sdk.SessionOptions()
    for key, value in config.items():
        options.add_session_config_entry(key, str(value))
    if saved_to is not None:
        options.optimized_model_filepath = str(saved_to)
    return ort_sdk.InferenceSession(path, options, providers=CPU)


@pytest.fixture
def packed(monkeypatch):
    """Constants that were packed, in order."""
    names, pack_operand = [], operators.pack_operand

    def recorded(weight, tensor, allocator):
        names.append(tensor.transformation.split(" K=")[0])
        return pack_operand(weight, tensor, allocator)

    monkeypatch.setattr(operators, "pack_operand", recorded)
    return names


TYPES = [
    ("int4", {}),
    ("uint4", {"zeros": True}),
    ("int8", {"zeros": True, "block": 128}),
    ("uint8", {"size_n": 70}),
    ("uint2", {"zeros": True, "block": 64}),
    ("int2", {"block": 16, "size_k": 600}),
    ("int4", {"size_n": 60}),
]


@pytest.mark.parametrize(("name", "sizes"), TYPES)
@only_new_objects()
def test_the_cache_folder_holds_the_operators_layout(tmp_path, packed, name, sizes):
    product = Product(tmp_path, name, **sizes)
    config = EXACT | {CACHE: tmp_path / "cache"}
    for _ in range(2):
        product.check(start(product.path, config))
        gc.collect()
    assert len(packed) == len(set(packed)) >= 2
    files = [file.read_bytes() for file in (tmp_path / "cache").iterdir()]
    assert len(files) == len(packed)
    for content in product.packed:
        assert sum(content in file for file in files) == 1
    product.check(start(product.path, {CACHE: tmp_path / "cache"}), tolerance=0.02)


@pytest.mark.parametrize(("name", "sizes"), TYPES)
def test_saved_models_hold_it_once_and_load_elsewhere(tmp_path, packed, name, sizes):
    product, saved = Product(tmp_path, name, **sizes), tmp_path / "saved.onnx"
    product.check(start(product.path, EXACT | SAVE, saved))
    assert len(packed) >= 2
    content = (tmp_path / "saved.data").read_bytes()
    assert [content.count(part) for part in product.packed] == [1, 1]
    again, theirs = start(saved, {}), onnxruntime.InferenceSession(saved, providers=CPU)
    del packed[:]
    product.check(again)
    product.check(theirs)
    assert packed == []


@pytest.mark.skipif(sys.platform != "linux", reason="maps are read from /proc")
def test_packed_weights_are_no_private_memory(tmp_path, packed):
    product = Product(tmp_path, size_k=1024, size_n=1024)
    session = start(product.path, {CACHE: tmp_path / "cache"})
    maps = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    assert len({line.split()[-1] for line in maps if str(tmp_path) in line and ".prepacked" in line}) == len(packed) == 2
    product.check(session, tolerance=0.02)


def test_without_files_nothing_is_packed(tmp_path, packed):
    product = Product(tmp_path)
    product.check(start(product.path, EXACT))
    product.check(start(product.path, EXACT | {"session.save_external_prepacked_constant_initializers": "1"}))
    assert packed == []


@pytest.mark.parametrize("config", [SAVE, {CACHE: "cache"}])
def test_shared_weights_are_packed_once(tmp_path, packed, config, monkeypatch):
    monkeypatch.chdir(tmp_path)
    product = Product(tmp_path, copies=3)
    first = start(product.path, EXACT | config, tmp_path / "saved.onnx" if config is SAVE else None)
    product.check(first)
    assert len(packed) == 2
    if config is not SAVE:
        second = start(product.path, EXACT | config)
        product.check(second)
        assert len(packed) == 2


@only_new_objects()
def test_other_contents_are_packed_anew(tmp_path, packed):
    config = EXACT | {CACHE: tmp_path / "cache"}
    for seed in range(3):
        product = Product(tmp_path, seed=seed)
        product.check(start(product.path, config))
        gc.collect()
    assert len(packed) == 6


@only_new_objects()
def test_damaged_files_are_packed_anew(tmp_path, packed):
    product, folder = Product(tmp_path), tmp_path / "cache"
    start(product.path, EXACT | {CACHE: folder})
    gc.collect()
    for file in folder.iterdir():
        content = bytearray(file.read_bytes())
        content[1000] ^= 4
        file.unlink()
        file.write_bytes(content)
    product.check(start(product.path, EXACT | {CACHE: folder}))
    assert len(packed) == 4


def test_a_full_disk_costs_the_files_only(tmp_path, packed, monkeypatch):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)
    product = Product(tmp_path)
    product.check(start(product.path, EXACT | {CACHE: tmp_path / "cache"}))
    assert len(packed) == 2


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_transposition(bits, threads):
    rng = np.random.default_rng(bits)
    for size_k, size_n, block in ((64, 512, 16), (100, 576, 64), (129, 520, 256), (1, 1024, 16), (300, 1032, 128)):
        codes = rng.integers(0, 1 << bits, (size_k, size_n))
        padded = np.zeros((size_n, -(-size_k // block) * block), np.int64)
        padded[:, :size_k] = codes.T
        wanted = pack(padded, bits)
        for flip in (0, HALVES[bits]):
            source, out = pack(codes, bits) ^ np.uint8(flip), np.full(wanted.shape, 7, np.uint8)
            work = np.empty(threads << 14, np.uint8)
            word = int.from_bytes(bytes([flip] * 4), "little", signed=True)
            arguments = (source, out, size_k, source.shape[1], out.shape[1], word, work)
            TaskCall("gemm.nbits.transpose", f"transpose_codes_{bits}", arguments, threads).run()
            np.testing.assert_array_equal(out, wanted)


@pytest.mark.parametrize("shape", [(96, 3072), (3, 50), (1, 16), (17, 33)])
def test_transposition_of_scales(shape):
    scales = np.random.default_rng(0).random(shape, np.float32)
    out = np.zeros(shape[::-1], np.float32)
    TaskCall("gemm.nbits.transpose", "transpose_scales", (scales, out, *shape), 2).run()
    np.testing.assert_array_equal(out, scales.T)


def test_half_scales_are_kept_in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    codes, scales = rng.integers(0, 256, (256, 32, 16), np.uint8), rng.uniform(0.5, 1.5, (256, 32)).astype(np.float32)
    constants = [numpy_helper.from_array(codes, "w"), numpy_helper.from_array(scales, "s")]
    sizes = {"K": 1024, "N": 256, "bits": 4, "block_size": 32, "accuracy_level": 4}
    node = helper.make_node("MatMulNBits", ["x", "w", "s"], ["y"], domain="com.microsoft", **sizes)
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", size]) for name, size in (("x", 1024), ("y", 256))]
    graph = helper.make_graph([node], "product", values[:1], values[1:], constants)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), "model.onnx")
    x, packed = {"x": rng.standard_normal((1, 1024)).astype(np.float32)}, []
    made = operators.pack_float16_scales
    monkeypatch.setattr(operators, "pack_float16_scales", lambda *arguments: packed.append(1) or made(*arguments))
    plain = start("model.onnx", {}).run(None, x)[0]
    assert not packed
    found = []
    for _ in range(2):
        gc.collect()
        found.append(start("model.onnx", {CACHE: "cache"}).run(None, x)[0])
        assert len(packed) == 1
    np.testing.assert_array_equal(*found)
    nibbles = np.stack([codes & 15, codes >> 4], -1).reshape(256, 32, 32) - 8.0
    exact = x["x"].astype(np.float64) @ (nibbles * scales[..., None]).reshape(256, 1024).T
    assert 0 < np.abs(found[0] - plain).max() < 2e-3 * np.abs(exact).max()
    assert np.square(found[0] - exact).mean() < 1.1 * np.square(plain - exact).mean()
