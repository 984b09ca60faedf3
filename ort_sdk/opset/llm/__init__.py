"""Operators of large language models: attention, rotary embeddings and recurrent alternatives."""

from . import attention, causal_conv, flex_attention, linear_attention, rotary

__all__ = ["attention", "causal_conv", "flex_attention", "linear_attention", "rotary"]
