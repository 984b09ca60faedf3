"""What a model may come from, and the class of each error."""

from __future__ import annotations

import os
import re

import onnx
import pytest
from onnx import helper

from ort_sdk.api import Fail, InvalidArgument, InvalidGraph, InvalidProtobuf, NoSuchFile, OrtSdkError, newest_opset
from ort_sdk.loader import load_model


@pytest.mark.parametrize("kind", [str, os.fspath, lambda path: path, os.fsencode])
def test_paths(tmp_path, rich_model, kind) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(rich_model, path)
    if kind is os.fsencode:
        with pytest.raises(InvalidProtobuf):
            load_model(kind(path))
        return
    model = load_model(kind(path))
    assert model.path == path
    assert model.graph.nodes


@pytest.mark.parametrize("name", ["m.onnx", "m.ort"])
@pytest.mark.parametrize("content", [b"\xff" * 64, b"# no model\n", b""])
def test_errors_name_the_file(tmp_path, name, content) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(OrtSdkError, match=re.escape(str(tmp_path / name))) as raised:
        load_model(tmp_path / name)
    assert raised.value.text.count(str(tmp_path / name)) == 1


def test_errors_of_graphs_name_the_file(tmp_path, rich_model) -> None:
    rich_model.graph.node[0].input[0] = "nobody_makes_this"
    (tmp_path / "m.onnx").write_bytes(rich_model.SerializeToString())
    with pytest.raises(InvalidGraph, match=r"m\.onnx' failed: .*nobody_makes_this"):
        load_model(tmp_path / "m.onnx")


def test_bytes_have_no_path(rich_model) -> None:
    assert load_model(rich_model.SerializeToString()).path is None


@pytest.mark.parametrize("wrong", [None, 3, bytearray(b"x"), memoryview(b"x"), ["m.onnx"]])
def test_wrong_types(wrong) -> None:
    with pytest.raises(TypeError, match="Unable to load from type '<class"):
        load_model(wrong)


@pytest.mark.parametrize("name", ["none.onnx", "none/m.onnx", "m\0.onnx", ""])
def test_missing_files(tmp_path, name) -> None:
    with pytest.raises(NoSuchFile, match="File doesn't exist"):
        load_model(str(tmp_path / name) if name else "")


def test_directories_and_pipes(tmp_path) -> None:
    with pytest.raises(Fail, match="is a directory"):
        load_model(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Fail, match="named pipe"):
        load_model(tmp_path / "pipe")
    with pytest.raises(Fail, match="device"):
        load_model("/dev/zero")


def test_empty(tmp_path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"")
    for source in (b"", tmp_path / "m.onnx", onnx.ModelProto(ir_version=8).SerializeToString()):
        with pytest.raises(InvalidArgument, match=r"No graph was found in the protobuf\."):
            load_model(source)


@pytest.mark.parametrize("data", [b"\xff" * 100, b"\0" * 100, b"hello world", b"\x3a\x7f", b"\x0b\x0c", b"\x89PNG\r\n"])
def test_other_files(data) -> None:
    with pytest.raises(InvalidProtobuf, match=r"(?i)protobuf parsing failed"):
        load_model(data)


def test_part_of_a_file(add_model) -> None:
    data = add_model().SerializeToString()
    with pytest.raises(InvalidProtobuf, match=rf"ends at byte {len(data) - 9}\. This is no ONNX model, or not all of one"):
        load_model(data[:-9])


def test_newer_versions(add_model) -> None:
    with pytest.raises(Fail, match="IR version: 99"):
        load_model(add_model(ir_version=99).SerializeToString())
    with pytest.raises(Fail, match=f"opset {newest_opset() + 1} of domain 'ai.onnx'; supported are 1 to {newest_opset()}"):
        load_model(add_model(opset=newest_opset() + 1).SerializeToString())
    with pytest.raises(Fail, match=r"opset 99 of domain 'ai\.onnx\.ml'"):
        load_model(add_model(extra_imports=[helper.make_opsetid("ai.onnx.ml", 99)]).SerializeToString())


def test_versions_that_are_missing(add_model) -> None:
    model = add_model()
    model.ClearField("ir_version")
    with pytest.raises(Fail, match="ir_version is missing"):
        load_model(model.SerializeToString())
    model = add_model(ir_version=8)
    del model.opset_import[:]
    with pytest.raises(InvalidGraph, match="Missing opset"):
        load_model(model.SerializeToString())


def test_a_domain_with_two_versions(add_model) -> None:
    with pytest.raises(InvalidGraph, match="imported at versions 17 and 16"):
        load_model(add_model(extra_imports=[helper.make_opsetid("ai.onnx", 16)]).SerializeToString())


def test_model_fields(rich_model) -> None:
    rich_model.producer_name = "p"
    rich_model.producer_version = "1"
    rich_model.domain = "d"
    rich_model.model_version = 7
    rich_model.doc_string = "doc"
    rich_model.graph.doc_string = "graph"
    helper.set_model_props(rich_model, {"a": "b"})
    model = load_model(rich_model.SerializeToString())
    assert (model.producer_name, model.producer_version, model.domain) == ("p", "1", "d")
    assert (model.model_version, model.doc_string, model.graph.doc_string) == (7, "doc", "graph")
    assert (model.metadata, model.ir_version) == ({"a": "b"}, 8)
    assert model.opset_imports[""] == 17
    assert model.opset_imports["local"] == 1
    rich_model.ClearField("model_version")
    assert load_model(rich_model.SerializeToString()).model_version is None
