"""Decoders with a key-value cache as single operators, as exporters wrote them for years, with random weights.

Both take ``input_ids`` and a cache, ``past.key.N`` and ``past.value.N``, and give ``y`` and the cache with the tokens,
``present.key.N`` and ``present.value.N``. All need the onnx package.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from models import value
from onnx import TensorProto, helper
from transformer_models import Writer

__all__ = ["GPT_2", "TINY_DECODER", "WHISPER_BASE", "WHISPER_TINY", "ExportedShape", "gpt", "whisper"]

LOWEST = float(np.finfo(np.float32).min)
BEFORE_LAST = -2


@dataclass(frozen=True)
class ExportedShape:
    """Sizes of a decoder."""

    name: str
    layers: int
    heads: int
    size: int
    """Of a head."""
    inner: int
    words: int = 4096
    positions: int = 1024

    @property
    def width(self) -> int:
        return self.heads * self.size

    def cache(self, length: int | str) -> list[Any]:
        return [1, self.heads, length, self.size]


GPT_2 = ExportedShape("GPT-2-small", layers=12, heads=12, size=64, inner=3072)
WHISPER_TINY = ExportedShape("Whisper-tiny", layers=4, heads=6, size=64, inner=1536)
WHISPER_BASE = ExportedShape("Whisper-base", layers=6, heads=8, size=64, inner=2048)
TINY_DECODER = ExportedShape("tiny", layers=2, heads=2, size=16, inner=64, words=50)


def gpt(shape: ExportedShape) -> bytes:
    """GPT-2: the causal mask is a slice of a constant, and ``attention_mask`` is added to the scores."""
    writer = _DecoderWriter()
    x = writer.embedded(shape)
    seen = writer.node("Unsqueeze", "attention_mask", writer.constant(1, 2))
    kept = writer.node("Sub", writer.number(1), writer.node("Cast", seen, to=TensorProto.FLOAT))
    padding = writer.node("Mul", kept, writer.number(LOWEST))
    for layer in range(shape.layers):
        hidden = writer.flat_linear(writer.layer_norm(x, shape.width), shape.width, 3 * shape.width)
        parts = writer.split(hidden, 3)
        query, *own = (writer.heads(part, shape) for part in parts)
        key, value_ = writer.lengthened(own, layer)
        scores = writer.node("MatMul", query, writer.node("Transpose", key, perm=[0, 1, 3, 2]))
        scaled = writer.node("Div", scores, writer.root_of_size(value_))
        masked = writer.node("Where", writer.causal_mask(query, key, shape), scaled, writer.number(LOWEST))
        weights = writer.node("Softmax", writer.node("Add", masked, padding), axis=-1)
        merged = writer.node("Transpose", writer.node("MatMul", weights, value_), perm=[0, 2, 1, 3])
        attended = writer.flat_linear(writer.reshaped(merged, shape.width), shape.width, shape.width)
        x = writer.node("Add", attended, x)
        inner = writer.tanh_gelu(writer.flat_linear(writer.layer_norm(x, shape.width), shape.width, shape.inner))
        x = writer.node("Add", x, writer.flat_linear(inner, shape.inner, shape.width))
    return writer.decoder(x, shape, [("attention_mask", ["batch", "total"])], [])


def whisper(shape: ExportedShape) -> bytes:
    """Whisper's decoder of one token: heads are a batch of matrices; also attends an encoder's keys and values."""
    writer = _DecoderWriter()
    x = writer.embedded(shape)
    for layer in range(shape.layers):
        query, *own = writer.projected(writer.layer_norm(x, shape.width), shape, 3)
        x = writer.node("Add", x, writer.attended(query, *writer.lengthened(own, layer), shape))
        (query,) = writer.projected(writer.layer_norm(x, shape.width), shape, 1)
        x = writer.node("Add", x, writer.attended(query, f"encoder.key.{layer}", f"encoder.value.{layer}", shape))
        inner = writer.gelu(writer.linear(writer.layer_norm(x, shape.width), shape.width, shape.inner))
        x = writer.node("Add", x, writer.linear(inner, shape.inner, shape.width))
    encoder = [
        value(f"encoder.{name}.{layer}", ["batch", shape.heads, "frames", shape.size])
        for layer in range(shape.layers)
        for name in ("key", "value")
    ]
    return writer.decoder(x, shape, [], encoder)


class _DecoderWriter(Writer):
    """Adds what decoders' exports have."""

    def embedded(self, shape: ExportedShape) -> str:
        """Tokens and their positions, which go on from the cache."""
        past = self.node("Gather", self.node("Shape", "past.key.0"), self.constant(BEFORE_LAST, scalar=True), axis=0)
        tokens = self.node("Gather", self.node("Shape", "input_ids"), self.constant(1, scalar=True), axis=0)
        ids = self.node("Range", past, self.node("Add", tokens, past), self.constant(1, scalar=True))
        words = self.node("Gather", self.weight(shape.words, shape.width, scale=1.0), "input_ids")
        places = self.node("Gather", self.weight(shape.positions, shape.width, scale=1.0), ids)
        return self.node("Add", words, places)

    def flat_linear(self, x: str, rows: int, columns: int) -> str:
        """On a matrix of all tokens, whose shape is given back afterwards."""
        flat = self.node("Reshape", x, self.constant(-1, rows))
        product = self.node("Gemm", flat, self.weight(rows, columns), self.weight(columns, scale=0.02))
        sizes = [self.dimension(x, 0), self.dimension(x, 1), self.constant(columns)]
        return self.node("Reshape", product, self.node("Concat", *sizes, axis=0))

    def split(self, x: str, count: int) -> list[str]:
        names = [f"part{len(self.nodes)}.{index}" for index in range(count)]
        self.nodes.append(helper.make_node("Split", [x], names, name=names[0], axis=2))
        return names

    def heads(self, x: str, shape: ExportedShape) -> str:
        return self.node("Transpose", self.reshaped(x, shape.heads, shape.size), perm=[0, 2, 1, 3])

    def lengthened(self, own: list[str], layer: int) -> list[str]:
        """Keys and values behind those of the past."""
        names = [f"{part}.{layer}" for part in ("key", "value")]
        for name, added in zip(names, own, strict=True):
            present = f"present.{name}"
            self.nodes.append(helper.make_node("Concat", [f"past.{name}", added], [present], name=present, axis=2))
        return [f"present.{name}" for name in names]

    def root_of_size(self, x: str) -> str:
        size = self.node("Gather", self.node("Shape", x), self.constant(-1, scalar=True), axis=0)
        return self.node("Sqrt", self.node("Cast", size, to=TensorProto.FLOAT))

    def causal_mask(self, query: str, key: str, shape: ExportedShape) -> str:
        """What each query sees: rows and columns of a triangle."""
        sizes = [
            self.node("Gather", self.node("Shape", part), self.constant(BEFORE_LAST, scalar=True), axis=0)
            for part in (key, query)
        ]
        whole = np.tril(np.ones((1, 1, shape.positions, shape.positions), np.bool_))
        total, first = (self.node("Unsqueeze", size, self.constant(0)) for size in (sizes[0], self.node("Sub", *sizes)))
        rows = self.node("Slice", self.kept("triangle", whole), first, total, self.constant(2))
        return self.node("Slice", rows, self.constant(0), total, self.constant(3))

    def projected(self, x: str, shape: ExportedShape, count: int) -> list[str]:
        """Scaled queries, then keys and values."""
        query = self.node("Mul", self.linear(x, shape.width, shape.width), self.number(shape.size**-0.5))
        return [
            self.heads(part, shape) for part in (query, *(self.linear(x, shape.width, shape.width) for _ in range(count - 1)))
        ]

    def attended(self, query: str, key: str, value_: str, shape: ExportedShape) -> str:
        """Attention of matrices (batch * heads, rows, size)."""
        batch, length = self.dimension(query, 0), self.dimension(query, 2)
        target = self.node("Concat", self.constant(-1), self.dimension(query, 2), self.constant(shape.size), axis=0)
        q = self.node("Reshape", query, target)
        k, v = (self.node("Reshape", part, self._matrices(part, shape)) for part in (key, value_))
        weights = self.node("Softmax", self.node("MatMul", q, self.node("Transpose", k, perm=[0, 2, 1])), axis=-1)
        sizes = [batch, self.constant(shape.heads), length, self.constant(shape.size)]
        apart = self.node("Reshape", self.node("MatMul", weights, v), self.node("Concat", *sizes, axis=0))
        turned = self.node("Transpose", apart, perm=[0, 2, 1, 3])
        whole = self.node("Concat", batch, length, self.constant(shape.width), axis=0)
        return self.linear(self.node("Reshape", turned, whole), shape.width, shape.width)

    def _matrices(self, x: str, shape: ExportedShape) -> str:
        return self.node("Concat", self.constant(-1), self.dimension(x, 2), self.constant(shape.size), axis=0)

    def tanh_gelu(self, x: str) -> str:
        cubic = self.node("Mul", self.node("Pow", x, self.number(3)), self.number(0.044715))
        inner = self.node("Mul", self.node("Add", x, cubic), self.number((2 / np.pi) ** 0.5))
        half = self.node("Mul", x, self.number(0.5))
        return self.node("Mul", half, self.node("Add", self.node("Tanh", inner), self.number(1)))

    def decoder(self, x: str, shape: ExportedShape, integers: list[tuple[str, list[Any]]], others: list[Any]) -> bytes:
        """The model, with its last layers."""
        head = self.weight(shape.width, shape.words)
        self.nodes.append(helper.make_node("MatMul", [self.layer_norm(x, shape.width), head], ["y"], name="head"))
        given = [("input_ids", ["batch", "sequence"]), *integers]
        inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, dims) for name, dims in given]
        caches = {
            moment: [
                value(f"{moment}.{name}.{layer}", ["batch", shape.heads, f"{moment} tokens", shape.size])
                for layer in range(shape.layers)
                for name in ("key", "value")
            ]
            for moment in ("past", "present")
        }
        y = value("y", ["batch", "sequence", shape.words])
        return self.model("decoder", [*inputs, *caches["past"], *others], [y, *caches["present"]]).SerializeToString()
