"""Quantized models: nodes between DequantizeLinear and QuantizeLinear, and integer GEMMs."""
