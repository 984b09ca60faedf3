"""Weights over the same bytes are once in a saved model's external data, whatever shapes they are seen in."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import ort_sdk

CPU = ["CPUExecutionProvider"]
WORDS, WIDTH = 96, 32
TABLE = np.random.default_rng(0).integers(-8, 8, (WORDS, WIDTH)).astype(np.float32)
"""Whole numbers, of which sums are exact."""
IDS = np.array([3, 95, 0, 3])
MIN_BYTES = "session.optimized_model_external_initializers_min_size_in_bytes"
PACKED = {"session.save_external_prepacked_constant_initializers": "1"}


def value(name, shape=None, element_type=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, element_type, shape)


def external(name, shape, offset, length, element_type=TensorProto.FLOAT):
    tensor = TensorProto(name=name, data_type=element_type, dims=shape, data_location=TensorProto.EXTERNAL)
    for key, entry in {"location": "weights.bin", "offset": offset, "length": length}.items():
        tensor.external_data.add(key=key, value=str(entry))
    return tensor


def tied_nodes():
    """A table of words that are looked up, and compared with all words, one row of the table a column."""
    return [
        helper.make_node("Gather", ["table", "ids"], ["x"]),
        helper.make_node("Reshape", ["other", "shape"], ["words"]),
        helper.make_node("Gemm", ["x", "words"], ["y"], transB=1),
    ]


def write(path, initializers, nodes, inputs, outputs):
    graph = helper.make_graph(nodes, "g", inputs, outputs, initializers)
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    path.write_bytes(helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString())
    return path


def tied_model(folder, tensors):
    (folder / "weights.bin").write_bytes(TABLE.tobytes() * 2)
    shape = numpy_helper.from_array(np.array([WORDS, WIDTH]), "shape")
    inputs, outputs = [value("ids", ["n"], TensorProto.INT64)], [value("y", ["n", WORDS])]
    return write(folder / "model.onnx", [*tensors, shape], tied_nodes(), inputs, outputs)


def save(path, level="ORT_DISABLE_ALL", options=None, **entries):
    """The session, and the saved file's initializers that are outside of it, by name."""
    options = options or ort_sdk.SessionOptions()
    options.graph_optimization_level = getattr(ort_sdk.GraphOptimizationLevel, level)
    target = path.with_name("saved.onnx")
    options.optimized_model_filepath = str(target)
    options.add_session_config_entry("session.optimized_model_external_initializers_file_name", "saved.bin")
    for key, entry in entries.items():
        options.add_session_config_entry(key, entry)
    session = ort_sdk.InferenceSession(str(path), options, providers=CPU)
    saved = onnx.load(target, load_external_data=False).graph.initializer
    return session, {tensor.name: tensor for tensor in saved if tensor.data_location == TensorProto.EXTERNAL}


def place(tensor):
    entries = {entry.key: entry.value for entry in tensor.external_data}
    return entries["location"], int(entries["offset"]), int(entries["length"])


def same_again(path, session, feeds):
    wanted = session.run(None, feeds)
    for package in (ort_sdk, onnxruntime):
        again = package.InferenceSession(str(path.with_name("saved.onnx")), providers=CPU)
        for got, expected in zip(again.run(None, feeds), wanted, strict=True):
            np.testing.assert_array_equal(got, expected)
    return wanted


@pytest.mark.parametrize("entries", [{}, PACKED], ids=["plain", "packed"])
def test_one_range_is_written_once(tmp_path, entries):
    tensors = [external("table", [WORDS, WIDTH], 0, TABLE.nbytes), external("other", [WIDTH, WORDS], 0, TABLE.nbytes)]
    path = tied_model(tmp_path, tensors)
    session, outside = save(path, **entries)
    assert set(outside) == {"table", "other"}
    assert list(outside["other"].dims) == [WIDTH, WORDS]
    assert place(outside["table"]) == place(outside["other"])
    location, offset, length = place(outside["table"])
    content = (tmp_path / location).read_bytes()
    assert content[offset : offset + length] == TABLE.tobytes()
    assert entries or len(content) == TABLE.nbytes
    (found,) = same_again(path, session, {"ids": IDS})
    np.testing.assert_array_equal(found, TABLE[IDS] @ TABLE.T)


@pytest.mark.parametrize("offset", [TABLE.nbytes, 4 * WIDTH])
def test_other_ranges_are_others(tmp_path, offset):
    """Equal contents elsewhere, and a range that overlaps."""
    tensors = [external("table", [WORDS, WIDTH], 0, TABLE.nbytes), external("other", [WIDTH, WORDS], offset, TABLE.nbytes)]
    path = tied_model(tmp_path, tensors)
    session, outside = save(path)
    assert place(outside["table"]) != place(outside["other"])
    (found,) = same_again(path, session, {"ids": IDS})
    words = np.roll(TABLE, -(offset // 4 // WIDTH), axis=0)
    np.testing.assert_array_equal(found, TABLE[IDS] @ words.T)


def test_arrays_in_one_memory_are_written_once(tmp_path):
    tensors = [numpy_helper.from_array(np.zeros_like(TABLE), "table"), numpy_helper.from_array(np.ones_like(TABLE), "other")]
    path = tied_model(tmp_path, tensors)
    options = ort_sdk.SessionOptions()
    given = ort_sdk.OrtValue.ortvalue_from_numpy(TABLE.copy())
    for name in ("table", "other"):
        options.add_initializer(name, given)
    session, outside = save(path, options=options)
    assert place(outside["table"]) == place(outside["other"])
    assert (tmp_path / "saved.bin").stat().st_size == TABLE.nbytes
    (found,) = same_again(path, session, {"ids": IDS})
    np.testing.assert_array_equal(found, TABLE[IDS] @ TABLE.T)


def test_types_share_bytes_but_booleans_do_not(tmp_path):
    """Booleans of any byte but 0 are saved as 1."""
    data = np.random.default_rng(1).integers(0, 5, 2048).astype(np.uint8)
    (tmp_path / "weights.bin").write_bytes(data.tobytes())
    types = {"u8": TensorProto.UINT8, "i8": TensorProto.INT8, "b": TensorProto.BOOL}
    tensors = [external(name, [2048], 0, 2048, element_type) for name, element_type in types.items()]
    nodes = [helper.make_node("Identity", [name], [f"y_{name}"]) for name in types]
    outputs = [value(f"y_{name}", [2048], element_type) for name, element_type in types.items()]
    path = write(tmp_path / "model.onnx", tensors, nodes, [], outputs)
    session, outside = save(path)
    assert place(outside["u8"]) == place(outside["i8"])
    assert (tmp_path / "saved.bin").stat().st_size == 2 * 2048
    found = same_again(path, session, {})
    for got, wanted in zip(found, (data, data.view(np.int8), data != 0), strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_what_is_derived_equally_from_one_range_is_written_once(tmp_path):
    """Two 4-bit products over the same bytes, by different initializers."""
    rows, columns, block = 256, 64, 32
    codes = np.random.default_rng(2).integers(0, 255, rows * columns // 2).astype(np.uint8)
    (tmp_path / "weights.bin").write_bytes(codes.tobytes())
    scales = numpy_helper.from_array(np.full((rows // block, columns), 0.125, np.float32), "scales")
    tensors, nodes = [scales], []
    for name in ("a", "b"):
        tensors.append(external(name, [rows, columns], 0, codes.nbytes, TensorProto.INT4))
        nodes.append(helper.make_node("DequantizeLinear", [name, "scales"], [f"{name}f"], axis=0, block_size=block))
        nodes.append(helper.make_node("MatMul", ["x", f"{name}f"], [f"p{name}"]))
    nodes.append(helper.make_node("Sub", ["pa", "pb"], ["y"]))
    outputs = [value("y", ["n", columns]), value("pa", ["n", columns])]
    path = write(tmp_path / "model.onnx", tensors, nodes, [value("x", ["n", rows])], outputs)
    session, outside = save(path, "ORT_ENABLE_EXTENDED")
    places = [place(tensor) for tensor in outside.values() if place(tensor)[2] == codes.nbytes]
    assert len(places) == 2
    assert len(set(places)) == 1
    x = np.random.default_rng(3).integers(-127, 127, (2, rows)).astype(np.float32)
    x[:, ::8] = 127  # so that blocks and eights rounded to 8 bits are as they were
    difference, product = same_again(path, session, {"x": x})
    nibbles = np.stack([codes & 15, codes >> 4], 1).reshape(rows, columns).astype(np.int8)
    weight = np.where(nibbles > 7, nibbles - 16, nibbles) * 0.125
    np.testing.assert_array_equal(product, x @ weight)
    assert not difference.any()


@pytest.mark.parametrize("other", ["table", "other"], ids=["one-initializer", "two-initializers"])
def test_a_quantized_tied_embedding_is_written_once(tmp_path, other):
    """Looked up by GatherBlockQuantized, and multiplied by MatMulNBits, which sees the same bytes in another shape."""
    words, width, block = 128, 64, 32
    r = np.random.default_rng(4)
    codes, scales = r.integers(0, 16, (words, width)), r.choice([0.5, 1, 2], (words, width // block)).astype(np.float32)
    points = r.integers(0, 16, scales.shape)
    parts = [_nibbles(codes), scales.tobytes(), _nibbles(points)]
    (tmp_path / "weights.bin").write_bytes(b"".join(parts))
    offsets = [0, len(parts[0]), len(parts[0]) + len(parts[1])]
    nodes, tensors = [], []
    for name in dict.fromkeys(["table", other]):
        shapes = [[words, width], list(scales.shape), list(points.shape)]
        types = [TensorProto.UINT4, TensorProto.FLOAT, TensorProto.UINT4]
        for suffix, shape, offset, part, element_type in zip(("", "_s", "_z"), shapes, offsets, parts, types, strict=True):
            tensors.append(external(name + suffix, shape, offset, len(part), element_type))
    for name, user in (("table", "t"), (other, "o")):
        inputs = [name, f"{name}_s", f"{name}_z"]
        nodes.append(helper.make_node("DequantizeLinear", inputs, [f"{user}f"], axis=1, block_size=block))
    nodes += [
        helper.make_node("Gather", ["tf", "ids"], ["x"]),
        helper.make_node("Transpose", ["of"], ["columns"], perm=[1, 0]),
        helper.make_node("MatMul", ["x", "columns"], ["y"]),
    ]
    path = write(tmp_path / "model.onnx", tensors, nodes, [value("ids", ["n"], TensorProto.INT64)], [value("y", ["n", words])])
    entries = {MIN_BYTES: "1", "session.qdq_matmulnbits_accuracy_level": "1"}
    session, outside = save(path, "ORT_ENABLE_EXTENDED", **entries)
    assert len(outside) == 6
    assert len({place(tensor) for tensor in outside.values()}) == 3
    assert (tmp_path / "saved.bin").stat().st_size == sum(map(len, parts))
    (found,) = same_again(path, session, {"ids": IDS})
    table = (codes - points.repeat(block, 1)) * scales.repeat(block, 1)
    np.testing.assert_array_equal(found, table[IDS] @ table.T)


def _nibbles(numbers):
    even, odd = numbers.reshape(-1, 2).T.astype(np.uint8)
    return (even | odd << 4).tobytes()
