"""ImageDecoder: BMP, JPEG, JPEG 2000, TIFF, PNG, WebP and PNM, decoded by Pillow."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np

from ort_sdk.api import Compute, HostArray, InvalidArgument, InvalidGraph, KernelInfo
from ort_sdk.api.optional_packages import needs_package
from ort_sdk.opset.definition import operator

if TYPE_CHECKING:
    from PIL.Image import Image

FORMATS = ("BMP", "DIB", "JPEG", "JPEG2000", "TIFF", "PNG", "WEBP", "PPM")
"""Pillow's names of the formats the operator lists; others are refused, so that no rare decoder sees untrusted bytes."""

_MODES = {"RGB": "RGB", "BGR": "RGB", "Grayscale": "L"}


@operator("ImageDecoder", shape_inputs=None, host_only=True)
def image_decoder(info: KernelInfo, xp: Any) -> Compute:
    """Pixels of an encoded image as uint8, (height, width, channels); (0, 0, channels) if it cannot be decoded.

    Raises:
        InvalidGraph: the attribute ``pixel_format`` is unknown.
    """
    pixel_format = info.attribute("pixel_format", "RGB")
    if pixel_format not in _MODES:
        raise InvalidGraph(f"{info.describe()}: pixel_format '{pixel_format}' is unknown; allowed are {', '.join(_MODES)}")
    mode = _MODES[pixel_format]

    def compute(encoded_stream: HostArray) -> HostArray:
        pixels = _decode(info, encoded_stream.tobytes(), mode)
        return np.ascontiguousarray(pixels[:, :, ::-1]) if pixel_format == "BGR" else pixels

    return compute


def _decode(info: KernelInfo, data: bytes, mode: str) -> HostArray:
    """Pixels in Pillow's ``mode``; empty if the bytes are no readable image, as ONNX demands.

    Raises:
        InvalidArgument: the image is so large that Pillow takes it for an attack.
    """
    with needs_package("pillow", info.describe()):
        from PIL import Image

    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            pixels = np.array(_in_eight_bits(image).convert(mode))
    except Image.DecompressionBombError as error:
        raise InvalidArgument(f"{info.describe()}: the image is not decoded: {error}") from error
    except (OSError, SyntaxError, ValueError, EOFError):
        pixels = np.empty((0, 0, len(mode)), dtype=np.uint8)
    return pixels.reshape(*pixels.shape[:2], len(mode))


def _in_eight_bits(image: Image) -> Image:
    """The image itself, or a 16-bit one scaled to 8 bits (Pillow's own conversion would clip it)."""
    if not image.mode.startswith("I"):
        return image
    from PIL import Image as PillowImage

    return PillowImage.fromarray((np.array(image).astype(np.uint32) >> 8).astype(np.uint8))
