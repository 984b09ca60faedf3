"""External data given in memory or by path: no copy, no writing, kept alive, shared, checked."""

import gc
import mmap
import weakref
from multiprocessing import shared_memory

import numpy as np
import pytest
from onnx import TensorProto, helper

import ort_sdk
from ort_sdk.api import Fail, KernelRegistry
from ort_sdk.plugins import plugin_manager
from ort_sdk.testing.collection import only_new_objects
from tests.memory.packing import PackingProvider

CPU = ["CPUExecutionProvider"]
WEIGHT = np.arange(24, dtype=np.float32).reshape(4, 6)
BIAS = np.arange(6, dtype=np.float32)
X = np.ones((2, 4), np.float32)


def external(name, array, location, offset=0, **entries):
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    tensor = TensorProto(name=name, data_type=kind, dims=array.shape, data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, "offset": offset, "length": array.nbytes, **entries}.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def linear(weight_location="w.bin", bias_location="w.bin", bias_offset=WEIGHT.nbytes):
    """y = x @ w + b."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Add", ["p", "b"], ["y"])]
    tensors = [external("w", WEIGHT, weight_location), external("b", BIAS, bias_location, bias_offset)]
    graph = helper.make_graph(
        nodes,
        "linear",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 6])],
        tensors,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


CONTENT = WEIGHT.tobytes() + BIAS.tobytes()
WANTED = X @ WEIGHT + BIAS


def session_of(model, files, **kwargs):
    return ort_sdk.InferenceSession(model, providers=CPU, external_files=files, **kwargs)


def constants(session):
    """Every constant array that the plan reads, by name."""
    plan = session._state.plan
    return {plan.value_names[index]: array for index, array in plan.constants.arrays().items()}


def aligned_copy(content):
    """The bytes at an address every type may have, as allocators and maps give them."""
    backing = np.empty(len(content) + 64, np.uint8)
    start = -backing.ctypes.data % 64
    buffer = backing[start : start + len(content)]
    buffer[:] = np.frombuffer(content, np.uint8)
    return buffer


def test_the_address_of_the_weight_is_the_buffers():
    buffer = aligned_copy(CONTENT)
    sessions = [session_of(linear(), {"w.bin": buffer}) for _ in range(3)]
    for session in sessions:
        found = constants(session)
        assert found["w"].ctypes.data == buffer.ctypes.data
        assert found["b"].ctypes.data == buffer.ctypes.data + WEIGHT.nbytes
        np.testing.assert_array_equal(session.run(None, {"x": X})[0], WANTED)


def test_kernels_cannot_write_into_it():
    class Writer(PackingProvider):
        name = "WritingExecutionProvider"

        def __init__(self):
            super().__init__()
            self.registry = KernelRegistry(self.name)
            self.registry.kernel("MatMul", 13, {"T": ["tensor(float)"]})(lambda info: write)

    def write(a, b):
        with pytest.raises(ValueError, match="read-only"):
            b[...] = 0
        with pytest.raises(ValueError, match="WRITEABLE"):
            b.flags.writeable = True
        return a @ b

    plugin_manager().register(Writer())
    try:
        buffer = aligned_copy(CONTENT)
        session = ort_sdk.InferenceSession(linear(), providers=[Writer.name], external_files={"w.bin": buffer})
        np.testing.assert_array_equal(session.run(None, {"x": X})[0], WANTED)
        assert buffer.tobytes() == CONTENT
    finally:
        plugin_manager().unregister(Writer.name)


@pytest.mark.parametrize("call", ["keyword", "options", "onnxruntime"])
@only_new_objects()
def test_buffers_live_as_long_as_their_sessions(call):
    class Owner(bytearray):
        pass

    owner = Owner(CONTENT)
    alive = weakref.ref(owner)
    options = ort_sdk.SessionOptions()
    files = None
    if call == "options":
        options.add_external_file("w.bin", owner)
    elif call == "onnxruntime":
        options.add_external_initializers_from_files_in_memory(["w.bin"], [owner], [len(owner)])
    else:
        files = {"w.bin": owner}
    session = session_of(linear(), files, sess_options=options)
    with pytest.raises(BufferError):
        owner.append(0)
    del owner, options, files
    gc.collect()
    assert alive() is not None
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], WANTED)
    del session
    gc.collect()
    assert alive() is None


@only_new_objects()
def test_kinds_of_buffers(tmp_path):
    path = tmp_path / "anything"
    path.write_bytes(CONTENT)
    memory = shared_memory.SharedMemory(create=True, size=len(CONTENT))
    try:
        memory.buf[: len(CONTENT)] = CONTENT
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            for given in (
                CONTENT,
                bytearray(CONTENT),
                memoryview(CONTENT),
                np.frombuffer(CONTENT, np.float32).reshape(5, 6),
                mapped,
                memory.buf,
                path,
                str(path),
            ):
                session = session_of(linear(), {"w.bin": given})
                np.testing.assert_array_equal(session.run(None, {"x": X})[0], WANTED)
                session.close()
                del session
                gc.collect()
            del given
            gc.collect()
    finally:
        memory.close()
        memory.unlink()


@pytest.mark.parametrize("given", [5, None, object(), np.arange(8)[::2]])
def test_what_is_no_buffer(given):
    with pytest.raises((TypeError, BufferError, ValueError)):
        session_of(linear(), {"w.bin": given})


def test_a_file_anywhere_replaces_one_that_is_missing(tmp_path):
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "model.onnx").write_bytes(linear())
    (tmp_path / "weights").write_bytes(CONTENT)
    session = session_of(tmp_path / "inner" / "model.onnx", {"w.bin": tmp_path / "weights"})
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], WANTED)
    other = session_of(linear(), {"./w.bin": tmp_path / "weights"})
    assert constants(session)["w"].ctypes.data == constants(other)["w"].ctypes.data


@pytest.mark.parametrize("name", ["nothing", "."])
def test_a_path_that_cannot_be_read(tmp_path, name):
    with pytest.raises(Fail, match=r"cannot be opened|only regular files|directory"):
        session_of(linear(), {"w.bin": tmp_path / name})


@pytest.mark.parametrize(
    ("location", "key"),
    [
        ("w.bin", "./w.bin"),
        ("./w.bin", "w.bin"),
        (".//w.bin", "w.bin"),
        (".\\w.bin", "w.bin"),
        ("././w.bin", "w.bin"),
        ("sub/w.bin", "sub/w.bin"),
        ("/abs/w.bin", "/abs/w.bin"),
        ("../w.bin", "../w.bin"),
    ],
)
def test_names_are_normalized_on_both_sides(location, key):
    session = session_of(linear(location, location), {key: CONTENT})
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], WANTED)


@pytest.mark.parametrize(("location", "key"), [("sub/w.bin", "w.bin"), ("sub//w.bin", "sub/w.bin"), ("a/../w.bin", "w.bin")])
def test_names_that_do_not_match(location, key, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Fail):
        session_of(linear(location, location), {key: CONTENT})


def test_a_table_and_the_disk(tmp_path):
    (tmp_path / "b.bin").write_bytes(BIAS.tobytes())
    model = linear("w.bin", "b.bin", 0)
    (tmp_path / "model.onnx").write_bytes(model)
    wanted = WANTED
    session = session_of(tmp_path / "model.onnx", {"w.bin": CONTENT})
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], wanted)
    options = ort_sdk.SessionOptions()
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(tmp_path))
    session = session_of(model, {"w.bin": CONTENT}, sess_options=options)
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], wanted)


def test_lengths_are_checked():
    for content in (CONTENT[:-1], b""):
        with pytest.raises(Fail, match="out of bounds"):
            session_of(linear(), {"w.bin": content})
    options = ort_sdk.SessionOptions()
    with pytest.raises(Fail, match="does not fit its buffer"):
        options.add_external_initializers_from_files_in_memory(["w.bin"], [CONTENT], [len(CONTENT) + 1])
    options.add_external_initializers_from_files_in_memory(["w.bin"], [CONTENT], [len(CONTENT) - 1])
    with pytest.raises(Fail, match="out of bounds"):
        session_of(linear(), None, sess_options=options)


def test_a_location_given_twice():
    options = ort_sdk.SessionOptions()
    options.add_external_file("w.bin", CONTENT)
    with pytest.raises(Fail, match="already been added"):
        options.add_external_file("./w.bin", CONTENT)


def test_bodies_and_attributes():
    value = helper.make_tensor_value_info("out", TensorProto.FLOAT, [6])
    body = helper.make_graph([helper.make_node("Identity", ["v"], ["out"])], "body", [], [value], [external("v", BIAS, "v.bin")])
    nodes = [
        helper.make_node("If", ["flag"], ["p"], then_branch=body, else_branch=body),
        helper.make_node("Constant", [], ["c"], value=external("", BIAS, "v.bin")),
        helper.make_node("Add", ["p", "c"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("flag", TensorProto.BOOL, [])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [6])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = session_of(model.SerializeToString(), {"v.bin": BIAS})
    np.testing.assert_array_equal(session.run(None, {"flag": np.array(True)})[0], BIAS * 2)


def test_options_serve_several_sessions_and_stay_as_they_are():
    options = ort_sdk.SessionOptions()
    first = session_of(linear(), {"w.bin": CONTENT}, sess_options=options)
    second = session_of(linear(), {"w.bin": bytes(len(CONTENT))}, sess_options=options)
    np.testing.assert_array_equal(first.run(None, {"x": X})[0], WANTED)
    np.testing.assert_array_equal(second.run(None, {"x": X})[0], np.zeros((2, 6)))
