"""Operators of the image family."""

from . import image_decoder

__all__ = ["image_decoder"]
