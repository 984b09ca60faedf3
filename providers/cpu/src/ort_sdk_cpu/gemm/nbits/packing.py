"""Constants of a MatMulNBits node that are derived from DequantizeLinear's, computed once into memory of a file.

They are read faster in MatMulNBits' layout than in DequantizeLinear's, but there they are in memory already: so they are computed
for sessions that keep packed weights in files, and by no others.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo, OrtMemoryInfo, PrePackedWeights, Tensor, TensorElementType
from ort_sdk.opset.contrib.matmul_nbits import BlockWeight
from ort_sdk.opset.contrib.matmul_nbits_layout import (
    SCALES_FROM_DEQUANTIZE_LINEAR,
    WEIGHT_FROM_DEQUANTIZE_LINEAR,
    ZERO_POINTS_FROM_DEQUANTIZE_LINEAR,
)
from ort_sdk_cpu.jit.task import TaskCall
from ort_sdk_cpu.kernel.bound import stores_packed_weights
from ort_sdk_cpu.memory.allocator import CpuAllocator
from ort_sdk_cpu.platform import libraries

from .arguments.matmul_nbits import STRIP_BYTES
from .arguments.transpose import MODULE, WORKSPACE_BYTES, TransposeCodes, TransposeScales
from .operands import SCALES, WEIGHT, ZERO_POINTS, is_signed, sign_bits

__all__ = ["computed_operands", "pack_operand"]

_TEXTS = (SCALES_FROM_DEQUANTIZE_LINEAR, WEIGHT_FROM_DEQUANTIZE_LINEAR, ZERO_POINTS_FROM_DEQUANTIZE_LINEAR)


def computed_operands(info: KernelInfo) -> frozenset[int]:
    """Inputs that are constants which are not views of others, if the node's session keeps packed weights in files."""
    if not stores_packed_weights(info):
        return frozenset()
    return frozenset(index for index in (WEIGHT, SCALES, ZERO_POINTS) if _is_computed(info.constants.get(index)))


def _is_computed(tensor: Any) -> bool:
    text = getattr(tensor, "transformation", "")
    return text.startswith(_TEXTS) or (bool(text) and is_signed(tensor.sources[0].element_type))


def pack_operand(weight: BlockWeight, tensor: Any, allocator: Any) -> PrePackedWeights:
    """The bytes of a derived constant, in memory of an allocator's.

    Args:
        weight: attributes of the node.
        tensor: the constant.
        allocator: of host memory; None for the provider's own.
    """
    memory = allocator or CpuAllocator(OrtMemoryInfo())
    buffer: HostArray = memory.allocate((tensor.nbytes,), TensorElementType.UINT8)
    source, text = tensor.sources[0], tensor.transformation
    row_bits = weight.size_n * weight.bits
    if text.startswith(WEIGHT_FROM_DEQUANTIZE_LINEAR) and row_bits % 8 == 0 and row_bits >= STRIP_BYTES * 8:
        _transpose_codes(weight, source, buffer)
    elif text.startswith(SCALES_FROM_DEQUANTIZE_LINEAR) and _is_matrix_of_floats(source):
        _transpose_scales(weight, source, buffer)
    else:
        tensor.write_into(buffer)
    buffer.flags.writeable = False
    return PrePackedWeights((buffer,))


def _is_matrix_of_floats(tensor: Tensor) -> bool:
    return tensor.element_type is TensorElementType.FLOAT and len(tensor.shape) == 2


def _transpose_codes(weight: BlockWeight, source: Any, buffer: HostArray) -> None:
    codes, stride = source.packed(), weight.size_n * weight.bits // 8
    sign_flip = sign_bits(weight.bits) if is_signed(source.element_type) else 0
    threads = min(libraries.thread_count(), math.ceil(stride / STRIP_BYTES))
    workspace = np.empty(threads * WORKSPACE_BYTES, np.uint8)
    width = len(buffer) // weight.size_n
    arguments = TransposeCodes(codes, buffer, weight.size_k, stride, width, sign_flip, workspace)
    TaskCall(MODULE, f"transpose_codes_{weight.bits}", arguments, threads).run()


def _transpose_scales(weight: BlockWeight, source: Any, buffer: HostArray) -> None:
    scales = source.packed()
    arguments = TransposeScales(scales, buffer, weight.blocks, weight.size_n)
    TaskCall(MODULE, "transpose_scales", arguments, libraries.thread_count()).run()
