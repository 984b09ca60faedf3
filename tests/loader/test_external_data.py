"""External data: what is found, what is refused, and the attacks that happened to other readers."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from ort_sdk.api import Fail, InvalidArgument, InvalidGraph, TensorElementType
from ort_sdk.formats.files import external_file
from ort_sdk.graph import ArrayTensor
from ort_sdk.loader import load_model

VALUES = np.arange(4, dtype=np.float32)


@pytest.fixture
def folder(tmp_path) -> Path:
    """A folder with data, and a secret beside it."""
    inside = tmp_path / "models"
    (inside / "sub").mkdir(parents=True)
    (inside / "w.bin").write_bytes(VALUES.tobytes())
    (inside / "sub" / "w.bin").write_bytes(VALUES.tobytes())
    (tmp_path / "secret.bin").write_bytes(b"secret" * 10)
    (tmp_path / "models-evil").mkdir()
    (tmp_path / "models-evil" / "w.bin").write_bytes(VALUES.tobytes())
    return inside


@pytest.fixture
def load(folder, add_model, external_tensor):
    """Loads a model whose ``w`` has the given entries, from a file in the folder."""

    def load_entries(*entries, **options):
        path = folder / "m.onnx"
        path.write_bytes(add_model([external_tensor(*entries)]).SerializeToString())
        return load_model(path, **options).graph.initializers["w"]

    return load_entries


@pytest.mark.parametrize(
    "location", ["w.bin", "./w.bin", ".//w.bin", "sub/w.bin", "sub//w.bin", "sub/../w.bin", "missing/../w.bin", "../models/w.bin"]
)
def test_paths_inside(load, location) -> None:
    tensor = load(("location", location))
    np.testing.assert_array_equal(tensor.numpy(), VALUES)
    assert tensor.info.location == location
    assert tensor.info.path.is_absolute()
    assert tensor.info.path.name == "w.bin"
    assert (tensor.info.offset, tensor.info.length, tensor.info.shape) == (0, 16, (4,))


@pytest.mark.parametrize(
    ("location", "reason"),
    [
        ("../secret.bin", "escapes model directory"),
        ("sub/../../secret.bin", "escapes model directory"),
        ("a/../../secret.bin", "escapes model directory"),
        ("../models-evil/w.bin", "escapes model directory"),
        ("../../../../../../../../etc/passwd", "escapes model directory"),
        (".", "escapes model directory"),
        ("sub", "is a directory"),
        ("sub/", "is a directory"),
        ("no.bin", "does not exist"),
        ("w.bin/x", "cannot be opened"),
        ("/etc/passwd", "Absolute path"),
        ("//server/share", "Absolute path"),
        ("C:\\windows\\x", "Absolute path"),
        ("C:x", "Absolute path"),
        ("\\x", "Absolute path"),
        ("w.bin\0.png", "cannot be a path"),
        ("a" * 300, "cannot be opened"),
        ("a/" * 100_000, "cannot be a path"),
        ("*/_ORT_MEM_ADDR_/*", "memory address"),
        ("*/_ORT_NATIVE_ENDIAN_MEM_ADDR_/*", "memory address"),
    ],
)
def test_paths_that_are_refused(load, location, reason) -> None:
    with pytest.raises(Fail, match=f"(?s)'w'.*{reason}"):
        load(("location", location))


def test_a_symbolic_link_out_of_the_folder_is_refused(load, folder) -> None:
    (folder / "link.bin").symlink_to(folder.parent / "secret.bin")
    (folder / "out").symlink_to(folder.parent)
    for location in ("link.bin", "out/secret.bin", "out/models-evil/w.bin"):
        with pytest.raises(Fail, match="escapes"):
            load(("location", location))


def test_symbolic_links_inside_the_folder_work(load, folder) -> None:
    (folder / "link.bin").symlink_to("w.bin")
    (folder / "dir").symlink_to(folder / "sub")
    for location in ("link.bin", "dir/w.bin"):
        np.testing.assert_array_equal(load(("location", location)).numpy(), VALUES)


def test_a_symbolic_link_in_a_circle_is_refused(load, folder) -> None:
    (folder / "loop").symlink_to("loop")
    with pytest.raises(Fail, match=r"'w'"):
        load(("location", "loop"))


def test_special_files_are_refused_without_waiting(load, folder) -> None:
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(folder / "socket"))
        for location in ("pipe", "socket"):
            with pytest.raises(Fail, match=r"only regular files|cannot be opened"):
                load(("location", location))


@pytest.fixture
def hugging_face_cache(tmp_path, add_model, external_tensor):
    """A cache whose snapshot holds links to blobs; gives the model's path for a location."""
    blobs = tmp_path / "hub" / "blobs"
    snapshot = tmp_path / "hub" / "snapshots" / "abc" / "onnx"
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    (blobs / "222").write_bytes(VALUES.tobytes())
    (snapshot / "model.onnx_data").symlink_to("../../../blobs/222")
    (snapshot / "secret").symlink_to("../../../../secret.bin")
    (tmp_path / "secret.bin").write_bytes(bytes(16))

    def make(location: str) -> Path:
        (blobs / "111").write_bytes(add_model([external_tensor(("location", location))]).SerializeToString())
        path = snapshot / "model.onnx"
        path.unlink(missing_ok=True)
        path.symlink_to("../../../blobs/111")
        return path

    return make


def test_hugging_face_cache(hugging_face_cache) -> None:
    model = load_model(hugging_face_cache("model.onnx_data"))
    np.testing.assert_array_equal(model.graph.initializers["w"].numpy(), VALUES)


@pytest.mark.parametrize("location", ["secret", "../../../../secret.bin", "/etc/passwd", "../../../../../etc/passwd"])
def test_hugging_face_cache_does_not_open_the_rest_of_the_disk(hugging_face_cache, location) -> None:
    path = hugging_face_cache(location)
    with pytest.raises(Fail, match=r"escapes|Absolute"):
        load_model(path)


def test_hard_links_are_files_like_others(load, folder) -> None:
    os.link(folder / "w.bin", folder / "hard.bin")
    np.testing.assert_array_equal(load(("location", "hard.bin")).numpy(), VALUES)


def test_a_link_that_appears_between_check_and_opening_is_not_followed(folder, monkeypatch) -> None:
    files = external_file.ExternalFiles(folder / "m.onnx", None)
    resolve = files._resolve

    def swap_after_check(location, owner):
        checked = resolve(location, owner)
        (folder / "sub" / "w.bin").unlink()
        (folder / "sub" / "w.bin").symlink_to(folder.parent / "secret.bin")
        return checked

    monkeypatch.setattr(files, "_resolve", swap_after_check)
    with pytest.raises(Fail, match="cannot be opened"):
        files.open("sub/w.bin", "'w'")


def test_a_folder_that_becomes_a_link_is_not_followed(folder, monkeypatch) -> None:
    files = external_file.ExternalFiles(folder / "m.onnx", None)
    resolve = files._resolve

    def swap_after_check(location, owner):
        checked = resolve(location, owner)
        (folder / "sub").rename(folder / "old")
        (folder / "sub").symlink_to(folder.parent / "models-evil")
        return checked

    monkeypatch.setattr(files, "_resolve", swap_after_check)
    with pytest.raises(Fail, match="cannot be opened"):
        files.open("sub/w.bin", "'w'")


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ([], "Missing 'location'"),
        ([("location", "")], "location of 'w' cannot be empty"),
        ([("location", "w.bin"), ("location", "w.bin")], "duplicate 'location'"),
        ([("location", "w.bin"), ("offset", "0"), ("offset", "4")], "duplicate 'offset'"),
        ([("location", "w.bin"), ("offset", "")], "offset of 'w' cannot be empty"),
        ([("location", "w.bin"), ("offset", "-1")], "decimal digits"),
        ([("location", "w.bin"), ("offset", "0x0")], "decimal digits"),
        ([("location", "w.bin"), ("offset", " 0")], "decimal digits"),
        ([("location", "w.bin"), ("offset", "1_0")], "decimal digits"),
        ([("location", "w.bin"), ("offset", "\N{ARABIC-INDIC DIGIT ONE}")], "decimal digits"),
        ([("location", "w.bin"), ("offset", "9" * 10_000)], "decimal digits"),
        ([("location", "w.bin"), ("offset", "1")], "out of bounds"),
        ([("location", "w.bin"), ("offset", "9" * 19)], "out of bounds"),
        ([("location", "w.bin"), ("length", "12")], "size mismatch"),
        ([("location", "w.bin"), ("length", "-16")], "decimal digits"),
        ([("location", "w.bin"), ("length", "")], "length of 'w' cannot be empty"),
        ([("location", "w.bin"), ("checksum", "")], "checksum of 'w' cannot be empty"),
        ([("location", "w.bin"), ("__class__", "x")], "unknown key '__class__'"),
        ([("location", "w.bin"), ("Offset", "0")], "unknown key 'Offset'"),
    ],
)
def test_entries_that_are_refused(load, entries, reason) -> None:
    with pytest.raises(Fail, match=reason):
        load(*entries)


def test_entries_that_are_ignored(load) -> None:
    entries = [("location", "w.bin"), ("length", "0"), ("checksum", "abc"), ("basepath", ""), ("prepacked_0", "key|0;1;2")]
    tensor = load(*entries)
    np.testing.assert_array_equal(tensor.numpy(), VALUES)
    assert tensor.prepacked == ("key|0;1;2",)


def test_shapes_larger_than_the_file_are_refused(folder, add_model, external_tensor) -> None:
    proto = external_tensor(("location", "w.bin"), dims=[2**40])
    with pytest.raises(Fail, match="out of bounds"):
        load_model(add_model([proto]).SerializeToString(), external_data_folder=folder)


def test_strings_cannot_be_external(folder, add_model, external_tensor) -> None:
    proto = external_tensor(("location", "w.bin"), data_type=TensorProto.STRING)
    with pytest.raises(Fail, match="strings"):
        load_model(add_model([proto]).SerializeToString(), external_data_folder=folder)


def test_raw_data_beside_external_data_is_refused(load, folder, add_model, external_tensor) -> None:
    proto = external_tensor(("location", "w.bin"))
    proto.raw_data = VALUES.tobytes()
    with pytest.raises(InvalidGraph, match="both"):
        load_model(add_model([proto]).SerializeToString(), external_data_folder=folder)


def test_bytes_resolve_against_the_current_directory(folder, add_model, external_tensor, monkeypatch) -> None:
    monkeypatch.chdir(folder)
    tensor = load_model(add_model([external_tensor(("location", "w.bin"))]).SerializeToString()).graph.initializers["w"]
    np.testing.assert_array_equal(tensor.numpy(), VALUES)
    with pytest.raises(Fail, match="escapes working directory"):
        load_model(add_model([external_tensor(("location", "../secret.bin"))]).SerializeToString())


def test_a_folder_given_replaces_the_models(load, folder) -> None:
    assert load(("location", "w.bin"), external_data_folder=folder / "sub").info.path.parent.name == "sub"
    with pytest.raises(Fail, match="escapes"):
        load(("location", "../w.bin"), external_data_folder=folder / "sub")


def evil_tensor() -> TensorProto:
    proto = TensorProto(name="evil", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    proto.external_data.add(key="location", value="../secret.bin")
    return proto


def sparse_with(part: str) -> onnx.SparseTensorProto:
    values = helper.make_tensor("w", TensorProto.FLOAT, [4], VALUES)
    indices = helper.make_tensor("i", TensorProto.INT64, [4], range(4))
    proto = onnx.SparseTensorProto(values=values, indices=indices, dims=[0])
    getattr(proto, part).CopyFrom(evil_tensor())
    return proto


@pytest.mark.parametrize("part", ["values", "indices"])
def test_sparse_initializers_are_checked(folder, add_model, part) -> None:
    model = add_model()
    model.graph.sparse_initializer.append(sparse_with(part))
    with pytest.raises(Fail, match="escapes"):
        load_model(model.SerializeToString(), external_data_folder=folder)


@pytest.mark.parametrize("attribute", [{"value": evil_tensor()}, {"sparse_value": sparse_with("values")}])
def test_attributes_are_checked_wherever_they_are(folder, add_model, attribute) -> None:
    constant = helper.make_node("Constant", [], ["y"], **attribute)
    body = helper.make_graph([constant], "body", [], [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    branch = helper.make_node("If", ["x"], ["y"], then_branch=body, else_branch=body)
    function = helper.make_function("local", "F", [], ["y"], [constant], [helper.make_opsetid("", 17)])
    call = helper.make_node("F", [], ["y"], domain="local")
    local = [helper.make_opsetid("local", 1)]
    models = [
        add_model(nodes=[constant]),
        add_model(nodes=[branch]),
        add_model(nodes=[call], functions=[function], extra_imports=local),
    ]
    for model in models:
        with pytest.raises(Fail, match="escapes"):
            load_model(model.SerializeToString(), external_data_folder=folder)


def test_tensors_without_elements_are_checked(folder, add_model) -> None:
    proto = evil_tensor()
    proto.dims[0] = 0
    proto.name = "w"
    with pytest.raises(Fail, match="escapes"):
        load_model(add_model([proto]).SerializeToString(), external_data_folder=folder)


@pytest.mark.parametrize(
    ("location", "name"),
    [("w.bin", "./w.bin"), ("./w.bin", "w.bin"), (".//w.bin", "w.bin"), ("././w.bin", "w.bin"), (".\\w.bin", "w.bin")]
    + [(same, same) for same in ("sub/w.bin", "/abs/w.bin", "../w.bin", "nowhere.bin")],
)
def test_files_in_memory(load, location, name) -> None:
    buffer = (VALUES + 1).tobytes()
    tensor = load(("location", location), in_memory_files={name: buffer})
    np.testing.assert_array_equal(tensor.numpy(), VALUES + 1)
    assert tensor.packed().ctypes.data == np.frombuffer(buffer, np.uint8).ctypes.data
    assert tensor.info.path is None


def test_files_that_are_not_in_memory_are_read_from_disk(load) -> None:
    tensor = load(("location", "w.bin"), in_memory_files={"sub/w.bin": b""})
    np.testing.assert_array_equal(tensor.numpy(), VALUES)


def test_ranges_of_files_in_memory_are_checked(load) -> None:
    for buffer in (b"", bytes(15)):
        with pytest.raises(Fail, match="out of bounds"):
            load(("location", "w.bin"), in_memory_files={"w.bin": buffer})


def test_initializers_given_by_name(load) -> None:
    given = ArrayTensor(VALUES + 2)
    assert load(("location", "nowhere.bin"), external_initializers={"w": given}) is given


def test_initializers_given_by_name_must_fit(load, add_model) -> None:
    with pytest.raises(InvalidArgument, match=r"double\[4\]; the model declares float\[4\]"):
        load(("location", "w.bin"), external_initializers={"w": ArrayTensor(VALUES.astype(np.float64))})
    with pytest.raises(InvalidArgument, match="no initializers"):
        load(("location", "w.bin"), external_initializers={"v": ArrayTensor(VALUES)})
    inline = add_model([numpy_helper.from_array(VALUES, "w")]).SerializeToString()
    with pytest.raises(InvalidArgument, match="non-external initializer 'w'"):
        load_model(inline, external_initializers={"w": ArrayTensor(VALUES)})


_MANY_FILES = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
from ort_sdk.loader import load_model
model = load_model(sys.argv[1])
print(sum(float(tensor.numpy()[0]) for tensor in model.graph.initializers.values()))
"""


def test_many_files_need_few_descriptors(folder, add_model, external_tensor) -> None:
    model = add_model([external_tensor(("location", "w.bin"))])
    for index in range(200):
        (folder / f"{index}.bin").write_bytes(np.full(4, index, np.float32).tobytes())
        extra = model.graph.initializer.add()
        extra.CopyFrom(external_tensor(("location", f"{index}.bin")))
        extra.name = f"w{index}"
    onnx.save(model, folder / "m.onnx")
    command = [sys.executable, "-c", _MANY_FILES, folder / "m.onnx"]
    result = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])
    assert float(result.stdout) == sum(range(200))


def test_one_map_for_all_tensors_of_a_file_and_all_threads(folder, add_model, external_tensor) -> None:
    model = add_model([external_tensor(("location", "w.bin"))])
    for index in range(100):
        extra = model.graph.initializer.add()
        extra.CopyFrom(external_tensor(("location", "./w.bin")))
        extra.name = f"w{index}"
    data = model.SerializeToString()
    loaded = []
    threads = [threading.Thread(target=lambda: loaded.append(load_model(data, external_data_folder=folder))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sources = {id(tensor.source) for model in loaded for tensor in model.graph.initializers.values()}
    assert len(loaded) == 8
    assert len(sources) == 1
    assert loaded[0].graph.initializers["w"].element_type is TensorElementType.FLOAT
