"""The models that time, memory and creation of sessions are measured with, and inputs for them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

LAYERS = 32
"""Of the language model."""
DTYPES = {"tensor(float)": np.float32, "tensor(int64)": np.int64}


def models(layers: int = LAYERS) -> dict[str, Callable[[Path], Path]]:
    """Name → writes the model into a folder."""
    import llm_models
    import models
    import transformer_models as transformers
    import vision_models as vision

    small = transformers.EncoderShape(layers=4, heads=4, size=32, inner=512)

    def saved(make: Callable[[Path], Any]) -> Callable[[Path], Path]:
        return lambda folder: models.save(make(folder), folder / "model.onnx")

    def llm(form: str) -> Callable[[Path], Path]:
        return lambda folder: llm_models.write_llm(folder / "model.onnx", layers, form)

    return {
        "ResNet-50": saved(lambda _: vision.resnet50(1)),
        "ResNet-50, batch 8": saved(lambda _: vision.resnet50(8)),
        "MobileNetV2": saved(lambda _: vision.mobilenet_v2(1)),
        "ResNet-50, 8 bits": saved(lambda folder: vision.quantized(vision.resnet50(1), folder)),
        "BERT-base": saved(lambda _: transformers.encoder(transformers.BERT_BASE)),
        "MiniLM": saved(lambda _: transformers.encoder(transformers.MINILM)),
        "language model, MatMulNBits": llm("MatMulNBits"),
        "language model, DQ+MatMul": llm("DQ+MatMul"),
        "LSTM 2x512": saved(lambda _: transformers.recurrent("LSTM")),
        "GRU 2x512": saved(lambda _: transformers.recurrent("GRU")),
        "voice activity": saved(lambda _: transformers.voice_activity()),
        "200 tiny nodes": lambda folder: _written(models.tiny_nodes(200), folder),
        "dynamic encoder": saved(lambda _: transformers.encoder(small)),
    }


def feeds_of(session: Any, length: int) -> dict[str, Any]:
    """Ones, of ``length`` where a model leaves the length of a sequence open, and a batch of one."""
    sizes = {"sequence": length, "batch": 1}
    return {
        argument.name: np.ones([sizes.get(size, size) for size in argument.shape], DTYPES[argument.type])
        for argument in session.get_inputs()
    }


def _written(content: bytes, folder: Path) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(content)
    return path
