"""Convolutional networks with real shapes and random weights. All need the onnx package; quantizing needs onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from models import as_model, value
from onnx import TensorProto, helper, numpy_helper

__all__ = ["in_float64", "mobilenet_v2", "quantized", "resnet50"]

CLASSES = 1000
RESNET50_STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))
"""Channels of the inner convolutions, blocks, stride of the first block."""
MOBILENET_STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
"""Expansion, channels, blocks, stride of the first block."""


class _Writer:
    """Collects nodes and weights; each method returns the name of its result."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def node(self, op_type: str, *inputs: str, **attributes: object) -> str:
        name = f"{op_type}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, list(inputs), [name], name=name, **attributes))
        return name

    def weight(self, array: Any) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(array, np.float32), name))
        return name

    def conv(self, x: str, channels: int, outputs: int, kernel: int, stride: int = 1, group: int = 1) -> str:
        shape = (outputs, channels // group, kernel, kernel)
        weight = self.weight(self.rng.standard_normal(shape) / np.sqrt(shape[1] * kernel * kernel))
        bias = self.weight(self.rng.standard_normal(outputs) / 10)
        attributes = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [kernel // 2] * 4, "group": group}
        return self.node("Conv", x, weight, bias, **attributes)

    def model(self, x: str, channels: int, shape: tuple[int, ...]) -> onnx.ModelProto:
        pooled = self.node("Flatten", self.node("GlobalAveragePool", x))
        weight = self.weight(self.rng.standard_normal((CLASSES, channels)) / np.sqrt(channels))
        y = self.node("Gemm", pooled, weight, self.weight(np.zeros(CLASSES)), transB=1)
        self.nodes[-1].output[0] = "y"
        del y
        graph = helper.make_graph(self.nodes, "net", [value("x", list(shape))], [value("y", [shape[0], CLASSES])], self.weights)
        return as_model(graph)


def resnet50(batch: int, size: int = 224) -> onnx.ModelProto:
    """ResNet-50 with folded batch normalization; input ``x`` is (batch, 3, size, size)."""
    writer = _Writer()
    x = writer.node("Relu", writer.conv("x", 3, 64, 7, 2))
    x = writer.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    channels = 64
    for inner, blocks, first_stride in RESNET50_STAGES:
        for block in range(blocks):
            stride = 1 if block else first_stride
            shortcut = x if block else writer.conv(x, channels, 4 * inner, 1, stride)
            y = writer.node("Relu", writer.conv(x, channels, inner, 1))
            y = writer.node("Relu", writer.conv(y, inner, inner, 3, stride))
            x = writer.node("Relu", writer.node("Add", writer.conv(y, inner, 4 * inner, 1), shortcut))
            channels = 4 * inner
    return writer.model(x, channels, (batch, 3, size, size))


def mobilenet_v2(batch: int, size: int = 224) -> onnx.ModelProto:
    """MobileNetV2 with folded batch normalization; input ``x`` is (batch, 3, size, size)."""
    writer = _Writer()
    low, high = writer.weight(np.float32(0)), writer.weight(np.float32(6))
    x = writer.node("Clip", writer.conv("x", 3, 32, 3, 2), low, high)
    channels = 32
    for expansion, outputs, blocks, first_stride in MOBILENET_STAGES:
        for block in range(blocks):
            stride, inner, y = 1 if block else first_stride, channels * expansion, x
            if expansion > 1:
                y = writer.node("Clip", writer.conv(y, channels, inner, 1), low, high)
            y = writer.node("Clip", writer.conv(y, inner, inner, 3, stride, group=inner), low, high)
            y = writer.conv(y, inner, outputs, 1)
            x = writer.node("Add", x, y) if block else y
            channels = outputs
    x = writer.node("Clip", writer.conv(x, channels, 1280, 1), low, high)
    return writer.model(x, 1280, (batch, 3, size, size))


def quantized(model: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    """The model with QuantizeLinear and DequantizeLinear around its operators: uint8 activations, int8 weights per channel."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    shape = [dimension.dim_value for dimension in model.graph.input[0].type.tensor_type.shape.dim]

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.rows = iter([np.random.default_rng(seed).standard_normal(shape).astype(np.float32) for seed in range(2)])

        def get_next(self) -> dict[str, Any] | None:
            row = next(self.rows, None)
            return None if row is None else {"x": row}

    target = folder / "quantized.onnx"
    types = {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8}
    quantize_static(model, target, Reader(), quant_format=QuantFormat.QDQ, per_channel=True, **types)
    return onnx.load(target)


def in_float64(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same network computed in double precision."""
    double = onnx.ModelProto()
    double.CopyFrom(model)
    for argument in (*double.graph.input, *double.graph.output):
        argument.type.tensor_type.elem_type = TensorProto.DOUBLE
    weights = [numpy_helper.to_array(weight) for weight in double.graph.initializer]
    names = [weight.name for weight in double.graph.initializer]
    del double.graph.initializer[:]
    for name, array in zip(names, weights, strict=True):
        wide = array.astype(np.float64) if array.dtype == np.float32 else array
        double.graph.initializer.append(numpy_helper.from_array(wide, name))
    return double
