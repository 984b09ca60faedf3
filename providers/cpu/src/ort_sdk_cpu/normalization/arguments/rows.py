"""Arguments of Softmax and of the normalizations by mean and variance."""

from __future__ import annotations

from ort_sdk_cpu.jit.arguments import Pointer, TaskArguments
from ort_sdk_cpu.jit.extents.declaration import Extents, reads, reads_if_given, writes
from ort_sdk_cpu.jit.extents.sizes import FLOAT

__all__ = ["GroupNormalization", "InstanceNormalization", "Normalization", "Softmax"]

MODULE = "normalization.rows"


class Softmax(TaskArguments, module=MODULE, tasks=("softmax",)):
    """Softmax along the last axis."""

    x: Pointer
    """float32 (rows, width)."""
    out: Pointer
    """float32 (rows, width)."""
    rows: int
    width: int

    def extents(self) -> Extents:
        """What is read and written."""
        nbytes = self.rows * self.width * FLOAT
        return reads(self.x, nbytes), writes(self.out, nbytes)


class Normalization(TaskArguments, module=MODULE, tasks=("layer_normalization", "rms_normalization")):
    """LayerNormalization, RMSNormalization, and those of x + skip + bias."""

    x: Pointer
    """float32 (rows, width)."""
    skip: Pointer
    """float32 (rows, width); 0: x itself is normalized."""
    bias: Pointer
    """float32 (width), added to x + skip; 0 for none."""
    total: Pointer
    """float32 (rows, width): x + skip + bias, which may be ``out``; read only if there is a skip."""
    out: Pointer
    """float32 (rows, width)."""
    scale: Pointer
    """float32 (width)."""
    shift: Pointer
    """float32 (width), ONNX's B; 0 for none."""
    rows: int
    width: int
    epsilon: float

    def extents(self) -> Extents:
        """What is read and written."""
        row = self.width * FLOAT if self.rows > 0 else 0
        yield reads(self.x, self.rows * row)
        yield reads_if_given(self.skip, self.rows * row)
        yield reads_if_given(self.bias, row)
        yield writes(self.total, self.rows * row, may_be_none=True)
        yield writes(self.out, self.rows * row)
        yield reads(self.scale, row)
        yield reads_if_given(self.shift, row)


class InstanceNormalization(TaskArguments, module=MODULE, tasks=("instance_normalization_nchw", "instance_normalization_nhwc")):
    """InstanceNormalization of NCHW, or of NHWC."""

    x: Pointer
    """float32 (samples, channels, pixels), or (samples, pixels, channels)."""
    out: Pointer
    """float32, as x."""
    scale: Pointer
    """float32 (channels)."""
    shift: Pointer
    """float32 (channels)."""
    samples: int
    channels: int
    pixels: int
    epsilon: float

    def extents(self) -> Extents:
        """What is read and written."""
        nbytes, vector = self.samples * self.channels * self.pixels * FLOAT, self.channels * FLOAT if self.samples > 0 else 0
        return reads(self.x, nbytes), writes(self.out, nbytes), reads(self.scale, vector), reads(self.shift, vector)


class GroupNormalization(TaskArguments, module=MODULE, tasks=("group_normalization",)):
    """GroupNormalization of NCHW."""

    x: Pointer
    """float32 (samples, groups, channels of a group, pixels)."""
    out: Pointer
    """float32, as x."""
    scale: Pointer
    """float32 (channels / sharing)."""
    shift: Pointer
    """float32 (channels / sharing)."""
    samples: int
    groups: int
    group_channels: int
    pixels: int
    sharing: int
    """Channels in a row that share one scale and one shift."""
    epsilon: float

    def extents(self) -> Extents:
        """What is read and written."""
        channels = self.groups * self.group_channels
        nbytes = self.samples * channels * self.pixels * FLOAT
        vector = (-(-channels // self.sharing) if self.samples > 0 else 0) * FLOAT
        return reads(self.x, nbytes), writes(self.out, nbytes), reads(self.scale, vector), reads(self.shift, vector)
