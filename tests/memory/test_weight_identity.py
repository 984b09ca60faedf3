"""Identities of weights: equal for equal weights, known without reading where that can be, and asked for once."""

import sys

import numpy as np
import pytest

from ort_sdk.api import TensorElementType
from ort_sdk.formats.files.byte_source import map_descriptor, wrap_buffer
from ort_sdk.formats.files.mapped_tensor import MappedTensor
from ort_sdk.graph.derived_tensor import DerivedTensor
from ort_sdk.graph.tensor import ArrayTensor
from ort_sdk.memory import weight_identity
from tests.memory.models import WEIGHT, X, close_to, run

FLOAT = TensorElementType.FLOAT


def over(source, offset=0, shape=(2, 3)):
    return MappedTensor(source, offset, FLOAT, shape, 24)


def doubled(tensor):
    return DerivedTensor("doubled", FLOAT, tensor.shape, [tensor], lambda source: 2 * source.numpy())


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "weights"
    path.write_bytes(np.arange(12, dtype=np.float32).tobytes())
    with path.open("rb") as opened:
        return map_descriptor(opened.fileno(), "weights")


class Unread(MappedTensor):
    """Fails if it is read."""

    def numpy(self):
        raise AssertionError("read")

    packed = numpy


def test_ranges_are_named_without_reading(file):
    for source in (file, wrap_buffer(bytes(48))):
        tensor = Unread(source, 24, FLOAT, (2, 3), 24)
        identity = weight_identity(tensor)
        assert identity.is_named
        assert identity.byte_sources == (source,)
        assert identity.type_and_shape == "float[2, 3]"
        assert identity.text() == weight_identity(over(source, 24)).text()
        assert identity.text() not in {weight_identity(over(source)).text(), weight_identity(over(source, 24, (6,))).text()}
    derived = weight_identity(doubled(Unread(file, 0, FLOAT, (2, 3), 24)))
    assert (derived.is_named, derived.byte_sources) == (True, (file,))
    assert derived.contents().startswith("doubled(float[2, 3] of ")


@pytest.mark.parametrize("make", [bytearray, bytes], ids=["writable", "constant"])
def test_what_no_later_process_finds_there_is_hashed(make):
    values = np.arange(6, dtype=np.float32)
    source = wrap_buffer(make(values.tobytes()))
    identity = weight_identity(over(source))
    assert identity.is_named == (make is bytes)
    held = weight_identity(ArrayTensor(values.reshape(2, 3)))
    assert not held.is_named
    assert held.byte_sources == ()
    assert identity.text(is_durable=True) == held.text(is_durable=True) == held.text()
    assert (identity.text() == held.text()) == (make is bytearray)
    assert weight_identity(doubled(over(source))).text(is_durable=True) == f"float[2, 3] of doubled({held.text()})"


def test_files_are_named_for_later_processes(file):
    identity = weight_identity(Unread(file, 0, FLOAT, (2, 3), 24))
    assert identity.text(is_durable=True) == identity.text()


def test_packing_a_weight_identifies_it_once(provider, start, model_path):
    calls = []

    def watch(frame, event, _argument):
        if event == "call" and frame.f_code is weight_identity.__code__:
            calls.append(frame)

    sys.setprofile(watch)
    try:
        session = start(model_path)
        result = run(session)
    finally:
        sys.setprofile(None)
    close_to(result, X @ WEIGHT)
    assert provider.packed == 1
    assert len(calls) == 1
