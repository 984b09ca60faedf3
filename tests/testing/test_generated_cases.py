"""Cases that are generated once and kept."""

import numpy as np
import onnx
import pytest

from ort_sdk.testing import generated_cases
from ort_sdk.testing.generated_cases import GeneratedCase, kept_in

CASE = GeneratedCase("one", 1e-3, 1e-7, b"model", [([np.float32(1), None], [[np.ones((2, 3), np.int8)]])])


@pytest.fixture
def generated(monkeypatch):
    """Stands for the generators; how often they ran."""
    calls = []
    monkeypatch.setattr(generated_cases, "_generate", lambda: calls.append(1) or [CASE])
    return calls


def test_they_are_generated_once(tmp_path, generated):
    folder = tmp_path / "cache"
    for _ in range(3):
        (found,) = generated_cases.generated_cases(folder)
        assert found[:4] == CASE[:4]
        ((inputs, outputs),) = found.data_sets
        assert inputs == [np.float32(1), None]
        assert outputs[0][0].dtype == np.int8
    assert len(generated) == 1
    assert [path.name for path in folder.iterdir()] == [kept_in(folder).name]


@pytest.mark.parametrize("content", [b"", b"not a pickle", b"\x80\x05K\x01.", None], ids=["empty", "text", "number", "half"])
def test_damaged_files_are_made_anew(tmp_path, generated, content):
    generated_cases.generated_cases(tmp_path)
    path = kept_in(tmp_path)
    path.write_bytes(path.read_bytes()[:-20] if content is None else content)
    for _ in range(2):
        assert generated_cases.generated_cases(tmp_path)[0].name == "one"
    assert len(generated) == 2


def test_without_a_folder(tmp_path, generated):
    (tmp_path / "file").touch()
    for _ in range(2):
        assert generated_cases.generated_cases(tmp_path / "file" / "cache") == [CASE]
    assert len(generated) == 2


def test_kept_cases_are_those_of_the_suite():
    kept = {case.name: case for case in generated_cases.generated_cases()}
    made = {case.name: case for case in generated_cases._generate()}
    assert kept.keys() == made.keys()
    assert len(kept) > 1000
    case = kept["test_relu"]
    assert onnx.ModelProto.FromString(case.model).graph.node[0].op_type == "Relu"
    ((x,), (y,)) = case.data_sets[0]
    np.testing.assert_array_equal(y, np.maximum(x, 0))
