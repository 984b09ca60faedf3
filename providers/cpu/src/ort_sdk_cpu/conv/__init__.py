"""Convolution of float32."""
