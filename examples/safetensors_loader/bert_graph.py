"""The graph of a BERT encoder with mean pooling, made from its ``config.json``; the weights stay in their file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["sentence_encoder"]

OPSET = 17


def sentence_encoder(config: Mapping[str, Any], location: str) -> onnx.ModelProto:
    """Model with inputs ``input_ids`` and ``attention_mask`` (int64 [batch, length]) and output ``embedding`` (unit vectors).

    Args:
        config: Hugging Face's ``config.json`` of a BertModel.
        location: file with the weights, under their names in Hugging Face's module.
    """
    return _Encoder(config, location).model()


class _Encoder:
    def __init__(self, config: Mapping[str, Any], location: str) -> None:
        self._config = config
        self._location = location
        self._hidden = int(config["hidden_size"])
        self._heads = int(config["num_attention_heads"])
        self._nodes: list[onnx.NodeProto] = []
        self._initializers: dict[str, TensorProto] = {}

    def model(self) -> onnx.ModelProto:
        tokens = self._embeddings()
        bias = self._mask_bias()
        for layer in range(self._config["num_hidden_layers"]):
            tokens = self._layer(tokens, bias, f"encoder.layer.{layer}")
        self._pool(tokens)
        graph = helper.make_graph(
            self._nodes,
            "sentence_encoder",
            [
                helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "length"])
                for name in ("input_ids", "attention_mask")
            ],
            [helper.make_tensor_value_info("embedding", TensorProto.FLOAT, ["batch", self._hidden])],
            list(self._initializers.values()),
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)

    def _embeddings(self) -> str:
        config = self._config
        words = self._weight("embeddings.word_embeddings.weight", config["vocab_size"], self._hidden)
        places = self._weight("embeddings.position_embeddings.weight", config["max_position_embeddings"], self._hidden)
        kinds = self._weight("embeddings.token_type_embeddings.weight", config["type_vocab_size"], self._hidden)
        length = self._node("Gather", [self._node("Shape", ["input_ids"]), self._constant([1])])
        here = self._node("Slice", [places, self._constant([0]), length, self._constant([0])])
        total = self._node("Add", [self._node("Gather", [words, "input_ids"]), here])
        total = self._node("Add", [total, self._node("Gather", [kinds, self._constant(0)])])
        return self._normalized(total, "embeddings.LayerNorm")

    def _mask_bias(self) -> str:
        """Large negative numbers where there is no token, [batch, 1, 1, length]."""
        mask = self._node("Cast", ["attention_mask"], to=TensorProto.FLOAT)
        mask = self._node("Unsqueeze", [mask, self._constant([1, 2])])
        return self._node("Mul", [self._node("Sub", [self._scalar(1), mask]), self._scalar(-1e9)])

    def _layer(self, tokens: str, bias: str, name: str) -> str:
        heads = [self._split(self._linear(tokens, f"{name}.attention.self.{part}")) for part in ("query", "key", "value")]
        query, key, value = heads
        scores = self._node("MatMul", [query, self._node("Transpose", [key], perm=[0, 1, 3, 2])])
        scores = self._node("Mul", [scores, self._scalar((self._hidden // self._heads) ** -0.5)])
        weights = self._node("Softmax", [self._node("Add", [scores, bias])], axis=-1)
        mixed = self._node("Transpose", [self._node("MatMul", [weights, value])], perm=[0, 2, 1, 3])
        mixed = self._node("Reshape", [mixed, self._constant([0, 0, self._hidden])])
        mixed = self._linear(mixed, f"{name}.attention.output.dense")
        tokens = self._normalized(self._node("Add", [mixed, tokens]), f"{name}.attention.output.LayerNorm")
        inner = self._gelu(self._linear(tokens, f"{name}.intermediate.dense", self._config["intermediate_size"]))
        outer = self._linear(inner, f"{name}.output.dense", self._hidden, self._config["intermediate_size"])
        return self._normalized(self._node("Add", [outer, tokens]), f"{name}.output.LayerNorm")

    def _pool(self, tokens: str) -> None:
        """Mean over the tokens that are there, scaled to length one."""
        mask = self._node("Unsqueeze", [self._node("Cast", ["attention_mask"], to=TensorProto.FLOAT), self._constant([2])])
        total = self._node("ReduceSum", [self._node("Mul", [tokens, mask]), self._constant([1])], keepdims=0)
        count = self._node("ReduceSum", [mask, self._constant([1])], keepdims=0)
        self._node("LpNormalization", [self._node("Div", [total, count])], output="embedding", axis=-1, p=2)

    def _linear(self, value: str, name: str, outputs: int = 0, inputs: int = 0) -> str:
        outputs, inputs = outputs or self._hidden, inputs or self._hidden
        weight = self._node("Transpose", [self._weight(f"{name}.weight", outputs, inputs)], perm=[1, 0])
        return self._node("Add", [self._node("MatMul", [value, weight]), self._weight(f"{name}.bias", outputs)])

    def _split(self, value: str) -> str:
        """[batch, length, hidden] → [batch, heads, length, size]."""
        shape = self._constant([0, 0, self._heads, self._hidden // self._heads])
        return self._node("Transpose", [self._node("Reshape", [value, shape])], perm=[0, 2, 1, 3])

    def _normalized(self, value: str, name: str) -> str:
        scale, shift = self._weight(f"{name}.weight", self._hidden), self._weight(f"{name}.bias", self._hidden)
        return self._node("LayerNormalization", [value, scale, shift], axis=-1, epsilon=self._config["layer_norm_eps"])

    def _gelu(self, value: str) -> str:
        half = self._node("Erf", [self._node("Mul", [value, self._scalar(0.5**0.5)])])
        return self._node("Mul", [self._node("Mul", [value, self._scalar(0.5)]), self._node("Add", [half, self._scalar(1)])])

    def _weight(self, name: str, *shape: int) -> str:
        tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=shape, data_location=TensorProto.EXTERNAL)
        tensor.external_data.add(key="location", value=self._location)
        self._initializers[name] = tensor
        return name

    def _constant(self, value: int | Sequence[int]) -> str:
        return self._array(np.array(value, np.int64))

    def _scalar(self, value: float) -> str:
        return self._array(np.array(value, np.float32))

    def _array(self, array: np.ndarray[Any, Any]) -> str:
        name = f"{array.dtype}{array.tolist()}"
        self._initializers[name] = numpy_helper.from_array(array, name)
        return name

    def _node(self, op_type: str, inputs: Sequence[str], output: str = "", **attributes: Any) -> str:
        output = output or f"{op_type}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(op_type, inputs, [output], name=output, **attributes))
        return output
