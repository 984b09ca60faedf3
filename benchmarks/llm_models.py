"""The matrix products of a language model, quantized, written without ever being in memory as a whole. Need the onnx package."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np
from models import value
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

__all__ = ["FORMS", "WIDTH", "write_llm"]

FORMS = ("MatMulNBits", "DQ+MatMul")
WIDTH, QKV, INNER = 3072, 9216, 8192
"""Sizes of Phi-3-mini."""
BLOCK, BITS = 32, 4
SCALE = 0.05
ACCURACY_LEVEL = 4
"""Of the MatMulNBits nodes; the one that both libraries give those they make of DequantizeLinear."""
ALIGNMENT = 4096
OPSET, IR_VERSION = 21, 10
POOL_BYTES = 1 << 25


def write_llm(path: Path, layers: int, form: str) -> Path:
    """Layers of four products with 4-bit weights in blocks of 32; their external file lies beside the model.

    Args:
        path: the model's file.
        layers: 32 for 2.26 GB.
        form: one of ``FORMS``.
    """
    with path.with_suffix(".data").open("wb") as file:
        writer = _Writer(file, path.with_suffix(".data").name, form)
        result = "x"
        for layer in range(layers):
            result = writer.layer(result, layer)
    writer.nodes[-1].output[0] = "y"
    shape = [1, "sequence", WIDTH]
    graph = helper.make_graph(writer.nodes, "llm", [value("x", shape)], [value("y", shape)], writer.weights)
    imports = [helper.make_opsetid("", OPSET), helper.make_opsetid("com.microsoft", 1)]
    model: ModelProto = helper.make_model(graph, opset_imports=imports, ir_version=IR_VERSION)
    path.write_bytes(model.SerializeToString())
    return path


@dataclass
class _Writer:
    """Collects nodes and descriptions of weights, and writes the weights themselves."""

    file: BinaryIO
    location: str
    form: str
    nodes: list[NodeProto] = field(default_factory=list)
    weights: list[TensorProto] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(0)
        self._pool = self._rng.integers(0, 256, POOL_BYTES, np.uint8)
        for name, number in (("start", 0), ("width", WIDTH), ("inner", INNER), ("two inner", 2 * INNER), ("last", -1)):
            self.weights.append(numpy_helper.from_array(np.array([number]), name))

    def layer(self, x: str, index: int) -> str:
        """Attention's products without attention, and a gated feed-forward network."""
        prefix = f"layer{index}"
        attended = self._slice(self._product(x, f"{prefix}/qkv", WIDTH, QKV), "start", "width")
        first = self._node("Add", x, self._product(attended, f"{prefix}/o", WIDTH, WIDTH))
        both = self._product(first, f"{prefix}/gate_up", WIDTH, 2 * INNER)
        gate, up = self._slice(both, "start", "inner"), self._slice(both, "inner", "two inner")
        hidden = self._node("Mul", self._node("Sigmoid", gate), up)
        return self._node("Add", first, self._product(hidden, f"{prefix}/down", INNER, WIDTH))

    def _slice(self, x: str, start: str, stop: str) -> str:
        return self._node("Slice", x, start, stop, "last")

    def _node(self, op_type: str, *inputs: str, domain: str = "", **attributes: int) -> str:
        name = f"{op_type}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, list(inputs), [name], name=name, domain=domain, **attributes))
        return name

    def _product(self, x: str, name: str, size_k: int, size_n: int) -> str:
        blocks = size_k // BLOCK
        scales = (self._rng.random((blocks, size_n), np.float32) + np.float32(0.5)) * np.float32(SCALE / size_k**0.5)
        if self.form == "MatMulNBits":
            weight = self._random(f"{name}/weight", TensorProto.UINT8, [size_n, blocks, BLOCK * BITS // 8], size_k * size_n)
            factor = self._add(f"{name}/scales", scales.reshape(size_n, blocks))
            sizes = {"K": size_k, "N": size_n, "bits": BITS, "block_size": BLOCK, "accuracy_level": ACCURACY_LEVEL}
            return self._node("MatMulNBits", x, weight, factor, domain="com.microsoft", **sizes)
        weight = self._random(f"{name}/weight", TensorProto.INT4, [size_k, size_n], size_k * size_n)
        matrix = self._node("DequantizeLinear", weight, self._add(f"{name}/scales", scales), axis=0, block_size=BLOCK)
        return self._node("MatMul", x, matrix)

    def _random(self, name: str, element_type: int, dims: list[int], elements: int) -> str:
        """A weight of any bits, taken from a pool: making so many would take longer than all the rest."""
        nbytes = elements * BITS // 8
        offset = self._begin()
        first = int(self._rng.integers(0, POOL_BYTES))
        while nbytes:
            part = self._pool[first : first + nbytes]
            self.file.write(part.data)
            nbytes -= len(part)
            first = 0
        return self._describe(name, element_type, dims, offset)

    def _add(self, name: str, array: np.ndarray) -> str:
        offset = self._begin()
        self.file.write(array.data)
        return self._describe(name, TensorProto.FLOAT, list(array.shape), offset)

    def _begin(self) -> int:
        self.file.seek(-self.file.tell() % ALIGNMENT, 1)
        return self.file.tell()

    def _describe(self, name: str, element_type: int, dims: list[int], offset: int) -> str:
        tensor = TensorProto(name=name, data_type=element_type, dims=dims, data_location=TensorProto.EXTERNAL)
        entries = {"location": self.location, "offset": offset, "length": self.file.tell() - offset}
        for key, entry in entries.items():
            tensor.external_data.add(key=key, value=str(entry))
        self.weights.append(tensor)
        return name
