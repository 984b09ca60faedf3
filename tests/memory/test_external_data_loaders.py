"""Loaders of plugins and providers: who is asked, with what, and what is loaded how often."""

import gc
import tracemalloc

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import ort_sdk
from ort_sdk.api import CPU_DEVICE, Fail, PluginHooks, hookimpl
from ort_sdk.plugins import plugin_manager
from ort_sdk.testing.collection import only_new_objects
from ort_sdk.testing.strict.provider import StrictProvider
from tests.memory.models import WEIGHT, X, close_to, product_model, run
from tests.memory.test_saved_prepacked import SAVE

STRICT = "StrictExecutionProvider"


class HostLoader:
    """Turns bits over, as an encrypted file would; locations ``remote:NAME`` are in a dictionary."""

    def __init__(self, remote=None, wants=None):
        self.remote = remote or {}
        self.loaded = []
        self.wants = wants

    def can_load(self, memory_info):
        return memory_info.device == CPU_DEVICE

    def can_load_tensor(self, info):
        return self.wants is None or self.wants in info.location

    def load_tensor(self, info, tensor):
        self.loaded.append(info.name)
        if info.content is None:
            data = self.remote.get(info.location)
            if data is None:
                raise Fail(f"nothing at {info.location}")
        else:
            data = ~info.content
        part = np.frombuffer(data, np.uint8)[info.offset : info.offset + info.length]
        tensor.reshape(-1).view(np.uint8)[...] = part


class BatchLoader(HostLoader):
    """Loads all at once."""

    def load_tensors(self, batch):
        self.loaded.append([info.name for info, _ in batch])
        for info, tensor in batch:
            HostLoader.load_tensor(self, info, tensor)
            self.loaded.pop()


class Source(PluginHooks):
    name = "source"

    def __init__(self, loader):
        self.loader = loader

    @hookimpl
    def get_external_data_loader(self):
        return self.loader


class LoadingStrictProvider(StrictProvider):
    """The strict provider with a loader of its own."""

    loader = None

    @hookimpl
    def get_external_data_loader(self, execution_provider):
        return self.loader


class StrictLoader:
    """Fills arrays of strict devices from files."""

    def __init__(self, provider, remote=None):
        self.provider = provider
        self.remote = remote
        self.loaded = []

    def can_load(self, memory_info):
        return memory_info.device.name == "strict"

    def load_tensor(self, info, tensor):
        self.loaded.append((info.name, tensor.device.index))
        content = self.remote if info.content is None else info.content
        part = content[info.offset : info.offset + info.length]
        elements = part.view(info.element_type.numpy_dtype).reshape(info.shape)
        self.provider.devices[tensor.device].cell_of(tensor, "load").fill(elements)


@pytest.fixture
def source():
    """Registers a loader of a plugin for one test."""
    registered = []

    def register(loader):
        plugin = Source(loader)
        plugin.name = f"source{len(registered)}"
        plugin_manager().register_plugin(plugin)
        registered.append(plugin.name)
        return loader

    yield register
    for name in registered:
        plugin_manager().unregister_plugin(name)


@pytest.fixture
def strict():
    made = LoadingStrictProvider()
    plugin_manager().register(made)
    yield made
    plugin_manager().unregister(made.name)


def located(location, names=("w",)):
    """A model with weights at a location, one after the other; nothing is written."""
    model = product_model()
    for number, name in enumerate(names):
        tensor = model.graph.initializer[0] if number == 0 else model.graph.initializer.add()
        tensor.CopyFrom(numpy_helper.from_array(WEIGHT, name))
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        entries = {"location": location, "offset": number * WEIGHT.nbytes, "length": WEIGHT.nbytes}
        for key, value in entries.items():
            tensor.external_data.add(key=key, value=str(value))
        if number:
            model.graph.node.add().CopyFrom(helper.make_node("MatMul", ["x", name], [f"y{number}"]))
            model.graph.output.add().CopyFrom(helper.make_tensor_value_info(f"y{number}", TensorProto.FLOAT, ["n", 48]))
    return model.SerializeToString()


def on_cpu(model, **kwargs):
    return ort_sdk.InferenceSession(model, providers=["CPUExecutionProvider"], **kwargs)


def on_strict(model, device=0, **kwargs):
    return ort_sdk.InferenceSession(model, providers=[(STRICT, {"device_id": device})], **kwargs)


def encrypted(tmp_path):
    (tmp_path / "w.bin").write_bytes((~WEIGHT.reshape(-1).view(np.uint8)).tobytes())
    (tmp_path / "model.onnx").write_bytes(located("w.bin"))
    return tmp_path / "model.onnx"


def test_a_location_that_is_no_file(source):
    loader = source(HostLoader({"remote:w": WEIGHT.tobytes()}))
    session = on_cpu(located("remote:w"))
    assert loader.loaded == ["w"]
    close_to(run(session), X @ WEIGHT)
    close_to(run(session), X @ WEIGHT)
    assert loader.loaded == ["w"]


def test_a_location_no_loader_takes(source):
    source(HostLoader(wants="elsewhere"))
    with pytest.raises(Fail, match="External data path does not exist"):
        on_cpu(located("remote:w"))


def test_what_a_loader_raises_names_the_weight(source):
    source(HostLoader())
    with pytest.raises(Fail, match="nothing at remote:w") as caught:
        on_cpu(located("remote:w"))
    assert any("HostLoader" in note and "'w' (remote:w)" in note for note in caught.value.__notes__)


@pytest.mark.parametrize("location", ["../w.bin", "/etc/passwd", "remote://../../../../../../../../etc/passwd"])
def test_refused_paths_are_refused_with_loaders_too(source, location):
    loader = source(HostLoader({location: WEIGHT.tobytes()}))
    with pytest.raises(Fail, match="validation failed"):
        on_cpu(located(location))
    assert loader.loaded == []


@only_new_objects()
def test_a_host_loader_replaces_the_map(source, tmp_path):
    loader = source(HostLoader())
    path = encrypted(tmp_path)
    first = on_cpu(path)
    close_to(run(first), X @ WEIGHT)
    second = on_cpu(path)
    close_to(run(second), X @ WEIGHT)
    assert loader.loaded == ["w"]  # the sessions share what was loaded
    first.close()
    second.close()
    del first, second
    gc.collect()
    on_cpu(path)
    assert loader.loaded == ["w", "w"]


def test_a_plugin_comes_before_the_providers_and_goes_over_the_host(source, strict, tmp_path):
    strict.loader = StrictLoader(strict)
    loader = source(HostLoader())
    close_to(run(on_strict(encrypted(tmp_path))), X @ WEIGHT)
    assert loader.loaded == ["w"]
    assert strict.loader.loaded == []


def test_the_first_loader_that_can(source, tmp_path):
    first, second = source(HostLoader()), source(HostLoader())
    close_to(run(on_cpu(encrypted(tmp_path))), X @ WEIGHT)
    assert (first.loaded, second.loaded) == (["w"], [])


def test_all_at_once(source):
    data = {"remote:w": WEIGHT.tobytes() * 3}
    loader = source(BatchLoader(data))
    options = ort_sdk.SessionOptions()
    options.add_session_config_entry("session.disable_prepacking", "1")
    session = on_cpu(located("remote:w", ["w", "v", "u"]), sess_options=options)
    assert loader.loaded == [["w", "v", "u"]]
    close_to(run(session), X @ WEIGHT)


def test_what_is_not_packed_is_not_loaded_again(source):
    loader = source(HostLoader({"remote:w": WEIGHT.tobytes() * 3}))
    session = on_cpu(located("remote:w", ["w", "v", "u"]))
    close_to(run(session), X @ WEIGHT)
    assert sorted(loader.loaded) == ["u", "v", "w"]


def test_sub_byte_and_boolean_weights(source, tmp_path):
    codes = np.array([0, 1, 255, 7], np.uint8)
    nibbles = np.array([0x21, 0x43], np.uint8)
    nodes = [helper.make_node("Identity", ["b"], ["c"]), helper.make_node("Cast", ["i"], ["f"], to=TensorProto.FLOAT)]
    outputs = [
        helper.make_tensor_value_info("c", TensorProto.BOOL, [4]),
        helper.make_tensor_value_info("f", TensorProto.FLOAT, [4]),
    ]
    tensors = []
    for name, kind, offset, length in (("b", TensorProto.BOOL, 0, 4), ("i", TensorProto.UINT4, 4, 2)):
        tensor = TensorProto(name=name, data_type=kind, dims=[4], data_location=TensorProto.EXTERNAL)
        for key, value in (("location", "remote:w"), ("offset", offset), ("length", length)):
            tensor.external_data.add(key=key, value=str(value))
        tensors.append(tensor)
    graph = helper.make_graph(nodes, "g", [], outputs, tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    source(HostLoader({"remote:w": codes.tobytes() + nibbles.tobytes()}))
    c, f = on_cpu(model.SerializeToString()).run(None, {})
    assert c.view(np.uint8).tolist() == [0, 1, 1, 1]
    assert f.tolist() == [1, 2, 3, 4]


@only_new_objects()
def test_saved_packed_weights_work_with_a_loader(source, provider, start, tmp_path):
    path = tmp_path / "saved.onnx"
    start(product_model().SerializeToString(), SAVE, saved_to=path)
    provider.kernels.clear()
    gc.collect()

    class Plain(HostLoader):
        def load_tensor(self, info, tensor):
            self.loaded.append(info.name)
            tensor.reshape(-1).view(np.uint8)[...] = info.content[info.offset : info.offset + info.length]

    loader = source(Plain())
    close_to(run(start(path)), X @ WEIGHT)
    assert provider.packed == 1
    assert loader.loaded == ["w"]


def file_model(tmp_path):
    path = tmp_path / "product.onnx"
    onnx.save_model(product_model(), path, save_as_external_data=True, location="product.data", size_threshold=0)
    return path


def copies(strict, monkeypatch):
    """Counts uploads of weights to strict devices."""
    from ort_sdk.testing.strict.transfer import StrictDataTransfer

    counted = []
    original = StrictDataTransfer.copy

    def copy(self, array, source, target):
        if source.is_cpu and array.shape == WEIGHT.shape:
            counted.append(target.index)
        return original(self, array, source, target)

    monkeypatch.setattr(StrictDataTransfer, "copy", copy)
    return counted


@only_new_objects()
def test_one_file_on_two_devices_is_read_once_per_device(strict, tmp_path, monkeypatch):
    path = file_model(tmp_path)
    counted = copies(strict, monkeypatch)
    sessions = [on_strict(path, device) for device in (0, 1, 0, 1, 0)]
    assert counted == [0, 1]
    for session in sessions:
        close_to(run(session), X @ WEIGHT)
    sessions.clear()
    session = None
    gc.collect()
    assert session is None
    close_to(run(on_strict(path, 0)), X @ WEIGHT)
    assert counted == [0, 1, 0]


def test_a_file_that_was_replaced_is_read_again(strict, tmp_path, monkeypatch):
    path = file_model(tmp_path)
    counted = copies(strict, monkeypatch)
    first = on_strict(path)
    (tmp_path / "new").write_bytes((WEIGHT * 2).tobytes())
    (tmp_path / "new").rename(tmp_path / "product.data")
    second = on_strict(path)
    assert counted == [0, 0]
    close_to(run(first), X @ WEIGHT)
    close_to(run(second), X @ WEIGHT * 2)


def test_values_of_the_caller_are_named_by_their_contents(strict, monkeypatch):
    counted = copies(strict, monkeypatch)
    weight = WEIGHT.copy()
    sessions = []
    for step in range(3):
        options = ort_sdk.SessionOptions()
        options.add_initializer("w", ort_sdk.OrtValue.ortvalue_from_numpy(weight))
        sessions.append(
            ort_sdk.InferenceSession(product_model().SerializeToString(), options, providers=[(STRICT, {"device_id": 0})])
        )
        if step == 1:
            weight += 1
    assert counted == [0, 0]
    for session, wanted in zip(sessions, (WEIGHT, WEIGHT, WEIGHT + 1), strict=True):
        close_to(run(session), X @ wanted)


@pytest.mark.parametrize("at_once", [False, True])
def test_a_provider_loads_straight_to_its_devices(strict, tmp_path, monkeypatch, at_once):
    strict.loader = StrictLoader(strict)
    batches = []
    if at_once:
        strict.loader.load_tensors = lambda batch: batches.append([strict.loader.load_tensor(*item) for item in batch])
    path = file_model(tmp_path)
    counted = copies(strict, monkeypatch)
    sessions = [on_strict(path, device) for device in (0, 1, 0, 1)]
    assert counted == []
    assert strict.loader.loaded == [("w", 0), ("w", 1)]
    assert len(batches) == (2 if at_once else 0)
    for session in sessions:
        close_to(run(session), X @ WEIGHT)


def test_equal_weights_of_one_session_are_loaded_once(strict, tmp_path):
    strict.loader = StrictLoader(strict)
    model = onnx.ModelProto.FromString(located("w.bin", ["w", "v"]))
    next(entry for entry in model.graph.initializer[1].external_data if entry.key == "offset").value = "0"
    (tmp_path / "w.bin").write_bytes(WEIGHT.tobytes())
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    session = on_strict(tmp_path / "model.onnx")
    assert len(strict.loader.loaded) == 1
    close_to(run(session), X @ WEIGHT)


def test_a_device_loader_alone_cannot_serve_the_host(strict):
    strict.loader = StrictLoader(strict, WEIGHT.reshape(-1).view(np.uint8))
    close_to(run(on_strict(located("remote:w"))), X @ WEIGHT)
    model = onnx.ModelProto.FromString(located("remote:w"))
    model.graph.output.add().CopyFrom(helper.make_tensor_value_info("w", TensorProto.FLOAT, [64, 48]))
    with pytest.raises(Fail, match="only load the memory of other devices"):
        on_strict(model.SerializeToString())


def test_what_is_no_loader_is_refused(source):
    source(object())
    with pytest.raises(ort_sdk.capi.onnxruntime_pybind11_state.EPFail, match="must give an ExternalDataLoader"):
        on_cpu(product_model().SerializeToString())


def test_loading_leaves_no_second_copy_on_the_host(strict, tmp_path):
    weight = np.zeros((2048, 1024), np.float32)
    path = tmp_path / "large.onnx"
    onnx.save_model(product_model(weight), path, save_as_external_data=True, location="large.data", size_threshold=0)
    strict.loader = StrictLoader(strict)
    tracemalloc.start()
    session = on_strict(path)
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used < weight.nbytes * 1.5  # the strict device itself is host memory
    close_to(run(session, np.ones((1, 2048), np.float32)), np.zeros((1, 1024)))


def test_onnxruntime_would_agree(tmp_path):
    path = file_model(tmp_path)
    theirs = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    close_to(theirs.run(None, {"x": X})[0], run(on_cpu(path)))
