"""ImageDecoder on images made here."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from ort_sdk.api import InvalidArgument, InvalidGraph, TensorElementType
from tests.opset.one_node import make_model, run_sdk

PIXELS = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)


def encoded(image, kind, **options):
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return np.frombuffer(stream.getvalue(), dtype=np.uint8)


def decode(stream, **attributes):
    types = [int(TensorElementType.UINT8)]
    model, feeds = make_model("ImageDecoder", [stream], opset=20, attributes=attributes, output_types=types)
    return run_sdk(model, feeds)[0]


@pytest.mark.parametrize(
    ("kind", "options"), [("PNG", {}), ("BMP", {}), ("TIFF", {}), ("PPM", {}), ("WEBP", {"lossless": True}), ("JPEG2000", {})]
)
def test_lossless_formats_and_layouts(kind, options):
    stream = encoded(Image.fromarray(PIXELS), kind, **options)
    np.testing.assert_array_equal(decode(stream), PIXELS)
    np.testing.assert_array_equal(decode(stream, pixel_format="BGR"), PIXELS[:, :, ::-1])
    gray = decode(stream, pixel_format="Grayscale")
    assert gray.shape == (5, 7, 1)
    assert np.abs(gray[:, :, 0] - PIXELS @ [0.299, 0.587, 0.114]).max() <= 1


def test_jpeg_comes_close():
    smooth = np.broadcast_to(np.arange(64, dtype=np.uint8)[:, np.newaxis, np.newaxis] * 3, (64, 48, 3))
    pixels = decode(encoded(Image.fromarray(np.ascontiguousarray(smooth)), "JPEG", quality=95))
    assert np.abs(pixels.astype(int) - smooth).max() <= 4


def test_gray_transparent_and_sixteen_bit_images():
    gray = PIXELS[:, :, 0]
    np.testing.assert_array_equal(decode(encoded(Image.fromarray(gray), "PNG")), np.stack([gray] * 3, axis=2))
    transparent = np.concatenate([PIXELS, PIXELS[:, :, :1]], axis=2)
    np.testing.assert_array_equal(decode(encoded(Image.fromarray(transparent), "PNG")), PIXELS)
    deep = Image.fromarray(gray.astype(np.uint16) << 8)
    np.testing.assert_array_equal(decode(encoded(deep, "PNG"), pixel_format="Grayscale")[:, :, 0], gray)


@pytest.mark.parametrize("damage", ["empty", "noise", "cut", "gif"])
def test_what_cannot_be_decoded_gives_an_empty_matrix(damage):
    stream = encoded(Image.fromarray(PIXELS), "GIF" if damage == "gif" else "PNG")
    stream = {"empty": stream[:0], "noise": stream[::-1].copy(), "cut": stream[:60], "gif": stream}[damage]
    assert decode(stream).shape == (0, 0, 3)
    assert decode(stream, pixel_format="Grayscale").shape == (0, 0, 1)


def test_images_as_large_as_an_attack_are_refused(monkeypatch):
    stream = encoded(Image.fromarray(PIXELS), "PNG")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    with pytest.raises(InvalidArgument, match="not decoded"):
        decode(stream)


def test_unknown_layout_is_refused():
    with pytest.raises(InvalidGraph, match="pixel_format 'YUV'"):
        decode(encoded(Image.fromarray(PIXELS), "PNG"), pixel_format="YUV")
