"""com.microsoft operators on text and tokens, and CropAndResize, against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

from ort_sdk.api import InvalidArgument, InvalidGraph, KernelInfo, NodeArg
from ort_sdk.opset.contrib.crop_and_resize import crop_and_resize
from ort_sdk.opset.contrib.generation import ngram_repeat_block
from ort_sdk.opset.contrib.text import tokenizer
from ort_sdk.opset.definition import as_namespace
from tests.opset.one_node import compare, make_model, run_sdk

MICROSOFT = "com.microsoft"
RNG = np.random.default_rng(23)
TEXTS = np.array(["Hello World", "I love computer science !", "", "a,b c"], object)


@pytest.mark.parametrize(
    "expression",
    [
        {"separators": [" "]},
        {"separators": [" ", ","]},
        {"separators": ["l+", " "]},
        {"separators": ["(l)+", " "]},
        {"tokenexp": "[a-z]+"},
        {"tokenexp": "([a-z])+"},
    ],
)
@pytest.mark.parametrize("mark", [0, 1])
@pytest.mark.parametrize("shortest", [1, 2])
def test_tokenizer(expression, mark, shortest):
    attributes = {"mark": mark, "mincharnum": shortest, "pad_value": "#", **expression}
    compare("Tokenizer", [TEXTS], domain=MICROSOFT, attributes=attributes)
    compare("Tokenizer", [TEXTS.reshape(2, 2)], domain=MICROSOFT, attributes=attributes)


@pytest.mark.parametrize("expression", [{"separators": [""]}, {"tokenexp": "."}])
def test_tokenizer_of_characters(expression):
    attributes = {"mark": 1, "mincharnum": 1, "pad_value": "#", **expression}
    compare("Tokenizer", [np.array(["héllo", "x"], object)], domain=MICROSOFT, attributes=attributes)


@pytest.mark.parametrize("attributes", [{}, {"separators": [" "], "tokenexp": "."}, {"tokenexp": "["}])
def test_tokenizer_refuses_bad_expressions(attributes):
    required = {"mark": 0, "mincharnum": 1, "pad_value": ""}
    info = KernelInfo("Tokenizer", 1, MICROSOFT, attributes={**required, **attributes}, inputs=(NodeArg("x"),))
    with pytest.raises(InvalidGraph, match=r"separators|regular expression"):
        tokenizer(info, as_namespace(np))


@pytest.mark.parametrize("positive", [0, 1])
@pytest.mark.parametrize(
    "values",
    [
        np.array(["", "a", "ab", "abc", "abcd", "héllo wörld"], object),
        np.arange(-3, 4, dtype=np.int32),
        np.arange(4, dtype=np.int64).reshape(2, 2),
        RNG.normal(size=(2, 3)).astype(np.float32),
        RNG.normal(size=3),
    ],
)
def test_murmur_hash(values, positive):
    compare("MurmurHash3", [values], domain=MICROSOFT, attributes={"positive": positive, "seed": 42})


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_ngram_repeat_block(size):
    inputs = [RNG.integers(0, 3, (3, 12)).astype(np.int64), RNG.normal(size=(3, 5)).astype(np.float32)]
    compare("NGramRepeatBlock", inputs, domain=MICROSOFT, attributes={"ngram_size": size})


@pytest.mark.parametrize("wrong", [None, 0, 2])
@pytest.mark.parametrize("start", [0, 3, 7])
def test_bifurcation_detector(start, wrong):
    source = np.array([3, 1, 2, 3, 1, 0, 2, 2], np.int64)
    predicted = np.append(source[start:], 3)
    if wrong is not None:
        predicted[min(wrong, len(predicted) - 1)] += 1
    inputs = [source, np.array([1, 2], np.int64), np.array([start], np.int64)]
    compare("BifurcationDetector", [*inputs, predicted], 2, domain=MICROSOFT)
    compare("BifurcationDetector", inputs, 2, domain=MICROSOFT)


@pytest.mark.parametrize("shape", [(4, 6), (1, 7, 3), (1, 1), (1, 5)])
def test_dynamic_time_warping(shape):
    compare("DynamicTimeWarping", [RNG.normal(size=shape).astype(np.float32)], domain=MICROSOFT)
    compare("DynamicTimeWarping", [RNG.integers(0, 2, shape).astype(np.float32)], domain=MICROSOFT)


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("crop_size", [[3, 4], [1, 1]])
def test_crop_and_resize(mode, crop_size):
    boxes = np.array([[0, 0, 1, 1], [0.12, 0.2, 0.71, 0.9], [-0.2, 0.3, 1.3, 0.6], [0.83, 0.92, 0.2, 0.13]], np.float32)
    x = RNG.normal(size=(2, 3, 6, 7)).astype(np.float32)
    inputs = [x, boxes, np.array([0, 1, 1, 0], np.int32), np.array(crop_size, np.int32)]
    compare("CropAndResize", inputs, domain=MICROSOFT, attributes={"mode": mode, "extrapolation_value": 9.0})


def test_word_conv_embedding():
    words = np.array([[1, 2, 3, 0, 0], [4, 5, 0, 0, 0], [1, 2, 3, 4, 5], [3, 0, 2, 1, 1]], np.int32)
    weight, bias, characters = RNG.normal(size=(3, 1, 2, 4)), RNG.normal(size=3), RNG.normal(size=(7, 4))
    inputs = [words, *(value.astype(np.float32) for value in (weight, bias, characters))]
    compare("WordConvEmbedding", inputs, domain=MICROSOFT)
    inputs[0] = np.zeros((2, 5), np.int32)
    (empty,) = run_sdk(*make_model("WordConvEmbedding", inputs, domain=MICROSOFT, output_types=[1]))
    assert not empty.any()


def test_tokens_outside_the_vocabulary():
    kernel = ngram_repeat_block(KernelInfo("NGramRepeatBlock", 1, MICROSOFT, attributes={"ngram_size": 2}), as_namespace(np))
    with pytest.raises(InvalidArgument, match="must be in"):
        kernel(np.array([[1, 5]]), np.zeros((1, 5), np.float32))


def test_boxes_of_images_that_are_not_there():
    kernel = crop_and_resize(KernelInfo("CropAndResize", 1, MICROSOFT), as_namespace(np))
    with pytest.raises(InvalidArgument, match="X holds 1 images"):
        kernel(np.zeros((1, 1, 4, 4), np.float32), np.zeros((1, 4), np.float32), np.array([1]), np.array([2, 2]))
