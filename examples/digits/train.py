"""Train a small convolutional network on scikit-learn's handwritten digits and export it as ``digits.onnx``.

Needs numpy, scikit-learn, onnx and pillow; takes under a minute on one core. Run it from anywhere:

    python examples/digits/train.py

It rewrites ``digits.onnx`` and ``images/`` beside this file: two held-back images of each digit, the first two in
the order of the split, so none is picked for its looks.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]
Parameters = dict[str, FloatArray]

FOLDER = Path(__file__).resolve().parent
CLASSES = [str(digit) for digit in range(10)]
SEED = 0
EPOCHS = 30
BATCH_SIZE = 32
LEARNING_RATE = 2e-3
OPSET = 17
IR_VERSION = 8
IMAGE_SIZE = 64
IMAGES_PER_CLASS = 2


def load_split() -> tuple[FloatArray, FloatArray, IntArray, IntArray]:
    """Training images, held-back images (float32 ``[n, 1, 8, 8]``, 0 to 1), training labels, held-back labels."""
    images, labels = load_digits(return_X_y=True)
    scaled = (images / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    train_x, test_x, train_y, test_y = train_test_split(
        scaled, labels.astype(np.int64), test_size=0.25, stratify=labels, random_state=SEED
    )
    return train_x, test_x, train_y, test_y


def initial_parameters(rng: np.random.Generator) -> Parameters:
    """He-normal weights and zero biases, shaped as ONNX's Conv and Gemm take them."""

    def he(*shape: int) -> FloatArray:
        fan_in = int(np.prod(shape[1:]))
        return np.multiply(rng.standard_normal(shape), np.sqrt(2 / fan_in), dtype=np.float32, casting="same_kind")

    return {
        "conv1.weight": he(16, 1, 3, 3),
        "conv1.bias": np.zeros(16, np.float32),
        "conv2.weight": he(32, 16, 3, 3),
        "conv2.bias": np.zeros(32, np.float32),
        "dense.weight": he(10, 32 * 4 * 4),
        "dense.bias": np.zeros(10, np.float32),
    }


def windows(x: FloatArray) -> FloatArray:
    """View of every 3x3 neighbourhood of ``x``, zero padded: ``[n, c, h, w, 3, 3]``."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    return np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))


def conv(x: FloatArray, weight: FloatArray) -> FloatArray:
    """3x3 cross-correlation with a padding of one, as ONNX's Conv."""
    product: FloatArray = np.tensordot(windows(x), weight, ([1, 4, 5], [1, 2, 3]))
    return product.transpose(0, 3, 1, 2)


def conv_gradients(x: FloatArray, weight: FloatArray, grad: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Gradients of a convolution's input, weight and bias, given the gradient of its output."""
    grad_weight = np.tensordot(grad, windows(x), ([0, 2, 3], [0, 2, 3]))
    grad_x = conv(grad, weight[:, :, ::-1, ::-1].transpose(1, 0, 2, 3))
    return grad_x, grad_weight, grad.sum(axis=(0, 2, 3))


def max_pool(x: FloatArray) -> tuple[FloatArray, FloatArray]:
    """2x2 maxima, and the share of each input element in its maximum (ties share equally)."""
    batch, channels, height, width = x.shape
    blocks = x.reshape(batch, channels, height // 2, 2, width // 2, 2)
    pooled = blocks.max(axis=(3, 5), keepdims=True)
    chosen = (blocks == pooled).astype(np.float32)
    chosen /= chosen.sum(axis=(3, 5), keepdims=True)
    return pooled[:, :, :, 0, :, 0], chosen


def softmax(logits: FloatArray) -> FloatArray:
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    probabilities: FloatArray = exponentials / exponentials.sum(axis=1, keepdims=True)
    return probabilities


def forward(parameters: Parameters, x: FloatArray) -> tuple[FloatArray, dict[str, FloatArray]]:
    """Probabilities of a batch, and the intermediate values that the gradients need."""
    hidden1 = np.maximum(conv(x, parameters["conv1.weight"]) + parameters["conv1.bias"][:, None, None], 0)
    hidden2 = np.maximum(conv(hidden1, parameters["conv2.weight"]) + parameters["conv2.bias"][:, None, None], 0)
    pooled, chosen = max_pool(hidden2)
    flat = pooled.reshape(len(x), -1)
    probabilities = softmax(flat @ parameters["dense.weight"].T + parameters["dense.bias"])
    return probabilities, {"x": x, "hidden1": hidden1, "hidden2": hidden2, "chosen": chosen, "flat": flat}


def gradients(parameters: Parameters, x: FloatArray, labels: IntArray) -> Parameters:
    """Gradient of the mean cross-entropy of a batch for every parameter."""
    probabilities, kept = forward(parameters, x)
    grad_logits: FloatArray = (probabilities - np.eye(10, dtype=np.float32)[labels]) / np.float32(len(x))
    grad_flat = grad_logits @ parameters["dense.weight"]
    grad_hidden2 = (kept["chosen"] * grad_flat.reshape(len(x), 32, 4, 1, 4, 1)).reshape(kept["hidden2"].shape)
    grad_hidden2 *= kept["hidden2"] > 0
    grad_hidden1, grad_weight2, grad_bias2 = conv_gradients(kept["hidden1"], parameters["conv2.weight"], grad_hidden2)
    grad_hidden1 = grad_hidden1 * (kept["hidden1"] > 0)
    _, grad_weight1, grad_bias1 = conv_gradients(x, parameters["conv1.weight"], grad_hidden1)
    return {
        "conv1.weight": grad_weight1,
        "conv1.bias": grad_bias1,
        "conv2.weight": grad_weight2,
        "conv2.bias": grad_bias2,
        "dense.weight": grad_logits.T @ kept["flat"],
        "dense.bias": grad_logits.sum(axis=0),
    }


class Adam:
    """Adam (Kingma and Ba, 2015) with its usual decay rates; updates the parameters in place."""

    def __init__(self, parameters: Parameters, learning_rate: float) -> None:
        self.parameters = parameters
        self.learning_rate = learning_rate
        self.first = {name: np.zeros_like(value) for name, value in parameters.items()}
        self.second = {name: np.zeros_like(value) for name, value in parameters.items()}
        self.steps = 0

    def step(self, grads: Parameters) -> None:
        self.steps += 1
        correction = self.learning_rate * np.sqrt(1 - 0.999**self.steps) / (1 - 0.9**self.steps)
        for name, grad in grads.items():
            self.first[name] += 0.1 * (grad - self.first[name])
            self.second[name] += 0.001 * (grad * grad - self.second[name])
            self.parameters[name] -= (correction * self.first[name] / (np.sqrt(self.second[name]) + 1e-8)).astype(np.float32)


def augmented(rng: np.random.Generator, x: FloatArray) -> FloatArray:
    """The batch as other scanners and resizing filters might show it: shifted by part of a pixel, paler, noisy."""
    for axis in (2, 3):
        share = rng.uniform(0, 0.5, (len(x), 1, 1, 1))
        neighbour = np.roll(x, int(rng.choice([-1, 1])), axis)
        x = ((1 - share) * x + share * neighbour).astype(np.float32)
    ink = rng.uniform(0.8, 1.0, (len(x), 1, 1, 1))
    return np.clip(x * ink + rng.normal(0, 0.05, x.shape), 0, 1).astype(np.float32)


def train(x: FloatArray, labels: IntArray) -> Parameters:
    rng = np.random.default_rng(SEED)
    parameters = initial_parameters(rng)
    optimizer = Adam(parameters, LEARNING_RATE)
    for epoch in range(EPOCHS):
        optimizer.learning_rate = LEARNING_RATE * (1 - epoch / EPOCHS)
        order = rng.permutation(len(x))
        for start in range(0, len(x), BATCH_SIZE):
            batch = order[start : start + BATCH_SIZE]
            optimizer.step(gradients(parameters, augmented(rng, x[batch]), labels[batch]))
    return parameters


def accuracy(parameters: Parameters, x: FloatArray, labels: IntArray) -> float:
    return float((forward(parameters, x)[0].argmax(axis=1) == labels).mean())


def to_onnx(parameters: Parameters) -> onnx.ModelProto:
    """The network as an ONNX model with its weights inline."""
    conv_attributes = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    nodes = [
        helper.make_node("Conv", ["image", "conv1.weight", "conv1.bias"], ["conv1"], "conv1", **conv_attributes),
        helper.make_node("Relu", ["conv1"], ["hidden1"], "relu1"),
        helper.make_node("Conv", ["hidden1", "conv2.weight", "conv2.bias"], ["conv2"], "conv2", **conv_attributes),
        helper.make_node("Relu", ["conv2"], ["hidden2"], "relu2"),
        helper.make_node("MaxPool", ["hidden2"], ["pooled"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["pooled"], ["flat"], "flatten"),
        helper.make_node("Gemm", ["flat", "dense.weight", "dense.bias"], ["logits"], "dense", transB=1),
        helper.make_node("Softmax", ["logits"], ["probabilities"], "softmax", axis=1),
    ]
    image = helper.make_tensor_value_info(
        "image", TensorProto.FLOAT, ["batch", 1, 8, 8], "Grey picture of one digit, ink bright (1) on dark (0)"
    )
    probabilities = helper.make_tensor_value_info(
        "probabilities", TensorProto.FLOAT, ["batch", 10], "Probability of each digit; a row sums to 1"
    )
    weights = [numpy_helper.from_array(value, name) for name, value in parameters.items()]
    graph = helper.make_graph(nodes, "digits", [image], [probabilities], weights)
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="examples/digits/train.py",
        doc_string="Handwritten digits: a small convolutional network trained on 1,347 pictures of 8x8 pixels.",
    )
    helper.set_model_props(
        model,
        {
            "classes": json.dumps(CLASSES),
            "input.image": "resize to 8x8 pixels, grayscale, divide by 255; ink bright on dark; float32 [batch, 1, 8, 8]",
            "data": "Optical Recognition of Handwritten Digits, UCI Machine Learning Repository (CC BY 4.0)",
        },
    )
    onnx.checker.check_model(model, full_check=True)
    return model


def save_images(x: FloatArray, labels: IntArray, folder: Path) -> None:
    """Write the first held-back images of each digit as PNG files, enlarged so that a person can see them."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for digit in range(10):
        for letter, index in zip("abcdefghij", np.flatnonzero(labels == digit)[:IMAGES_PER_CLASS], strict=False):
            pixels = np.rint(x[index, 0] * 255).astype(np.uint8)
            image = Image.fromarray(pixels).resize((IMAGE_SIZE, IMAGE_SIZE), Image.Resampling.NEAREST)
            image.save(folder / f"digit_{digit}_{letter}.png", optimize=True)


def main() -> None:
    train_x, test_x, train_y, test_y = load_split()
    parameters = train(train_x, train_y)
    print(f"training accuracy {accuracy(parameters, train_x, train_y):.4f} on {len(train_x)} images")
    print(f"held-back accuracy {accuracy(parameters, test_x, test_y):.4f} on {len(test_x)} images")
    onnx.save(to_onnx(parameters), FOLDER / "digits.onnx")
    save_images(test_x, test_y, FOLDER / "images")


if __name__ == "__main__":
    main()
