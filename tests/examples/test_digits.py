"""The handwritten digits example: the shipped model on the shipped images, against onnxruntime."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from PIL import Image

import ort_sdk as ort

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "digits"
MODEL = FOLDER / "digits.onnx"
IMAGES = sorted((FOLDER / "images").glob("digit_*_*.png"))
TOLERANCE = {"rtol": 1e-5, "atol": 1e-6}


def label_of(image: Path) -> int:
    return int(image.stem.split("_")[1])


def image_of(image: Path, resampling=Image.Resampling.BICUBIC) -> np.ndarray:
    """float32 ``[1, 1, 8, 8]``, 0 to 1, as the model's metadata asks."""
    small = Image.open(image).convert("L").resize((8, 8), resampling)
    return np.asarray(small, np.float32).reshape(1, 1, 8, 8) / 255


@pytest.fixture(scope="module")
def session():
    return ort.InferenceSession(str(MODEL), providers=["CPUExecutionProvider"])


@pytest.fixture(scope="module")
def oracle():
    return onnxruntime.InferenceSession(str(MODEL), providers=["CPUExecutionProvider"])


@pytest.fixture(scope="module")
def training():
    """The module ``train.py``."""
    specification = importlib.util.spec_from_file_location("digits_train", FOLDER / "train.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_twenty_images_two_of_each_digit():
    assert sorted(label_of(image) for image in IMAGES) == sorted(list(range(10)) * 2)
    assert MODEL.stat().st_size < 200_000


@pytest.mark.parametrize("image", IMAGES, ids=lambda image: image.stem)
def test_image_is_read_as_onnxruntime_reads_it(session, oracle, image):
    feeds = {"image": image_of(image)}
    (found,) = session.run(["probabilities"], feeds)
    (expected,) = oracle.run(["probabilities"], feeds)
    assert found.dtype == np.float32
    assert found.shape == (1, 10)
    np.testing.assert_allclose(found, expected, **TOLERANCE)
    assert found.argmax() == label_of(image)


@pytest.mark.parametrize("resampling", Image.Resampling, ids=lambda filter_: filter_.name)
def test_any_resizing_filter_reads_the_images(session, resampling):
    images = np.concatenate([image_of(image, resampling) for image in IMAGES])
    (found,) = session.run(None, {"image": images})
    right = found.argmax(axis=1) == [label_of(image) for image in IMAGES]
    assert right.sum() >= 19


@pytest.mark.parametrize("batch", [0, 1, 3, 20])
def test_batch_gives_what_single_images_give(session, batch):
    images = np.concatenate([image_of(image) for image in IMAGES])[:batch]
    (found,) = session.run(None, {"image": images})
    assert found.shape == (batch, 10)
    singles = [session.run(None, {"image": image[None]})[0] for image in images]
    np.testing.assert_allclose(found, np.concatenate([np.empty((0, 10), np.float32), *singles]), **TOLERANCE)


def test_held_back_accuracy_is_what_the_page_says(session, oracle, training):
    _, images, _, labels = training.load_split()
    (found,) = session.run(None, {"image": images})
    np.testing.assert_allclose(found, oracle.run(None, {"image": images})[0], **TOLERANCE)
    right = int((found.argmax(axis=1) == labels).sum())
    assert f"{right} of {len(labels)} held-back images" in (FOLDER / "README.md").read_text(encoding="utf-8")
    assert right / len(labels) >= 0.97


def test_gradients_are_those_of_the_loss(training):
    """Against central differences in float64."""
    rng = np.random.default_rng(7)
    parameters = {name: value.astype(np.float64) for name, value in training.initial_parameters(rng).items()}
    images, labels = rng.uniform(size=(4, 1, 8, 8)), np.array([3, 1, 4, 1])

    def loss():
        return -np.log(training.forward(parameters, images)[0][np.arange(4), labels]).mean()

    found = training.gradients(parameters, images, labels)
    for name, value in parameters.items():
        index = tuple(rng.integers(value.shape))
        kept, step = value[index], 1e-6
        value[index] = kept + step
        above = loss()
        value[index] = kept - step
        below = loss()
        value[index] = kept
        np.testing.assert_allclose(found[name][index], (above - below) / (2 * step), rtol=1e-4, atol=1e-7)


def test_metadata_names_classes_and_input(session):
    metadata = session.get_modelmeta().custom_metadata_map
    assert json.loads(metadata["classes"]) == [str(digit) for digit in range(10)]
    assert "divide by 255" in metadata["input.image"]
