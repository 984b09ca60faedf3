"""CausalConvWithState: depthwise causal convolution over a sequence that carries its last inputs to the next call."""

from __future__ import annotations

from typing import Any

from ort_sdk.api import Array, Compute, InvalidArgument, InvalidGraph, KernelInfo
from ort_sdk.opset.definition import operator

__all__ = ["causal_conv_with_state"]

ACTIVATIONS = ("none", "silu", "swish")


@operator("CausalConvWithState")
def causal_conv_with_state(info: KernelInfo, xp: Any) -> Compute:
    """Depthwise convolution of (batch, channels, length) that looks at current and past positions only."""
    activation = info.attribute("activation", "none")
    if activation not in ACTIVATIONS:
        raise InvalidGraph(f"{info.describe()}: activation is '{activation}'; it must be one of {', '.join(ACTIVATIONS)}")

    def compute(x: Array, weight: Array, bias: Array | None = None, past_state: Array | None = None) -> tuple[Array, Array]:
        kernel = weight.shape[-1]
        batch, channels = x.shape[:2]
        state_shape = (batch, channels, kernel - 1)
        if past_state is None:
            past_state = xp.zeros(state_shape, dtype=x.dtype)
        if tuple(weight.shape) != (channels, 1, kernel) or tuple(past_state.shape) != state_shape:
            raise InvalidArgument(
                f"{info.describe()}: input has shape {list(x.shape)}, weight {list(weight.shape)}, past_state"
                f" {list(past_state.shape)}; weight must be (channels, 1, k) and past_state {list(state_shape)}"
            )
        sequence = xp.concat([past_state, x], axis=2)
        length = x.shape[2]
        y = sequence[:, :, :length] * weight[:, :, 0]
        for tap in range(1, kernel):
            y += sequence[:, :, tap : tap + length] * weight[:, :, tap]
        if bias is not None:
            y += bias[:, None]
        if activation != "none":
            y = y * (xp.tanh(y * 0.5) * 0.5 + 0.5)
        return y, xp.asarray(sequence[:, :, length:], copy=True)

    return compute
