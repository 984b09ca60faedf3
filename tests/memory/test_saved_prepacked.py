"""Models saved with their packed weights: ORT's convention, used without packing, and refused when anything is not as it was."""

import gc
import re

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from ort_sdk.testing.collection import only_new_objects
from tests.memory.models import WEIGHT, X, branching_model, close_to, product_model, run

SAVE = {
    "session.save_external_prepacked_constant_initializers": "1",
    "session.optimized_model_external_initializers_file_name": "saved.bin",
    "session.optimized_model_external_initializers_min_size_in_bytes": "16",
}


@pytest.fixture(autouse=True)
def _only_new_objects():
    with only_new_objects():
        yield


@pytest.fixture
def saved(start, provider, tmp_path):
    """A model saved with its packed weight; the session is gone."""
    path = tmp_path / "saved.onnx"
    close_to(run(start(product_model().SerializeToString(), SAVE, saved_to=path)), X @ WEIGHT)
    forget(provider)
    return path


def forget(provider):
    provider.kernels.clear()
    provider.packed = 0
    gc.collect()


def entries(path, name="w"):
    """``external_data`` of an initializer, as text."""
    (tensor,) = [tensor for tensor in onnx.load(path, load_external_data=False).graph.initializer if tensor.name == name]
    return {entry.key: entry.value for entry in tensor.external_data}


def change_entries(path, change):
    model = onnx.load(path, load_external_data=False)
    for entry in model.graph.initializer[0].external_data:
        entry.value = change(entry.key, entry.value)
    path.write_bytes(model.SerializeToString())


def change_data(path, offset, content):
    """Another file in place of the data, as an editor of it would leave."""
    data = path.with_name("saved.bin")
    changed = bytearray(data.read_bytes())
    changed[offset : offset + len(content)] = content
    data.unlink()
    data.write_bytes(changed)


def test_entries_follow_the_convention(saved):
    found = entries(saved)
    assert found["location"] == "saved.bin"
    content = saved.with_name("saved.bin").read_bytes()
    offset = int(found["offset"])
    assert content[offset : offset + WEIGHT.nbytes] == WEIGHT.tobytes()
    key, *blobs = found["prepacked_0"].split("|")
    assert re.fullmatch(r"MatMul\+[^|;]+", key)
    ranges = [tuple(map(int, blob.split(";")[:2])) for blob in blobs]
    assert [length for _, length in ranges] == [16, WEIGHT.nbytes]
    start, length = ranges[1]
    assert content[start : start + length] == WEIGHT.T.tobytes()
    assert all(blob.split(";")[2].startswith("sums32:") for blob in blobs)
    assert sorted(path.name for path in saved.parent.iterdir()) == ["saved.bin", "saved.onnx"]


def test_saved_weights_are_used_where_they_are(provider, start, saved):
    session = start(saved)
    close_to(run(session), X @ WEIGHT)
    assert provider.packed == 0
    elements = provider.kernels[-1].packed[1]
    assert not elements.flags.writeable
    assert elements.ctypes.data % 64 == 0


def test_others_read_the_model(saved):
    close_to(onnxruntime.InferenceSession(saved, providers=["CPUExecutionProvider"]).run(None, {"x": X})[0], X @ WEIGHT)
    with pytest.warns(UserWarning, match="prepacked"):
        model = onnx.load(saved)
    np.testing.assert_array_equal(numpy_helper.to_array(model.graph.initializer[0]), WEIGHT)


def test_models_onnxruntime_saved_are_packed_anew(provider, start, tmp_path):
    options = onnxruntime.SessionOptions()
    for key, value in SAVE.items():
        options.add_session_config_entry(key, value)
    options.optimized_model_filepath = str(tmp_path / "saved.onnx")
    onnxruntime.InferenceSession(product_model().SerializeToString(), options, providers=["CPUExecutionProvider"])
    assert "prepacked_0" in entries(tmp_path / "saved.onnx")
    close_to(run(start(tmp_path / "saved.onnx")), X @ WEIGHT)
    assert provider.packed == 1


def test_other_contents_are_packed_anew(provider, start, saved, caplog):
    change_data(saved, int(entries(saved)["offset"]), (WEIGHT * 2).tobytes())
    close_to(run(start(saved)), X @ WEIGHT * 2)
    assert provider.packed == 1
    assert "other contents" in caplog.text


def test_zeroed_blobs_are_packed_anew(provider, start, saved, caplog):
    offset, length, _ = entries(saved)["prepacked_0"].split("|")[2].split(";")
    change_data(saved, int(offset), bytes(int(length)))
    close_to(run(start(saved)), X @ WEIGHT)
    assert provider.packed == 1
    assert "damaged" in caplog.text


def test_another_library_packs_anew(provider, start, saved):
    provider.version = "1.0 neon"
    close_to(run(start(saved)), X @ WEIGHT)
    assert provider.packed == 1


CHANGES = {
    "beyond the file": lambda text: re.sub(r"\|\d+;", "|999999999;", text),
    "huge numbers": lambda text: re.sub(r"\|\d+;", f"|{2**63};", text),
    "more digits than numbers have": lambda text: re.sub(r"\|\d+;", f"|{'9' * 400};", text),
    "negative": lambda text: re.sub(r"\|\d+;", "|-1;", text),
    "no numbers": lambda text: re.sub(r"\|\d+;", "|x;", text),
    "checksum of onnxruntime": lambda text: re.sub(r"sums32:\w+(?=\||$)", "0", text),
    "fewer fields": lambda text: text.replace(";", "", 1),
    "no blobs": lambda text: text.partition("|")[0],
    "one blob": lambda text: "|".join(text.split("|")[:2]),
    "blobs in another order": lambda text: "|".join([text.split("|")[0], *reversed(text.split("|")[1:])]),
    "nothing": lambda text: "",
    "another key": lambda text: text.replace("MatMul+", "MatMul+0"),
    "no key": lambda text: text.partition("|")[2],
}


@pytest.mark.parametrize("how", [*CHANGES])
def test_entries_that_are_not_used(provider, start, saved, how):
    change_entries(saved, lambda key, value: CHANGES[how](value) if key.startswith("prepacked") else value)
    close_to(run(start(saved)), X @ WEIGHT)
    assert provider.packed == 1


def test_bodies_and_their_weights(provider, start, tmp_path):
    path = tmp_path / "saved.onnx"
    start(branching_model().SerializeToString(), SAVE, saved_to=path)
    assert provider.packed == 2
    forget(provider)
    assert "prepacked_0" in entries(path)
    session = start(path)
    assert provider.packed == 0
    theirs = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for flag in (True, False):
        wanted = X @ WEIGHT * (2 if flag else 0)
        close_to(run(session, flag=np.array(flag)), wanted)
        close_to(theirs.run(None, {"x": X, "flag": np.array(flag)})[0], wanted)


def test_saving_again_keeps_packed_weights(provider, start, saved, tmp_path):
    again = tmp_path / "again"
    again.mkdir()
    start(saved, SAVE, saved_to=again / "saved.onnx")
    assert provider.packed == 0
    assert (again / "saved.bin").read_bytes() == saved.with_name("saved.bin").read_bytes()


def test_small_weights_stay_inline(provider, start, tmp_path):
    path = tmp_path / "saved.onnx"
    config = {**SAVE, "session.optimized_model_external_initializers_min_size_in_bytes": "1000000"}
    start(product_model().SerializeToString(), config, saved_to=path)
    assert [file.name for file in tmp_path.iterdir()] == ["saved.onnx"]
    close_to(run(start(path)), X @ WEIGHT)


def test_without_a_file_for_the_weights(start, tmp_path):
    path = tmp_path / "saved.onnx"
    start(product_model().SerializeToString(), {"session.save_external_prepacked_constant_initializers": "1"}, saved_to=path)
    assert not onnx.load(path).graph.initializer[0].external_data


def test_large_objects_are_aligned(provider, start, tmp_path):
    weight = np.random.default_rng(2).normal(size=(600, 500)).astype(np.float32)
    path = tmp_path / "saved.onnx"
    start(product_model(weight).SerializeToString(), SAVE, saved_to=path)
    found = entries(path)
    offset = int(found["prepacked_0"].split("|")[2].split(";")[0])
    assert offset % 4096 == int(found["offset"]) % 4096 == 0
    forget(provider)
    x = np.ones((1, 600), np.float32)
    close_to(run(start(path), x), x @ weight)
    assert provider.packed == 0


def test_a_saved_model_in_memory(provider, start, saved):
    content = saved.with_name("saved.bin").read_bytes()
    for given in (content, np.frombuffer(bytearray(content), np.uint8), saved.with_name("saved.bin")):
        forget(provider)
        close_to(run(start(saved.read_bytes(), external_files={"./saved.bin": given})), X @ WEIGHT)
        assert provider.packed == 0


def test_several_kernels_of_one_weight(provider, start, tmp_path):
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("MatMul", ["p", "w"], ["y"])]
    weight = WEIGHT[:48]
    graph = helper.make_graph(
        nodes,
        "twice",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 48])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 48])],
        [numpy_helper.from_array(weight, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = tmp_path / "saved.onnx"
    start(model.SerializeToString(), SAVE, saved_to=path)
    assert {key for key in entries(path) if key.startswith("prepacked")} == {"prepacked_0"}
    forget(provider)
    close_to(run(start(path), X[:, :48]), X[:, :48] @ weight @ weight)
    assert provider.packed == 0


def test_a_session_that_fails_leaves_nothing(provider, start, tmp_path):
    def fail(tensor):
        raise MemoryError("no room")

    provider.on_pack = fail
    with pytest.raises(MemoryError):
        start(product_model().SerializeToString(), SAVE, saved_to=tmp_path / "saved.onnx")
    assert not list(tmp_path.iterdir())


def test_the_flag_alone_is_logged(start, caplog):
    start(product_model().SerializeToString(), SAVE)
    assert "is ignored" in caplog.text


def test_overwriting_shows_no_mixture(provider, start, saved, monkeypatch):
    """At each step of the replacement the files on disk are the old model or the new one."""
    from ort_sdk.formats.files import model_files

    seen = []
    steps = (model_files.write_whole, model_files.UnfinishedFile.publish)

    def look():
        other = onnxruntime.InferenceSession(saved, providers=["CPUExecutionProvider"])
        (result,) = other.run(None, {"x": X})
        seen.append([np.allclose(result, wanted, atol=1e-5) for wanted in (X @ WEIGHT, X @ -WEIGHT)])

    def write_whole(path, content):
        steps[0](path, content)
        look()

    def publish(self, path):
        steps[1](self, path)
        look()

    monkeypatch.setattr(model_files, "write_whole", write_whole)
    monkeypatch.setattr(model_files.UnfinishedFile, "publish", publish)
    start(product_model(-WEIGHT).SerializeToString(), SAVE, saved_to=saved)
    assert len(seen) >= 4
    assert all(sum(state) == 1 for state in seen)
    assert seen[-1] == [False, True]
    assert sorted(path.name for path in saved.parent.iterdir()) == ["saved.bin", "saved.onnx"]
