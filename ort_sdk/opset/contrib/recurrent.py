"""DynamicQuantizeLSTM, and the recurrences of linear attention that ONNX Runtime had before ai.onnx."""

from __future__ import annotations

from typing import Any

from ort_sdk.api import Array, Compute, HostArray, KernelInfo, TensorElementType
from ort_sdk.opset.definition import operator
from ort_sdk.opset.llm.causal_conv import causal_conv_with_state
from ort_sdk.opset.llm.linear_attention import linear_attention
from ort_sdk.opset.nn.recurrent import lstm
from ort_sdk.opset.nn.recurrent_shapes import quantized_layer_shapes

__all__ = ["dynamic_quantize_lstm"]

MICROSOFT = "com.microsoft"
FLOAT = TensorElementType.FLOAT


@operator("DynamicQuantizeLSTM", domain=MICROSOFT, host_inputs=(4,), shapes=quantized_layer_shapes)
def dynamic_quantize_lstm(info: KernelInfo, xp: Any) -> Compute:
    """LSTM with 8-bit weights (directions, inputs, 4 * hidden), scaled per direction or per column.

    The weights are dequantized and everything else is computed in float32; inputs are not quantized, which only loses accuracy.
    """
    run = lstm(info, xp)

    def weight(quantized: Array, scale: Array, zero_point: Array) -> Array:
        layout = (quantized.shape[0], 1, -1)
        centred = xp.astype(quantized, FLOAT) - xp.reshape(xp.astype(zero_point, FLOAT), layout)
        return xp.matrix_transpose(centred * xp.reshape(scale, layout))

    def compute(
        x: Array,
        w: Array,
        r: Array,
        b: Array | None,
        sequence_lens: HostArray | None,
        initial_h: Array | None,
        initial_c: Array | None,
        p: Array | None,
        w_scale: Array,
        w_zero_point: Array,
        r_scale: Array,
        r_zero_point: Array,
    ) -> Any:
        inputs, states = weight(w, w_scale, w_zero_point), weight(r, r_scale, r_zero_point)
        return run(x, inputs, states, b, sequence_lens, initial_h, initial_c, p)

    return compute


def _plain_state(info: KernelInfo) -> str | None:
    """Declines what the operators of com.microsoft have beyond those of ai.onnx."""
    defaults = {"state_window": 0, "channels_last": 0, "dilation": 1, "ndim": 1}
    for name, default in defaults.items():
        if info.attribute(name, default) != default:
            return f"the attribute {name} is {info.attribute(name)}; only {default} is supported"
    if info.attribute("q_num_heads", 1) < info.attribute("kv_num_heads", 1):
        return "more key heads than query heads are not supported"
    return None


operator("CausalConvWithState", domain=MICROSOFT, when=_plain_state)(causal_conv_with_state)
operator("LinearAttention", domain=MICROSOFT, when=_plain_state)(linear_attention)


@operator("GatedAdd", domain=MICROSOFT)
def gated_add(_info: KernelInfo, _xp: Any) -> Compute:
    """X + Y * gate, with one gate per row."""
    return lambda x, y, gate: x + y * gate
