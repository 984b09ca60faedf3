"""Nodes and layers of decoders with a key-value cache, as exporters write them. All need the onnx package."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["SHAPES", "DecoderShape", "attention", "chain", "cross", "group", "layers", "multi_head"]

POSITIONS = 4096
OPSET, IR_VERSION = 23, 11
MICROSOFT = "com.microsoft"
BLOCK = 32
CAUSAL_STEPS = 3
FLOAT, INT32, INT64 = TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64


@dataclass(frozen=True)
class DecoderShape:
    """Sizes of a decoder."""

    name: str
    heads: int
    key_heads: int
    size: int
    """Of a head."""
    inner: int

    @property
    def width(self) -> int:
        return self.heads * self.size

    @property
    def key_width(self) -> int:
        return self.key_heads * self.size

    def cache(self, length: int | str) -> list[Any]:
        return [1, self.key_heads, length, self.size]


PHI = DecoderShape("Phi-3-mini", 32, 32, 96, 8192)
LLAMA = DecoderShape("Llama-3.2-1B", 32, 8, 64, 8192)
QWEN = DecoderShape("Qwen2-0.5B", 14, 2, 64, 4864)
WHISPER = DecoderShape("Whisper-base", 8, 8, 64, 2048)
TINY = DecoderShape("tiny", 4, 2, 16, 64)
SHAPES = {shape.name: shape for shape in (PHI, LLAMA, QWEN, WHISPER, TINY)}


@dataclass
class _Writer:
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: list[onnx.TensorProto] = field(default_factory=list)
    inputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    outputs: list[onnx.ValueInfoProto] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(0)

    def node(self, op_type: str, *inputs: str, outputs: list[str] | None = None, domain: str = "", **attributes: Any) -> str:
        names = outputs or [f"{op_type}_{len(self.nodes)}"]
        self.nodes.append(helper.make_node(op_type, list(inputs), names, name=names[0], domain=domain, **attributes))
        return names[0]

    def constant(self, name: str, array: Any) -> str:
        if all(tensor.name != name for tensor in self.weights):
            self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def weight(self, *shape: int) -> str:
        return self.constant(f"w{len(self.weights)}", self.rng.standard_normal(shape, np.float32) * np.float32(shape[0] ** -0.5))

    def given(self, name: str, shape: list[Any], element_type: int = FLOAT) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, element_type, shape))
        return name

    def result(self, name: str, shape: list[Any]) -> str:
        self.outputs.append(helper.make_tensor_value_info(name, FLOAT, shape))
        return name

    def past(self, shape: DecoderShape, layer: int = 0) -> tuple[list[str], list[str]]:
        """Names of a cache's inputs and outputs."""
        names = [f"{kind}.{layer}" for kind in ("key", "value")]
        given = [self.given(f"past.{name}", shape.cache("past")) for name in names]
        return given, [self.result(f"present.{name}", shape.cache("total")) for name in names]

    def rotary(self, shape: DecoderShape) -> tuple[str, str]:
        angles = np.outer(np.arange(POSITIONS), 1 / 10000 ** (np.arange(shape.size // 2) / shape.size * 2))
        return self.constant("cos", np.cos(angles).astype(np.float32)), self.constant("sin", np.sin(angles).astype(np.float32))

    def bytes(self) -> bytes:
        graph = helper.make_graph(self.nodes, "decoder", self.inputs, self.outputs, self.weights)
        domains = [helper.make_opsetid("", OPSET), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=domains, ir_version=IR_VERSION).SerializeToString()

    def projections(self, shape: DecoderShape) -> list[str]:
        widths = {"query": shape.width, "key": shape.key_width, "value": shape.key_width}
        return [self.given(name, [1, "sequence", width]) for name, width in widths.items()]


def group(shape: DecoderShape) -> bytes:
    """GroupQueryAttention with rotary embedding."""
    writer = _Writer()
    parts = writer.projections(shape)
    past, present = writer.past(shape)
    lengths = [writer.given("seqlens_k", [1], INT32), writer.given("total_sequence_length", [1], INT32)]
    y = writer.result("y", [1, "sequence", shape.width])
    heads = {"num_heads": shape.heads, "kv_num_heads": shape.key_heads, "do_rotary": 1}
    names = [*parts, *past, *lengths, *writer.rotary(shape)]
    writer.node("GroupQueryAttention", *names, outputs=[y, *present], domain=MICROSOFT, **heads)
    return writer.bytes()


def attention(shape: DecoderShape) -> bytes:
    """Attention of ONNX."""
    writer = _Writer()
    parts = writer.projections(shape)
    past, present = writer.past(shape)
    y = writer.result("y", [1, "sequence", shape.width])
    heads = {"q_num_heads": shape.heads, "kv_num_heads": shape.key_heads, "is_causal": 1}
    writer.node("Attention", *parts, "", *past, outputs=[y, *present], **heads)
    return writer.bytes()


def multi_head(shape: DecoderShape) -> bytes:
    """MultiHeadAttention with a cache."""
    writer = _Writer()
    parts = writer.projections(shape)
    past, present = writer.past(shape)
    y = writer.result("y", [1, "sequence", shape.width])
    heads = {"num_heads": shape.heads, "unidirectional": 1}
    writer.node("MultiHeadAttention", *parts, "", "", "", *past, outputs=[y, *present], domain=MICROSOFT, **heads)
    return writer.bytes()


def cross(shape: DecoderShape) -> bytes:
    """MultiHeadAttention over an encoder's keys and values."""
    writer = _Writer()
    query = writer.given("query", [1, "sequence", shape.width])
    names = [writer.given(name, shape.cache("past")) for name in ("past.key.0", "past.value.0")]
    y = writer.result("y", [1, "sequence", shape.width])
    writer.node("MultiHeadAttention", query, *names, outputs=[y], domain=MICROSOFT, num_heads=shape.heads)
    return writer.bytes()


def chain(shape: DecoderShape) -> bytes:
    """Attention over a cache as single operators."""
    writer = _Writer()
    node, constant = writer.node, writer.constant
    split = constant("split", np.array([0, 0, shape.heads, shape.size]))
    heads = [
        node("Transpose", node("Reshape", part, split), perm=[0, 2, 1, 3])
        for part in (writer.given(name, [1, "sequence", shape.width]) for name in ("query", "key", "value"))
    ]
    past, present = writer.past(shape)
    for old, new, whole in zip(past, heads[1:], present, strict=True):
        node("Concat", old, new, axis=2, outputs=[whole])
    scores = node("MatMul", heads[0], node("Transpose", present[0], perm=[0, 1, 3, 2]))
    scaled = node("Div", scores, constant("root", np.float32(shape.size**0.5)))
    mixed = node("MatMul", node("Softmax", scaled, axis=-1), present[1])
    merged = constant("merged", np.array([0, 0, shape.width]))
    y = writer.result("y", [1, "sequence", shape.width])
    node("Reshape", node("Transpose", mixed, perm=[0, 2, 1, 3]), merged, outputs=[y])
    return writer.bytes()


def layers(shape: DecoderShape, count: int) -> bytes:
    """Layers of a decoder with 4-bit weights: attention with packed projections, and a gated feed-forward network."""
    writer = _Writer()
    node = writer.node
    x = writer.given("x", [1, "sequence", shape.width])
    mask = writer.given("attention_mask", [1, "total"], INT64)
    total = node("Cast", node("Gather", node("Shape", mask), writer.constant("one", np.int64(1))), to=INT32)
    last = node("Sub", node("ReduceSum", mask, writer.constant("axes", np.array([1])), keepdims=0), "one")
    lengths = [node("Cast", last, to=INT32), total]
    skip = x
    hidden = node("SimplifiedLayerNormalization", x, writer.constant("scale", np.ones(shape.width, np.float32)), axis=-1)
    for layer in range(count):
        past, present = writer.past(shape, layer)
        packed = _product(writer, hidden, shape.width, shape.width + 2 * shape.key_width)
        heads = {"num_heads": shape.heads, "kv_num_heads": shape.key_heads, "do_rotary": 1}
        names = [packed, "", "", *past, *lengths, *writer.rotary(shape)]
        attended = node("GroupQueryAttention", *names, outputs=[f"y{layer}", *present], domain=MICROSOFT, **heads)
        hidden, skip = _normalized(writer, _product(writer, attended, shape.width, shape.width), skip)
        gate, up = (_product(writer, hidden, shape.width, shape.inner) for _ in range(2))
        active = node("Mul", node("Mul", gate, node("Sigmoid", gate)), up)
        hidden, skip = _normalized(writer, _product(writer, active, shape.inner, shape.width), skip)
    node("Identity", hidden, outputs=[writer.result("y", [1, "sequence", shape.width])])
    return writer.bytes()


def _normalized(writer: _Writer, x: str, skip: str) -> tuple[str, str]:
    """The normalised sum, and the sum."""
    name = f"norm{len(writer.nodes)}"
    writer.node("SkipSimplifiedLayerNormalization", x, skip, "scale", outputs=[name, "", "", f"{name}.sum"], domain=MICROSOFT)
    return name, f"{name}.sum"


def _product(writer: _Writer, x: str, size_k: int, size_n: int) -> str:
    blocks, name = -(-size_k // BLOCK), f"w{len(writer.weights)}"
    codes = writer.rng.integers(0, 256, (size_n, blocks, BLOCK // 2), np.uint8)
    scales = (writer.rng.random((size_n, blocks), np.float32) + np.float32(0.5)) * np.float32(0.2 / size_k**0.5)
    sizes = {"K": size_k, "N": size_n, "bits": 4, "block_size": BLOCK, "accuracy_level": 4}
    names = [writer.constant(name, codes), writer.constant(f"{name}.scales", scales)]
    return writer.node("MatMulNBits", x, *names, domain=MICROSOFT, **sizes)
