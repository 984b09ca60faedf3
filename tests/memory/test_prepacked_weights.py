"""Packed weights: shared between kernels and sessions, kept in containers and in cache folders, and never used wrongly."""

import gc
import json
import os
import subprocess
import sys
import threading
import zlib
from pathlib import Path

import numpy as np
import pytest

import ort_sdk
from ort_sdk import PrepackedWeightsContainer
from ort_sdk.formats.files.byte_source import wrap_buffer
from ort_sdk.memory.prepack_cache import _MAGIC, _PREFIX, _header, _Target
from ort_sdk.testing.collection import only_new_objects
from tests.memory.models import WEIGHT, X, branching_model, close_to, product_model, run

ROOT = Path(__file__).resolve().parents[2]
CACHE = "session.prepack_cache_dir"


@pytest.fixture(autouse=True)
def _only_new_objects():
    with only_new_objects():
        yield


def test_kernels_of_a_session_share(provider, start):
    session = start(branching_model().SerializeToString())
    assert provider.packed == 2  # w once for two kernels in two graphs, v once
    for flag in (True, False):
        close_to(run(session, flag=np.array(flag)), X @ WEIGHT * (2 if flag else 0))


def test_sessions_share_while_one_lives(provider, start, model_path):
    first = start(model_path)
    second = start(model_path)
    assert provider.packed == 1
    a, b = (kernel.packed[1] for kernel in provider.kernels)
    assert a.ctypes.data == b.ctypes.data
    close_to(run(second), X @ WEIGHT)
    del a, b
    first.close()
    close_to(run(second), X @ WEIGHT)
    second.close()
    provider.kernels.clear()
    gc.collect()
    start(model_path)
    assert provider.packed == 2


def test_a_container_keeps_them(provider, start, model_path):
    container = PrepackedWeightsContainer()
    start(model_path, prepacked_weights_container=container).close()
    assert len(container) == 1
    assert container.nbytes == WEIGHT.nbytes + 16
    (key,) = container
    assert (key.provider, key.op_type, key.input_index, key.packing_identity) == (provider.name, "MatMul", 1, provider.version)
    close_to(run(start(model_path, prepacked_weights_container=container)), X @ WEIGHT)
    assert provider.packed == 1
    container.clear()
    provider.kernels.clear()
    gc.collect()
    start(model_path)
    assert provider.packed == 2


def test_equal_contents_in_memory_are_found(provider, start):
    container = PrepackedWeightsContainer()
    for _ in range(2):  # two buffers, equal bytes
        start(product_model().SerializeToString(), prepacked_weights_container=container)
    weight = np.array(WEIGHT)
    for _ in range(2):
        options = ort_sdk.SessionOptions()
        options.add_initializer("w", ort_sdk.OrtValue.ortvalue_from_numpy(weight))
        start(product_model().SerializeToString(), options=options, prepacked_weights_container=container)
    before = provider.packed
    weight += 1
    options = ort_sdk.SessionOptions()
    options.add_initializer("w", ort_sdk.OrtValue.ortvalue_from_numpy(weight))
    session = start(product_model().SerializeToString(), options=options, prepacked_weights_container=container)
    assert provider.packed == before + 1
    close_to(run(session), X @ (WEIGHT + 1))


def test_a_replaced_file_is_packed_again(provider, start, model_path):
    first = start(model_path)
    data = model_path.with_name("product.data")
    other = data.with_name("other")
    other.write_bytes((WEIGHT * 2).tobytes())
    other.rename(data)
    second = start(model_path)
    assert provider.packed == 2
    close_to(run(first), X @ WEIGHT)
    close_to(run(second), X @ WEIGHT * 2)


def test_another_packing_is_another_weight(provider, start, model_path):
    kept = start(model_path)
    provider.version = "1.1 avx512"
    close_to(run(start(model_path)), X @ WEIGHT)
    assert provider.packed == 2
    kept.close()


def test_threads_pack_once(provider, start, model_path):
    barrier = threading.Barrier(8)
    sessions = []

    def work():
        barrier.wait()
        sessions.append(start(model_path))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert provider.packed == 1
    for session in sessions:
        close_to(run(session), X @ WEIGHT)


def test_a_failed_packing_is_tried_again(provider, start, model_path):
    def fail(tensor):
        raise MemoryError("no room")

    provider.on_pack = fail
    with pytest.raises(MemoryError):
        start(model_path)
    provider.on_pack = None
    close_to(run(start(model_path)), X @ WEIGHT)


def test_disabled(provider, start, model_path, tmp_path):
    session = start(model_path, {"session.disable_prepacking": "1", CACHE: tmp_path / "cache"})
    close_to(run(session), X @ WEIGHT)
    assert provider.packed == 0
    assert not (tmp_path / "cache").exists()


def forget(provider):
    """As a new process would begin."""
    provider.kernels.clear()
    gc.collect()


def test_the_cache_folder_saves_the_work(provider, start, model_path, tmp_path):
    config = {CACHE: tmp_path / "cache"}
    close_to(run(start(model_path, config)), X @ WEIGHT)
    assert provider.packed == 1
    assert len(list((tmp_path / "cache").iterdir())) == 1
    assert not provider.kernels[0].packed[1].flags.writeable  # a map of the file, not what was packed
    for source in (model_path, str(model_path)):
        forget(provider)
        close_to(run(start(source, config)), X @ WEIGHT)
    assert provider.packed == 1


@pytest.mark.parametrize("kind", ["bytes", "external", "value"])
def test_the_cache_folder_finds_contents_in_memory(provider, start, model_path, tmp_path, kind):
    for _ in range(2):
        options = ort_sdk.SessionOptions()
        source = product_model().SerializeToString()
        if kind == "external":
            source = model_path.read_bytes()
            options.add_external_file("product.data", bytearray(model_path.with_name("product.data").read_bytes()))
        elif kind == "value":
            options.add_initializer("w", ort_sdk.OrtValue.ortvalue_from_numpy(WEIGHT.copy()))
        close_to(run(start(source, {CACHE: tmp_path / "cache"}, options=options)), X @ WEIGHT)
        forget(provider)
    assert provider.packed == 1


def damaged(content, how):
    """Bytes of a cache file after an accident."""
    changed = bytearray(content)
    if how == "empty":
        return b""
    if how == "cut":
        return content[: len(content) // 2]
    if how == "header cut":
        return content[:20]
    if how == "longer":
        return content + b"\0"
    if how == "zeroed":
        changed[-1000:] = bytes(1000)
    elif how == "first byte":
        changed[0] ^= 1
    elif how == "header":
        changed[content.index(b'"key"')] ^= 1
    elif how == "last bit":
        changed[-1] ^= 1
    return bytes(changed)


HOW = ["empty", "cut", "header cut", "longer", "zeroed", "first byte", "header", "last bit"]


@pytest.mark.parametrize("how", HOW)
def test_damaged_cache_files_are_not_used(provider, start, model_path, tmp_path, how, caplog):
    config = {CACHE: tmp_path / "cache"}
    start(model_path, config)
    forget(provider)
    (file,) = (tmp_path / "cache").iterdir()
    whole = file.read_bytes()
    file.unlink()
    file.write_bytes(damaged(whole, how))
    close_to(run(start(model_path, config)), X @ WEIGHT)
    assert provider.packed == 2
    assert "damaged" in caplog.text
    assert file.read_bytes() == whole  # mended
    forget(provider)
    close_to(run(start(model_path, config)), X @ WEIGHT)
    assert provider.packed == 2


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "{}",
        "7",
        "null",
        '{"key": KEY}',
        '{"key": KEY, "buffers": 7}',
        '{"key": KEY, "buffers": [7]}',
        '{"key": KEY, "buffers": [{}]}',
        '{"key": KEY, "buffers": [{"length": 0, "checksum": 0}]}',
        '{"key": KEY, "buffers": [{"offset": 64, "length": "x", "checksum": 0}]}',
        '{"key": KEY, "buffers": [{"offset": 64, "length": -1, "checksum": 0}]}',
        '{"key": KEY, "buffers": [{"offset": 64, "length": 1e300, "checksum": 0}]}',
        '{"key": KEY, "buffers": [{"offset": 64, "length": 9999999999999999999999, "checksum": 0}]}',
        '{"key": KEY, "buffers": [{"offset": 1099511627776, "length": 0, "checksum": 0}]}',
        '{"key": KEY, "buffers": [{"offset": -64, "length": 0, "checksum": 0}]}',
        '{"key": KEY, "buffers": [{"offset": 65, "length": 0, "checksum": 0}]}',
        '{"key": KEY, "buffers": [{"offset": 64, "length": 1001, "checksum": 0}]}',
        '{"key": KEY, "buffers": []}',
        '{"key": KEY, "buffers": [{"offset": 64, "length": Infinity, "checksum": 0}]}',
        "\ufeff{}",
    ],
)
def test_forged_headers_are_not_used(provider, start, model_path, tmp_path, text):
    config = {CACHE: tmp_path / "cache"}
    start(model_path, config)
    forget(provider)
    (file,) = (tmp_path / "cache").iterdir()
    key = json.loads(_header(wrap_buffer(file.read_bytes())))["key"]
    header = text.replace("KEY", json.dumps(key)).encode()
    file.unlink()
    start_of_file = _PREFIX.pack(_MAGIC, 1064, len(header), zlib.crc32(header)).ljust(1064, b"\0")
    file.write_bytes(start_of_file + header)
    close_to(run(start(model_path, config)), X @ WEIGHT)
    assert provider.packed == 2


def test_a_cache_file_of_another_key_is_not_used(provider, start, model_path, tmp_path):
    config = {CACHE: tmp_path / "cache"}
    start(model_path, config)
    (first,) = (tmp_path / "cache").iterdir()
    provider.version = "2"
    start(model_path, config)
    (second,) = set((tmp_path / "cache").iterdir()) - {first}
    first.write_bytes(second.read_bytes())
    provider.version = "1.0 avx2"
    forget(provider)
    start(model_path, config)
    assert provider.packed == 3


def test_other_things_than_files_in_the_cache_folder(provider, start, model_path, tmp_path):
    config = {CACHE: tmp_path / "cache"}
    start(model_path, config)
    (file,) = (tmp_path / "cache").iterdir()
    outside = tmp_path / "outside"
    outside.write_bytes(file.read_bytes())
    for make in (lambda: os.mkfifo(file), lambda: file.symlink_to(outside)):
        file.unlink()
        make()
        forget(provider)
        close_to(run(start(model_path, config)), X @ WEIGHT)
        assert file.is_file()
        assert not file.is_symlink()
    assert provider.packed == 3


def test_a_cache_folder_that_cannot_be(start, model_path, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ort_sdk.capi.onnxruntime_pybind11_state.InvalidArgument, match="cannot be made"):
        start(model_path, {CACHE: tmp_path / "file"})


def test_a_cache_folder_that_takes_nothing(provider, start, model_path, tmp_path, monkeypatch, caplog):
    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(_Target, "publish", full)
    close_to(run(start(model_path, {CACHE: tmp_path / "cache"})), X @ WEIGHT)
    assert "No space left on device" in caplog.text
    assert not list((tmp_path / "cache").iterdir())


PROCESS = """
import sys
import numpy as np, ort_sdk
from ort_sdk.plugins import plugin_manager
from tests.memory.packing import PackingProvider
provider = PackingProvider()
plugin_manager().register(provider)
options = ort_sdk.SessionOptions()
options.add_session_config_entry("session.prepack_cache_dir", sys.argv[2])
session = ort_sdk.InferenceSession(sys.argv[1], options, providers=[provider.name])
y = session.run(None, {"x": np.ones((1, 64), np.float32)})[0]
print(provider.packed, float(y.sum()))
"""


def test_processes_share_the_folder(provider, start, model_path, tmp_path):
    start(model_path, {CACHE: tmp_path / "cache"})
    command = [sys.executable, "-c", PROCESS, str(model_path), str(tmp_path / "cache")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    packed, total = done.stdout.split()
    assert packed == "0"
    assert float(total) == pytest.approx(float(WEIGHT.sum()), rel=1e-4)
