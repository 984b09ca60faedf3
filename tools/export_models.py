"""Write the small models of ``tests/models/data``: architectures as PyTorch and ONNX Runtime's quantizer export them.

Usage: python tools/export_models.py

Needs torch (2.13), onnx, onnxscript and onnxruntime; the tests need none of torch and onnxscript. Weights are random with a
fixed seed; every file stays below 50 KB.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnxruntime import quantization
from torch import Tensor, nn
from torch.nn import functional

TARGET = Path(__file__).parents[1] / "tests" / "models" / "data"
MAX_BYTES = 50_000


class InvertedResidual(nn.Module):
    """MobileNet's block: expand, convolve each channel, project, add."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        wide = 2 * inputs
        self.is_residual = stride == 1 and inputs == outputs
        self.body = nn.Sequential(
            nn.Conv2d(inputs, wide, 1, bias=False),
            nn.BatchNorm2d(wide),
            nn.ReLU6(),
            nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False),
            nn.BatchNorm2d(wide),
            nn.Hardswish(),
            nn.Conv2d(wide, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.body(x)
        return x + y if self.is_residual else y


class MobileNet(nn.Module):
    """Classifier of images of any size."""

    def __init__(self) -> None:
        super().__init__()
        blocks = [InvertedResidual(8, 8, 1), InvertedResidual(8, 12, 2), InvertedResidual(12, 12, 1)]
        self.features = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.MaxPool2d(3, 2, 1), *blocks)
        self.head = nn.Linear(12, 5)

    def forward(self, x: Tensor) -> Tensor:
        return functional.log_softmax(self.head(self.features(x).mean((2, 3))), -1)


class UNet(nn.Module):
    """Segmentation: normalisation by instance and by group, both ways to upsample, a skip connection."""

    def __init__(self) -> None:
        super().__init__()
        self.down = self.block(3, 8)
        self.bottom = self.block(8, 12)
        self.up = nn.ConvTranspose2d(12, 8, 2, 2)
        self.last = self.block(16, 8)
        self.head = nn.Conv2d(8, 2, 1)

    @staticmethod
    def block(inputs: int, outputs: int) -> nn.Sequential:
        first = (nn.Conv2d(inputs, outputs, 3, 1, 1), nn.InstanceNorm2d(outputs, affine=True), nn.LeakyReLU(0.1))
        return nn.Sequential(*first, nn.Conv2d(outputs, outputs, 3, 1, 2, 2), nn.GroupNorm(4, outputs), nn.SiLU())

    def forward(self, x: Tensor) -> Tensor:
        down = self.down(x)
        up = self.up(self.bottom(functional.avg_pool2d(down, 2)))
        y = self.head(self.last(torch.cat([up, down], 1)))
        return torch.sigmoid(functional.interpolate(y, scale_factor=2.0, mode="bilinear", align_corners=False))


class Spatial(nn.Module):
    """Samples an image by a predicted affine grid, three ways."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3, 6)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        theta = self.head(x.mean((2, 3))).view(-1, 2, 3)
        steps = torch.linspace(-1, 1, 9)
        points = torch.stack([steps.repeat(9), steps.repeat_interleave(9), torch.ones(81)], -1)
        grid = (points @ theta.transpose(1, 2)).view(-1, 9, 9, 2)
        sample = functional.grid_sample
        return (
            sample(x, grid, mode="bilinear", padding_mode="border", align_corners=False),
            sample(x, grid, mode="nearest", padding_mode="zeros", align_corners=True),
            sample(x, grid, mode="bicubic", padding_mode="reflection", align_corners=False),
        )


class Encoder(nn.Module):
    """Transformer encoder over token ids with a padding mask, of any length."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(30, 16), nn.Embedding(24, 16)
        self.query, self.key, self.value, self.out = (nn.Linear(16, 16) for _ in range(4))
        self.norms = nn.ModuleList([nn.LayerNorm(16) for _ in range(2)])
        self.wide, self.narrow, self.head = nn.Linear(16, 32), nn.Linear(32, 16), nn.Linear(16, 3)

    def forward(self, ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        batch, length = ids.shape
        x = self.tokens(ids) + self.positions(torch.arange(length))[None]
        y = self.norms[0](x)
        q, k, v = (part(y).view(batch, length, 2, 8).transpose(1, 2) for part in (self.query, self.key, self.value))
        scores = (q @ k.transpose(-1, -2) / 8**0.5).masked_fill(mask[:, None, None] == 0, -1e9)
        x = x + self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, 16))
        x = x + self.narrow(functional.gelu(self.wide(self.norms[1](x))))
        weights = mask[..., None].float()
        return self.head((x * weights).sum(1) / weights.sum(1).clamp(min=1)), x


class Decoder(nn.Module):
    """One step of a language model: rotary positions, grouped queries, a cache that grows, gated feed-forward."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(30, 16)
        self.query, self.out = nn.Linear(16, 16, bias=False), nn.Linear(16, 16, bias=False)
        self.key, self.value = nn.Linear(16, 8, bias=False), nn.Linear(16, 8, bias=False)
        self.gate, self.up, self.down = nn.Linear(16, 32), nn.Linear(16, 32), nn.Linear(32, 16)
        self.scale = nn.Parameter(torch.rand(16) + 0.5)
        self.register_buffer("frequencies", 1 / 100 ** (torch.arange(0, 8, 2) / 8))

    def normalize(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.scale

    def rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        angles = (positions[:, None].float() * self.frequencies[None]).repeat(1, 2)
        first, second = x.chunk(2, -1)
        return x * angles.cos() + torch.cat([-second, first], -1) * angles.sin()

    def forward(self, ids: Tensor, past_key: Tensor, past_value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        batch, length = ids.shape
        x = self.tokens(ids)
        positions = torch.arange(length) + past_key.shape[2]
        y = self.normalize(x)
        q, k, v = (part(y).view(batch, length, -1, 8).transpose(1, 2) for part in (self.query, self.key, self.value))
        key = torch.cat([past_key, self.rotate(k, positions)], 2)
        value = torch.cat([past_value, v], 2)
        scores = self.rotate(q, positions) @ key.repeat_interleave(2, 1).transpose(-1, -2) / 8**0.5
        visible = torch.arange(key.shape[2])[None] <= positions[:, None]
        weights = scores.masked_fill(~visible, float("-inf")).softmax(-1)
        attended = weights @ value.repeat_interleave(2, 1)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, 16))
        y = self.normalize(x)
        x = x + self.down(functional.silu(self.gate(y)) * self.up(y))
        return self.normalize(x) @ self.tokens.weight.t(), key, value


class LstmTagger(nn.Module):
    """Two bidirectional layers over token ids."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(30, 8)
        self.lstm = nn.LSTM(8, 8, 2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(16, 4)

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y, (hidden, cell) = self.lstm(self.tokens(ids))
        return self.head(y), hidden, cell


class GruTagger(nn.Module):
    """A bidirectional GRU with an initial state, under a plain recurrent layer."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(6, 8, bidirectional=True)
        self.rnn = nn.RNN(16, 8)

    def forward(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        y, state = self.gru(x, state)
        return self.rnn(y)[0].amax(0), state


@torch.jit.script
def _iterate(x: Tensor, count: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    kept = [x]
    for i in range(int(count)):
        x = torch.tanh(x * 1.1 + float(i) * 0.1)
        x = x - 0.5 if bool(x.sum() > 0) else x + 0.7
        kept.append(x)
    rows = torch.zeros(0, x.shape[1])
    for i in range(x.shape[0]):
        if bool(x[i].sum() > 0):
            rows = torch.cat([rows, x[i : i + 1]], 0)
    steps = 0
    while bool(x.abs().max() > 0.1) and steps < 20:
        x = x * 0.7
        steps += 1
    return torch.stack(kept), rows, torch.tensor(steps)


class ControlFlow(nn.Module):
    """Counted and conditional loops, branches, and a sequence carried by a loop."""

    def forward(self, x: Tensor, count: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return _iterate(x, count)


@dataclass(frozen=True)
class Export:
    """One file: its model, an example of its inputs by name, and the dimensions that may vary."""

    name: str
    module: nn.Module
    opset: int
    example: dict[str, Tensor]
    dynamic: dict[str, dict[int, str]]
    dynamo: bool = False

    def write(self, path: Path) -> None:
        module, names, examples = self.module.eval(), list(self.example), tuple(self.example.values())
        if self.dynamo:
            shapes = [dict.fromkeys(self.dynamic.get(name, ()), torch.export.Dim.DYNAMIC) for name in names]
            program = torch.onnx.export(
                module, examples, dynamo=True, opset_version=self.opset, input_names=names, dynamic_shapes=shapes, verbose=False
            )
            program.save(str(path))
            return
        torch.onnx.export(
            module, examples, str(path), dynamo=False, opset_version=self.opset, input_names=names, dynamic_axes=self.dynamic
        )


def _tokens(batch: int, length: int) -> Tensor:
    return torch.randint(0, 30, (batch, length))


def _exports() -> Iterator[Export]:
    image = {"x": {0: "batch", 2: "height", 3: "width"}}
    yield Export("mobilenet_opset9", MobileNet(), 9, {"x": torch.rand(2, 3, 32, 32)}, image)
    yield Export("unet_opset11", UNet(), 11, {"x": torch.rand(1, 3, 16, 16)}, {"x": {0: "batch"}})
    yield Export("lstm_opset10", LstmTagger(), 10, {"ids": _tokens(2, 7)}, {"ids": {1: "length"}})
    gru = {"x": torch.rand(6, 2, 6), "state": torch.rand(2, 2, 8)}
    yield Export("gru_opset12", GruTagger(), 12, gru, {"x": {0: "length"}})
    loops = {"x": torch.rand(3, 4), "count": torch.tensor(4)}
    yield Export("control_flow_opset13", ControlFlow(), 13, loops, {"x": {0: "rows"}})
    text = {"ids": _tokens(2, 6), "mask": torch.ones(2, 6, dtype=torch.long)}
    length = {"ids": {0: "batch", 1: "length"}, "mask": {0: "batch", 1: "length"}}
    yield Export("encoder_opset14", Encoder(), 14, text, length)
    yield Export("grid_opset16", Spatial(), 16, {"x": torch.rand(2, 3, 10, 12)}, {})
    step = {"ids": _tokens(2, 3), "past_key": torch.rand(2, 1, 4, 8), "past_value": torch.rand(2, 1, 4, 8)}
    past = {0: "batch", 2: "past"}
    grows = {"ids": {0: "batch", 1: "length"}, "past_key": past, "past_value": past}
    yield Export("decoder_opset17", Decoder(), 17, step, grows)
    yield Export("decoder_opset18", Decoder(), 18, step, grows, dynamo=True)


class _Samples(quantization.CalibrationDataReader):
    def __init__(self, samples: Sequence[dict[str, Any]]) -> None:
        self._samples = iter(samples)

    def get_next(self) -> dict[str, Any] | None:
        return next(self._samples, None)


def _quantize(folder: Path) -> None:
    """An image model with QDQ pairs, one of quantized operators, and a text model quantized at run time."""
    random = np.random.default_rng(0)
    samples = [{"x": random.random((2, 3, 32, 32), np.float32)} for _ in range(4)]
    export = Export("mobilenet", MobileNet(), 13, {"x": torch.rand(2, 3, 32, 32)}, {"x": {0: "batch", 2: "height", 3: "width"}})
    source, prepared = folder / "mobilenet.onnx", folder / "prepared.onnx"
    export.write(source)
    quantization.quant_pre_process(str(source), str(prepared), skip_symbolic_shape=True)
    for name, quant_format, per_channel in (
        ("mobilenet_qdq_opset13", quantization.QuantFormat.QDQ, True),
        ("mobilenet_qlinear_opset13", quantization.QuantFormat.QOperator, False),
    ):
        target = str(TARGET / f"{name}.onnx")
        quantization.quantize_static(str(prepared), target, _Samples(samples), quant_format=quant_format, per_channel=per_channel)
    quantization.quantize_dynamic(str(TARGET / "encoder_opset14.onnx"), str(TARGET / "encoder_dynamic_opset14.onnx"))


def main() -> int:
    TARGET.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    for export in _exports():
        export.write(TARGET / f"{export.name}.onnx")
    with tempfile.TemporaryDirectory() as folder:
        _quantize(Path(folder))
    for path in sorted(TARGET.glob("*.onnx")):
        model = onnx.load(path)
        # Source lines of the exporter would tie the files to the folder they were made in.
        for node in model.graph.node:
            node.doc_string = ""
            del node.metadata_props[:]
        onnx.save(model, path)
        size = path.stat().st_size
        print(f"{path.name}: {len(model.graph.node)} nodes, {size} bytes")
        if size > MAX_BYTES:
            raise SystemExit(f"{path.name} has {size} bytes; at most {MAX_BYTES} are allowed: make the model smaller")
    return 0


if __name__ == "__main__":
    sys.exit(main())
