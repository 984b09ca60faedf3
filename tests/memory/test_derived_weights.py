"""Weights derived from a file's: computed once for all sessions, written and put on devices piece by piece."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import onnx
import onnxruntime
import pytest

import ort_sdk
from ort_sdk.api import CPU_DEVICE, ExecutionProvider, KernelRegistry, ProviderHooks, hookimpl
from ort_sdk.formats.files.checksum import RunningChecksum, checksum
from ort_sdk.graph.derived_tensor import StreamedTensor
from ort_sdk.opset import add_opset
from ort_sdk.plugins import plugin_manager
from ort_sdk.testing.collection import only_new_objects
from ort_sdk.testing.strict.provider import STRICT_PROVIDER, StrictProvider
from tests.optimizer.extended.fused_graph import feeds_of
from tests.optimizer.extended.quantized_models import EXACT, product, quantized, real

PLAIN_PROVIDER = "PlainExecutionProvider"


class PlainProvider(ProviderHooks):
    """The operator set over NumPy: its kernels read weights as they are."""

    name = PLAIN_PROVIDER

    def __init__(self):
        self.registry = KernelRegistry(self.name)
        add_opset(self.registry, np)

    @hookimpl
    def get_supported_devices(self):
        return [CPU_DEVICE]

    @hookimpl
    def create_execution_provider(self, device, provider_options, session_options):
        return ExecutionProvider(self.name, device, provider_options)

    @hookimpl
    def get_kernel_registry(self, execution_provider):
        return self.registry


@pytest.fixture(params=[PLAIN_PROVIDER, STRICT_PROVIDER])
def provider(request):
    made = PlainProvider() if request.param == PLAIN_PROVIDER else StrictProvider()
    plugin_manager().register(made)
    yield request.param
    plugin_manager().unregister(request.param)


@pytest.fixture
def plain():
    plugin_manager().register(PlainProvider())
    yield PLAIN_PROVIDER
    plugin_manager().unregister(PLAIN_PROVIDER)


CONSTANTS = quantized("int4", (256, 512), 0, 32, True)
WEIGHT = real(CONSTANTS, 0, 32)


@pytest.fixture
def path(tmp_path):
    """A QDQ model with its weights in an external file."""
    model = onnx.ModelProto.FromString(product(CONSTANTS, 0, 32))
    onnx.save_model(model, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    return tmp_path / "m.onnx"


def start(source, provider, config=EXACT, saved_to=None):
    options = ort_sdk.SessionOptions()
    for key, value in config.items():
        options.add_session_config_entry(key, value)
    if saved_to is not None:
        options.optimized_model_filepath = str(saved_to)
    return ort_sdk.InferenceSession(source, options, providers=[provider])


def assert_right(session, path):
    feeds = feeds_of(path.read_bytes())
    for _ in range(2):
        np.testing.assert_allclose(session.run(None, feeds)[0], feeds["x"] @ WEIGHT, atol=1e-3)


@pytest.fixture
def computed(monkeypatch):
    """Transformations whose pieces were asked for."""
    asked = []
    pieces = StreamedTensor.pieces

    def recorded(tensor):
        asked.append(tensor.transformation)
        return pieces(tensor)

    monkeypatch.setattr(StreamedTensor, "pieces", recorded)
    return asked


@pytest.fixture
def never_assembled(monkeypatch):
    """Nobody may ask for a derived weight as a whole."""

    def refuse(tensor):
        raise AssertionError(f"{tensor} was assembled")

    monkeypatch.setattr(StreamedTensor, "_assembled", refuse)


def test_sessions_of_one_file_share_what_they_derive(path, provider, computed):
    sessions = [start(path, provider) for _ in range(3)]
    for session in sessions:
        assert_right(session, path)
    assert len(computed) == len(set(computed)) == 3


@only_new_objects()
def test_the_last_session_frees_it(path, plain):
    first, second = start(path, plain), start(path, plain)
    assert_right(first, path)
    assert_right(second, path)
    (weight,) = (array for array in first._state.plan.constants.arrays().values() if array.ndim == 3)
    alive = weakref.ref(weight.base if weight.base is not None else weight)
    del first, weight
    gc.collect()
    assert alive() is not None
    del second
    gc.collect()
    assert alive() is None


def test_nothing_is_computed_when_a_session_is_made(path, plain, computed):
    session = start(path, plain)
    assert computed == []
    assert_right(session, path)


@pytest.mark.usefixtures("never_assembled")
def test_devices_are_filled_piece_by_piece(path):
    plugin_manager().register(StrictProvider())
    try:
        assert_right(start(path, STRICT_PROVIDER), path)
    finally:
        plugin_manager().unregister(STRICT_PROVIDER)


FILE_KEY = "session.optimized_model_external_initializers_file_name"


@pytest.mark.usefixtures("never_assembled")
def test_saved_models_are_written_piece_by_piece(path, plain, tmp_path):
    saved = tmp_path / "saved.onnx"
    start(path, plain, EXACT | {FILE_KEY: "saved.data"}, saved)
    proto = onnx.load(saved, load_external_data=False)
    assert [found.op_type for found in proto.graph.node] == ["MatMulNBits"]
    assert {tensor.data_location for tensor in proto.graph.initializer} == {onnx.TensorProto.EXTERNAL}
    assert (tmp_path / "saved.data").stat().st_size < 1.5 * path.with_suffix(".data").stat().st_size


@pytest.mark.parametrize("config", [{}, {FILE_KEY: "saved.data"}])
@pytest.mark.parametrize(
    ("name", "axis", "block_size"), [("uint4", 0, 32), ("int8", 1, 0), ("int4", None, 0), ("uint2", 0, 64), ("int2", 0, 16)]
)
def test_onnxruntime_reads_saved_models(tmp_path, name, axis, block_size, config):
    constants = quantized(name, (256, 64), axis, block_size, True)
    saved = tmp_path / "saved.onnx"
    model = product(constants, axis, block_size)
    start(model, "CPUExecutionProvider", EXACT | config, saved)
    feeds = feeds_of(model)
    wanted = feeds["x"] @ real(constants, axis, block_size)
    session = onnxruntime.InferenceSession(saved, providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(None, feeds)[0], wanted, rtol=1e-4, atol=2e-3)
    again = start(saved, "CPUExecutionProvider")
    np.testing.assert_allclose(again.run(None, feeds)[0], wanted, rtol=1e-4, atol=2e-3)


def test_saved_models_hold_a_shared_weight_once(tmp_path, plain):
    from tests.optimizer.extended.test_dq_matmul import two_products

    saved = tmp_path / "saved.onnx"
    start(two_products(quantized("int4", (64, 20), 0, 32, True)), plain, EXACT, saved)
    assert len(onnx.load(saved).graph.initializer) == 3


SIZES = [0, 1, 1000, 40_000, 4 << 20, (4 << 20) + 1, (12 << 20) + 7]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("step", [1 << 20, 4 << 20, 1 << 30])
def test_checksums_of_pieces_are_those_of_the_whole(size, step):
    data = np.random.default_rng(size).integers(0, 256, size, np.uint8)
    running = RunningChecksum()
    for begin in range(0, size, step):
        running.update(data[begin : begin + step])
    assert running.value() == checksum(data)


@pytest.mark.parametrize("size", SIZES[1:])
def test_checksums_change_with_the_bytes(size):
    rng = np.random.default_rng(size)
    data = rng.integers(0, 256, size, np.uint8)
    known = checksum(data)
    for place in rng.integers(0, size, 50):
        changed = data.copy()
        changed[place] ^= 1 << rng.integers(8)
        assert checksum(changed) != known
    assert checksum(data[:-1]) != known
    assert checksum(np.append(data, np.uint8(0))) != known


@pytest.mark.parametrize("distance", [1, 8, 4096, 32768, 4 << 20])
@pytest.mark.parametrize("length", [8, 4096, 32768])
def test_checksums_change_with_the_order(distance, length):
    data = np.random.default_rng(0).integers(0, 256, 9 << 20, np.uint8)
    known = checksum(data)
    changed = data.copy()
    changed[:length], changed[distance : distance + length] = data[distance : distance + length], data[:length]
    assert checksum(changed) != known


@pytest.mark.parametrize("length", [4096, 65536])
def test_checksums_change_with_missing_pages(length):
    data = np.random.default_rng(0).integers(0, 256, 9 << 20, np.uint8)
    known = checksum(data)
    data[length : 2 * length] = 0
    assert checksum(data) != known
