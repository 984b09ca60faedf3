"""The CPU provider's kernels, which take unaligned weights as aligned copies: in files these are no copies any more."""

import gc

import numpy as np
import onnxruntime
import pytest

import ort_sdk
from ort_sdk.testing.collection import only_new_objects
from tests.memory.models import WEIGHT, X, close_to, product_model, run
from tests.memory.test_saved_prepacked import SAVE, entries

CPU = ["CPUExecutionProvider"]


@pytest.fixture
def path(tmp_path):
    """A model whose weight is inline, at an address that is no multiple of four."""
    model = product_model()
    for length in range(1, 9):
        model.doc_string = "x" * length
        content = model.SerializeToString()
        if content.index(WEIGHT.tobytes()) % 4:
            break
    (tmp_path / "inline.onnx").write_bytes(content)
    return tmp_path / "inline.onnx"


def session_of(path, config, saved_to=None):
    options = ort_sdk.SessionOptions()
    for key, value in config.items():
        options.add_session_config_entry(key, str(value))
    if saved_to is not None:
        options.optimized_model_filepath = str(saved_to)
    return ort_sdk.InferenceSession(path, options, providers=CPU)


@only_new_objects()
def test_the_cache_folder_holds_the_aligned_copy(path, tmp_path):
    config = {"session.prepack_cache_dir": tmp_path / "cache"}
    for _ in range(2):
        session = session_of(path, config)
        for _ in range(3):
            close_to(run(session), X @ WEIGHT)
        del session
        gc.collect()
    (file,) = (tmp_path / "cache").iterdir()
    assert WEIGHT.tobytes() in file.read_bytes()


def test_the_saved_model_holds_the_weight_once(path, tmp_path):
    saved = tmp_path / "saved.onnx"
    session_of(path, SAVE, saved)
    assert (tmp_path / "saved.bin").stat().st_size < WEIGHT.nbytes * 1.1
    found = entries(saved)
    assert found["prepacked_0"].split("|")[1].startswith(f"{found['offset']};{WEIGHT.nbytes};")
    theirs = onnxruntime.InferenceSession(saved, providers=CPU)
    session = session_of(saved, {})
    for _ in range(3):
        close_to(run(session), X @ WEIGHT)
        np.testing.assert_allclose(theirs.run(None, {"x": X})[0], X @ WEIGHT, rtol=1e-4, atol=1e-4)
