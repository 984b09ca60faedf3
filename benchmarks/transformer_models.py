"""Transformers and recurrent models as exporters write them, with random weights. All need the onnx package."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
from models import as_model, value
from onnx import TensorProto, helper, numpy_helper

__all__ = ["BERT_BASE", "MINILM", "EncoderShape", "Writer", "decoder", "encoder", "recurrent", "voice_activity"]


@dataclass(frozen=True)
class EncoderShape:
    """Sizes of a BERT-like encoder."""

    layers: int
    heads: int
    size: int
    """Of a head."""
    inner: int
    words: int = 2000
    positions: int = 512

    @property
    def width(self) -> int:
        return self.heads * self.size


BERT_BASE = EncoderShape(layers=12, heads=12, size=64, inner=3072)
MINILM = EncoderShape(layers=6, heads=12, size=32, inner=1536)


class Writer:
    """Collects nodes and weights; each method adds the nodes an exporter writes for it and returns the result's name."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, onnx.TensorProto] = {}

    def node(self, op_type: str, *inputs: str, **attributes: object) -> str:
        name = f"{op_type}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, list(inputs), [name], name=name, **attributes))
        return name

    def constant(self, *elements: float, dtype: type = np.int64, scalar: bool = False) -> str:
        array = np.array(elements[0] if scalar else elements, dtype)
        name = f"c{array.tolist()}{array.dtype}"
        self.weights[name] = numpy_helper.from_array(array, name)
        return name

    def kept(self, name: str, array: np.ndarray) -> str:
        """A constant that nodes share."""
        self.weights[name] = numpy_helper.from_array(array, name)
        return name

    def number(self, element: float) -> str:
        return self.constant(element, dtype=np.float32, scalar=True)

    def weight(self, *shape: int, scale: float | None = None, offset: float = 0.0) -> str:
        name = f"w{len(self.weights)}"
        factor = shape[-2] ** -0.5 if scale is None else scale
        array = self.rng.standard_normal(shape, np.float32) * np.float32(factor) + np.float32(offset)
        self.weights[name] = numpy_helper.from_array(array, name)
        return name

    def linear(self, x: str, rows: int, columns: int) -> str:
        product = self.node("MatMul", x, self.weight(rows, columns))
        return self.node("Add", self.weight(columns, scale=0.02), product)

    def layer_norm(self, x: str, width: int) -> str:
        """As exported before opset 17."""
        centred = self.node("Sub", x, self.node("ReduceMean", x, axes=[-1]))
        variance = self.node("ReduceMean", self.node("Pow", centred, self.number(2)), axes=[-1])
        deviation = self.node("Sqrt", self.node("Add", variance, self.number(1e-12)))
        scaled = self.node("Mul", self.node("Div", centred, deviation), self.weight(width, scale=0.1, offset=1.0))
        return self.node("Add", scaled, self.weight(width, scale=0.1))

    def gelu(self, x: str) -> str:
        error = self.node("Erf", self.node("Div", x, self.number(2**0.5)))
        return self.node("Mul", self.node("Mul", x, self.node("Add", error, self.number(1))), self.number(0.5))

    def dimension(self, x: str, axis: int) -> str:
        size = self.node("Gather", self.node("Shape", x), self.constant(axis, scalar=True), axis=0)
        return self.node("Unsqueeze", size, self.constant(0))

    def reshaped(self, x: str, *sizes: int) -> str:
        """Keeps the first two axes, whatever their sizes."""
        tail = [self.constant(size) for size in sizes]
        return self.node("Reshape", x, self.node("Concat", self.dimension(x, 0), self.dimension(x, 1), *tail, axis=0))

    def attention(self, x: str, mask: str, shape: EncoderShape) -> str:
        def heads(perm: list[int]) -> str:
            split = self.reshaped(self.linear(x, shape.width, shape.width), shape.heads, shape.size)
            return self.node("Transpose", split, perm=perm)

        query, key, value_ = heads([0, 2, 1, 3]), heads([0, 2, 3, 1]), heads([0, 2, 1, 3])
        scores = self.node("Div", self.node("MatMul", query, key), self.number(shape.size**0.5))
        weights = self.node("Softmax", self.node("Add", scores, mask), axis=-1)
        merged = self.node("Transpose", self.node("MatMul", weights, value_), perm=[0, 2, 1, 3])
        return self.linear(self.reshaped(merged, shape.width), shape.width, shape.width)

    def attention_to_past(self, x: str, mask: str, layer: int, shape: EncoderShape) -> str:
        """Attention to a cache that this layer lengthens: past_key_N and past_value_N to present_key_N and present_value_N."""

        def heads() -> str:
            split = self.reshaped(self.linear(x, shape.width, shape.width), shape.heads, shape.size)
            return self.node("Transpose", split, perm=[0, 2, 1, 3])

        query, *own = heads(), heads(), heads()
        presents = [f"present_{name}_{layer}" for name in ("key", "value")]
        for name, added, present in zip(("key", "value"), own, presents, strict=True):
            self.nodes.append(helper.make_node("Concat", [f"past_{name}_{layer}", added], [present], name=present, axis=2))
        key = self.node("Transpose", presents[0], perm=[0, 1, 3, 2])
        scores = self.node("Div", self.node("MatMul", query, key), self.number(shape.size**0.5))
        weights = self.node("Softmax", self.node("Add", scores, mask), axis=-1)
        merged = self.node("Transpose", self.node("MatMul", weights, presents[1]), perm=[0, 2, 1, 3])
        return self.linear(self.reshaped(merged, shape.width), shape.width, shape.width)

    def embeddings(self, shape: EncoderShape) -> str:
        words = self.node("Gather", self.weight(shape.words, shape.width, scale=1.0), "input_ids")
        types = self.node("Gather", self.weight(2, shape.width, scale=1.0), "token_type_ids")
        ends = self.dimension("input_ids", 1)
        counted = self.node(
            "Slice", self.weight(1, shape.positions, shape.width, scale=1.0), self.constant(0), ends, self.constant(1)
        )
        return self.layer_norm(self.node("Add", self.node("Add", words, types), counted), shape.width)

    def model(self, name: str, inputs: list[onnx.ValueInfoProto], outputs: list[onnx.ValueInfoProto]) -> onnx.ModelProto:
        return as_model(helper.make_graph(self.nodes, name, inputs, outputs, list(self.weights.values())))


def encoder(shape: EncoderShape) -> onnx.ModelProto:
    """A BERT-like encoder of any batch and sequence: input_ids, attention_mask, token_type_ids to last_hidden_state."""
    writer = Writer()
    seen = writer.node("Unsqueeze", "attention_mask", writer.constant(1, 2))
    kept = writer.node("Sub", writer.number(1), writer.node("Cast", seen, to=TensorProto.FLOAT))
    mask = writer.node("Mul", kept, writer.number(-10000.0))
    x = writer.embeddings(shape)
    for _ in range(shape.layers):
        x = writer.layer_norm(writer.node("Add", writer.attention(x, mask, shape), x), shape.width)
        inner = writer.gelu(writer.linear(x, shape.width, shape.inner))
        x = writer.layer_norm(writer.node("Add", writer.linear(inner, shape.inner, shape.width), x), shape.width)
    writer.nodes.append(helper.make_node("Identity", [x], ["last_hidden_state"], name="last"))
    names = ("input_ids", "attention_mask", "token_type_ids")
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "sequence"]) for name in names]
    return writer.model("encoder", inputs, [value("last_hidden_state", ["batch", "sequence", shape.width])])


def decoder(shape: EncoderShape) -> onnx.ModelProto:
    """A decoder of one token after a cache: input_ids, attention_mask and the cache to logits and the longer cache."""
    writer = Writer()
    seen = writer.node("Unsqueeze", "attention_mask", writer.constant(1, 2))
    kept = writer.node("Sub", writer.number(1), writer.node("Cast", seen, to=TensorProto.FLOAT))
    mask = writer.node("Mul", kept, writer.number(-10000.0))
    x = writer.node("Gather", writer.weight(shape.words, shape.width, scale=1.0), "input_ids")
    for layer in range(shape.layers):
        attended = writer.attention_to_past(writer.layer_norm(x, shape.width), mask, layer, shape)
        x = writer.node("Add", attended, x)
        inner = writer.gelu(writer.linear(writer.layer_norm(x, shape.width), shape.width, shape.inner))
        x = writer.node("Add", writer.linear(inner, shape.inner, shape.width), x)
    head = writer.weight(shape.width, shape.words)
    writer.nodes.append(helper.make_node("MatMul", [writer.layer_norm(x, shape.width), head], ["logits"], name="logits"))
    integers = (("input_ids", ["batch", "sequence"]), ("attention_mask", ["batch", "total"]))
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, dims) for name, dims in integers]
    caches = {
        moment: [
            value(f"{moment}_{name}_{layer}", ["batch", shape.heads, f"{moment} sequence", shape.size])
            for layer in range(shape.layers)
            for name in ("key", "value")
        ]
        for moment in ("past", "present")
    }
    logits = value("logits", ["batch", "sequence", shape.words])
    return writer.model("decoder", [*inputs, *caches["past"]], [logits, *caches["present"]])


def recurrent(op_type: str, *, steps: int = 100, hidden: int = 512, layers: int = 2) -> onnx.ModelProto:
    """Layers of LSTM or GRU over a sequence ``x`` of (steps, 1, hidden)."""
    gates = {"LSTM": 4, "GRU": 3}[op_type] * hidden
    writer, current = Writer(), "x"
    for _ in range(layers):
        scale = hidden**-0.5
        weights = [writer.weight(1, gates, hidden, scale=scale) for _ in range(2)]
        bias = writer.weight(1, 2 * gates, scale=scale)
        extra = {"linear_before_reset": 1} if op_type == "GRU" else {}
        sequence = writer.node(op_type, current, *weights, bias, hidden_size=hidden, **extra)
        current = writer.node("Squeeze", sequence, writer.constant(1))
    writer.nodes.append(helper.make_node("Identity", [current], ["y"], name="last"))
    return writer.model(op_type, [value("x", [steps, 1, hidden])], [value("y", [steps, 1, hidden])])


def voice_activity() -> onnx.ModelProto:
    """A detector of speech in 512 samples: Fourier transform as a convolution, four convolutions, LSTM of 128, one number."""
    writer = Writer()
    transform = writer.node(
        "Conv", "x", writer.weight(258, 1, 256, scale=1 / 16), strides=[128], pads=[64, 64], kernel_shape=[256]
    )
    bounds = [writer.constant(bound) for bound in (0, 129, 258)]
    halves = [writer.node("Slice", transform, *bounds[index : index + 2], writer.constant(1)) for index in range(2)]
    current = writer.node("Sqrt", writer.node("Add", *(writer.node("Mul", half, half) for half in halves)))
    channels = (129, 128, 64, 64, 128)
    for index, stride in enumerate((1, 2, 2, 1)):
        inputs, outputs = channels[index : index + 2]
        kernel = writer.weight(outputs, inputs, 3, scale=(3 * inputs) ** -0.5)
        bias = writer.weight(outputs, scale=0.1)
        conv = writer.node("Conv", current, kernel, bias, strides=[stride], pads=[1, 1], kernel_shape=[3])
        current = writer.node("Relu", conv)
    sequence = writer.node("Transpose", current, perm=[2, 0, 1])
    weights = [writer.weight(1, 512, 128, scale=128**-0.5) for _ in range(2)]
    bias = writer.weight(1, 1024, scale=0.1)
    lstm = helper.make_node("LSTM", [sequence, *weights, bias, "", "h", "c"], ["", "h1", "c1"], name="lstm", hidden_size=128)
    writer.nodes.append(lstm)
    features = writer.node("Relu", writer.node("Squeeze", "h1", writer.constant(0)))
    logit = writer.node("Gemm", features, writer.weight(1, 128, scale=128**-0.5), writer.weight(1, scale=0.1), transB=1)
    writer.nodes.append(helper.make_node("Sigmoid", [logit], ["y"], name="speech"))
    states = [value(name, [1, 1, 128]) for name in ("h", "c")]
    outputs = [value("y", [1, 1]), value("h1", [1, 1, 128]), value("c1", [1, 1, 128])]
    return writer.model("voice_activity", [value("x", [1, 1, 512]), *states], outputs)
