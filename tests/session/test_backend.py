"""ONNX's backend API and the example models, in onnxruntime and here."""

import importlib

import numpy as np
import onnx
import pytest

import ort_sdk
from tests.session import models

# onnxruntime's backend asks onnx for its version in a way that onnx warns of.
pytestmark = pytest.mark.filterwarnings("ignore:onnx.version is deprecated")

X = np.array([[1, 2], [3, 4]], np.float32)


@pytest.fixture
def backend(ort):
    return importlib.import_module(f"{ort.__name__}.backend")


def test_prepare_and_run(ort, backend):
    made = onnx.load_from_string(models.identity())
    session = ort.InferenceSession(models.identity(), providers=["CPUExecutionProvider"])
    for source in (made, models.identity(), session):
        prepared = backend.prepare(source)
        np.testing.assert_array_equal(prepared.run([X])[0], X)
        np.testing.assert_array_equal(prepared.run(X)[0], X)
    assert backend.prepare(prepared) is prepared
    np.testing.assert_array_equal(backend.run(made, [X])[0], X)


def test_options(backend):
    prepared = backend.prepare(models.identity(), log_severity_level=4, nobody_knows=1)
    assert prepared._session.get_session_options().log_severity_level == 4
    with pytest.raises((RuntimeError, ValueError), match="is not permitted via the backend API"):
        backend.prepare(models.identity(), optimized_model_filepath="x")
    with pytest.raises((RuntimeError, ValueError), match="is not permitted via the backend API"):
        prepared.run([X], terminate=True)


def test_devices(backend):
    assert backend.supports_device("CPU")
    assert backend.is_compatible(None, "CPU")
    assert not backend.supports_device("TPU")
    with pytest.raises(RuntimeError, match="Incompatible device expected 'TPU'"):
        backend.prepare(models.identity(), "TPU")


def test_too_many_inputs():
    prepared = importlib.import_module("ort_sdk.backend").prepare(models.identity(), "CPU")
    with pytest.raises(ValueError, match="Model expect 1 inputs"):
        prepared.run([X, X])


def test_examples(ort):
    datasets = importlib.import_module(f"{ort.__name__}.datasets")
    for name in ("sigmoid.onnx", "mul_1.onnx", "logreg_iris.onnx"):
        session = ort.InferenceSession(datasets.get_example(name), providers=["CPUExecutionProvider"])
        expected = ort_sdk.InferenceSession(datasets.get_example(name), providers=["CPUExecutionProvider"])
        feeds = {session.get_inputs()[0].name: np.full(session.get_inputs()[0].shape, 0.5, np.float32)}
        got, wanted = session.run(None, feeds), expected.run(None, feeds)
        np.testing.assert_allclose(got[0], wanted[0], rtol=1e-6)
    with pytest.raises(FileNotFoundError, match="Unable to find example 'nope'"):
        datasets.get_example("nope")
