"""Weights are ranges of the file or of the caller's bytes, shared and never copied by loading."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from ort_sdk.formats.files.byte_source import wrap_buffer
from ort_sdk.formats.files.mapped_tensor import SHORT_BYTES, MappedTensor
from ort_sdk.formats.files.memory_map import map_file
from ort_sdk.formats.onnx.reader.messages import parse_model
from ort_sdk.formats.onnx.reader.wire import MIN_PAYLOAD_BYTES, Message, Payload
from ort_sdk.loader import load_model
from ort_sdk.testing.collection import only_new_objects


def address(array: np.ndarray) -> int:
    return array.ctypes.data


def is_inside(array: np.ndarray, whole: np.ndarray) -> bool:
    return address(whole) <= address(array) and address(array) + array.nbytes <= address(whole) + whole.nbytes


def test_inline_weights_are_views_of_the_callers_bytes(rich_model) -> None:
    data = rich_model.SerializeToString()
    model = load_model(data)
    whole = np.frombuffer(data, dtype=np.uint8)
    tensors = [model.graph.initializers["w"]]
    tensors += [tensor for graph in model.graph.walk() for tensor in graph.initializers.values() if len(tensor.shape) == 1]
    mapped = [tensor for tensor in tensors if isinstance(tensor, MappedTensor)]
    assert len(mapped) >= 2
    assert all(is_inside(tensor.packed(), whole) for tensor in mapped)
    np.testing.assert_array_equal(model.graph.initializers["w"].numpy(), np.arange(256, dtype=np.float32) + 1)


def test_inline_weights_are_views_of_the_map(rich_model, tmp_path) -> None:
    onnx.save(rich_model, tmp_path / "m.onnx")
    tensor = load_model(tmp_path / "m.onnx").graph.initializers["w"]
    assert is_inside(tensor.packed(), tensor.source.array)
    assert len(tensor.source) == (tmp_path / "m.onnx").stat().st_size


def test_few_inline_elements_are_one_shared_copy(rich_model, tmp_path) -> None:
    """A page of the file would stay in memory for them."""
    onnx.save(rich_model, tmp_path / "m.onnx")
    tensor, again = (load_model(tmp_path / "m.onnx").graph.initializers["w"] for _ in range(2))
    assert tensor.nbytes <= SHORT_BYTES
    assert not is_inside(tensor.numpy(), tensor.source.array)
    assert address(tensor.numpy()) == address(again.numpy())
    assert not tensor.numpy().flags.writeable
    np.testing.assert_array_equal(tensor.numpy(), np.arange(256, dtype=np.float32) + 1)


@pytest.mark.parametrize("letters", range(4))
def test_many_inline_elements_are_views_where_they_are_aligned(tmp_path, letters) -> None:
    weight = np.arange(SHORT_BYTES // 4 + 1, dtype=np.float32)
    graph = helper.make_graph([], "graph", [], [], [numpy_helper.from_array(weight, "w")])
    onnx.save(helper.make_model(graph, producer_name="x" * (letters + 1)), tmp_path / "m.onnx")
    tensor = load_model(tmp_path / "m.onnx").graph.initializers["w"]
    is_aligned = address(tensor.packed()) % 4 == 0
    assert is_inside(tensor.numpy(), tensor.source.array) == is_aligned
    np.testing.assert_array_equal(tensor.numpy(), weight)


@pytest.mark.parametrize("shift", range(5))
def test_aligned_ranges_are_views_and_others_one_shared_copy(add_model, external_tensor, tmp_path, shift) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(shift) + np.arange(4, dtype=np.float32).tobytes())
    data = add_model([external_tensor(("location", "w.bin"), ("offset", str(shift)))]).SerializeToString()
    first, second = (load_model(data, external_data_folder=tmp_path).graph.initializers["w"] for _ in range(2))
    assert first.source is second.source
    assert first.identity == second.identity
    assert address(first.numpy()) == address(second.numpy())
    assert is_inside(first.numpy(), first.source.array) == (shift % 4 == 0)
    np.testing.assert_array_equal(second.numpy(), np.arange(4))


@only_new_objects()
def test_models_of_one_file_share_its_map_until_the_last_is_gone(rich_model, tmp_path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(rich_model, path)
    first = load_model(path)
    again = load_model(os.fspath(path))
    assert first.graph.initializers["w"].source is again.graph.initializers["w"].source
    view = first.graph.initializers["w"].packed()
    del first, again
    gc.collect()
    np.testing.assert_array_equal(view.tobytes(), (np.arange(256, dtype=np.float32) + 1).tobytes())


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs Linux's list of maps")
@only_new_objects()
def test_maps_are_read_only_and_unmapped_with_their_last_view(tmp_path) -> None:
    path = tmp_path / "data"
    path.write_bytes(bytes(range(256)) * 4096)
    with path.open("rb") as file:
        array = map_file(file.fileno(), path.stat().st_size)
    view = array[300:310]
    del array
    gc.collect()
    assert view.tolist() == list(range(44, 54))
    assert str(path) in Path("/proc/self/maps").read_text()
    with pytest.raises(ValueError, match=r"cannot set WRITEABLE flag|read-only"):
        view.flags.writeable = True
    del view
    gc.collect()
    assert str(path) not in Path("/proc/self/maps").read_text()


def test_a_replaced_file_is_another_source(rich_model, tmp_path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(rich_model, path)
    old = load_model(path).graph.initializers["w"]
    changed = onnx.ModelProto.FromString(rich_model.SerializeToString())
    changed.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.zeros(256, dtype=np.float32), "w"))
    onnx.save(changed, tmp_path / "new.onnx")
    (tmp_path / "new.onnx").replace(path)
    new = load_model(path).graph.initializers["w"]
    assert new.identity != old.identity
    assert old.numpy()[0] == 1
    assert new.numpy()[0] == 0


def test_the_same_buffer_is_one_source() -> None:
    buffer = bytes(100)
    assert wrap_buffer(buffer) is wrap_buffer(memoryview(buffer))
    source = wrap_buffer(buffer)
    assert source.identity != wrap_buffer(memoryview(buffer)[1:]).identity
    assert not source.array.flags.writeable


def test_sub_byte_weights_stay_packed_until_read(add_model) -> None:
    proto = helper.make_tensor("w", TensorProto.UINT4, [2000], np.arange(1000, dtype=np.uint8).tobytes(), raw=True)
    data = add_model([proto]).SerializeToString()
    tensor = load_model(data).graph.initializers["w"]
    assert is_inside(tensor.packed(), np.frombuffer(data, dtype=np.uint8))
    assert tensor.nbytes == 1000


def payloads_in(message: Message) -> list[Payload]:
    found = []
    for value in vars(message).values():
        if isinstance(value, Payload):
            found.append(value)
        for inner in value if isinstance(value, list) else [value]:
            found += payloads_in(inner) if isinstance(inner, Message) else []
    return found


def test_every_large_payload_is_a_range_and_nothing_else(rich_model) -> None:
    data = rich_model.SerializeToString()
    payloads = sorted(data[start:end] for start, end in payloads_in(parse_model(memoryview(data))))
    large = np.arange(256, dtype=np.float32)
    assert payloads == sorted((large * factor + term).tobytes() for factor, term in ((1, 0), (1, 1), (2, 0)))


def test_small_payloads_are_copied(add_model) -> None:
    data = memoryview(add_model([numpy_helper.from_array(np.zeros(4, np.float32), "w")]).SerializeToString())
    assert payloads_in(parse_model(data)) == []


@pytest.mark.parametrize("size", [MIN_PAYLOAD_BYTES - 4, MIN_PAYLOAD_BYTES, MIN_PAYLOAD_BYTES + 4])
def test_around_the_limit(add_model, size) -> None:
    values = np.arange(size // 4, dtype=np.float32)
    tensor = load_model(add_model([numpy_helper.from_array(values, "w")]).SerializeToString()).graph.initializers["w"]
    assert isinstance(tensor, MappedTensor) == (size >= MIN_PAYLOAD_BYTES)
    np.testing.assert_array_equal(tensor.numpy(), values)


_MEASURE = """
import sys
from pathlib import Path
import numpy, onnx, ml_dtypes
from ort_sdk.api import find_schema
from ort_sdk.loader import load_model

def private_bytes():
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    fields = {line.split(":")[0]: line.split()[1] for line in lines[1:]}
    return 1024 * sum(int(fields[name]) for name in ("Pss_Anon", "Pss_Shmem"))

find_schema("Add", 17)
before = private_bytes()
model = load_model(sys.argv[1])
print(private_bytes() - before, sum(tensor.nbytes for tensor in model.graph.initializers.values()))
"""


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs Linux's memory statistics")
@pytest.mark.parametrize("external", [False, True])
def test_loading_takes_less_than_a_twentieth_of_the_weights(tmp_path, external) -> None:
    weights = [numpy_helper.from_array(np.full((1024, 1024), index, np.float32), f"w{index}") for index in range(16)]
    nodes = [helper.make_node("Sum", ["x", *(weight.name for weight in weights)], ["y"])]
    inputs, outputs = ([helper.make_tensor_value_info(name, TensorProto.FLOAT, None)] for name in "xy")
    model = helper.make_model(helper.make_graph(nodes, "main", inputs, outputs, weights), ir_version=8)
    del model.opset_import[:]
    model.opset_import.add(version=17)
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=external)
    root = Path(__file__).parents[2]
    result = subprocess.run(
        [sys.executable, "-c", _MEASURE, tmp_path / "m.onnx"], capture_output=True, text=True, check=True, cwd=root
    )
    growth, weights_bytes = map(int, result.stdout.split())
    assert weights_bytes == 64 * 1024 * 1024
    assert growth < weights_bytes * 0.05
