"""An image file as the tensor that a model wants, as far as its input's shape and type say."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, InvalidArgument, NodeArg, TensorElementType
from ort_sdk.api.data_classes import dataclass
from ort_sdk.api.optional_packages import needs_package
from ort_sdk.cli.output import shape_text

__all__ = ["IMAGE_SUFFIXES", "ImageOptions", "image_tensor"]

IMAGE_SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp"})

_MODES = {"gray": "L", "rgb": "RGB", "bgr": "RGB", "rgba": "RGBA"}
_CHANNELS = {1: "gray", 3: "rgb", 4: "rgba"}


@dataclass(frozen=True, slots=True)
class ImageOptions:
    """What the user says about images; None leaves a point to the model's input."""

    size: tuple[int, int] | None = None
    """Width and height in pixels."""
    layout: str | None = None
    """``nchw`` or ``nhwc``."""
    channels: str | None = None
    """``gray``, ``rgb``, ``bgr`` or ``rgba``."""
    scale: float | None = None
    """Factor of every pixel value (0 to 255), before mean and std."""
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class _Form:
    """Layout of an image in the tensor."""

    axes: str
    """One letter per dimension: N C H W, or V for all pixels in one."""
    height: int | None
    width: int | None
    channels: int | None


def image_tensor(path: Path, argument: NodeArg, options: ImageOptions) -> HostArray:
    """One image with the input's number of dimensions, a batch of one where it has that dimension.

    Without options: resized to the input's height and width (bicubic), gray for one channel and RGB for three, divided by
    255 if the input is of a floating type, in the type of the input. An input ``tensor(uint8)`` of one dimension gets the
    bytes of the file.

    Raises:
        InvalidArgument: the file is no image, or the input does not look like one.
    """
    if argument.rank == 1 and argument.element_type == TensorElementType.UINT8:
        return np.fromfile(path, np.uint8)
    form = _form(argument, options)
    channels = options.channels or _CHANNELS.get(form.channels or 3)
    if channels is None:
        raise InvalidArgument(f"{_label(argument)} has {form.channels} channels; an image has 1, 3 or 4: use an .npy file")
    pixels = _pixels(path, _MODES[channels], _size(form, argument, options))
    if channels == "bgr":
        pixels = pixels[..., ::-1]
    return _arranged(_scaled(pixels, argument, options), form)


def _label(argument: NodeArg) -> str:
    return f"input '{argument.name}' ({argument.type} {shape_text(argument.shape)})"


def _form(argument: NodeArg, options: ImageOptions) -> _Form:
    shape = argument.shape
    if shape is None:
        shape = (1, None, None, None)
    axes = _axes(shape, options)
    if axes is None:
        raise InvalidArgument(f"{_label(argument)} does not have the dimensions of an image: prepare it as an .npy file")
    known = {axis: dim if isinstance(dim, int) else None for axis, dim in zip(axes, shape, strict=True)}
    if "V" in axes:
        return _Form(axes, *_square(known["V"]), 1)
    return _Form(axes, known["H"], known["W"], known["C"] if "C" in axes else 1)


def _axes(shape: Sequence[Any], options: ImageOptions) -> str | None:
    """Meaning of the dimensions: by the layout asked for, else by which one is as long as pixels have channels."""
    last_is_channels = shape[-1] in _CHANNELS if shape else False
    if len(shape) == 4:
        nhwc = options.layout == "nhwc" if options.layout else last_is_channels and shape[1] not in _CHANNELS
        return "NHWC" if nhwc else "NCHW"
    if len(shape) == 3:
        if options.layout:
            return "HWC" if options.layout == "nhwc" else "CHW"
        return "CHW" if shape[0] in _CHANNELS else "HWC" if last_is_channels else "NHW"
    if len(shape) == 2:
        return "HW" if isinstance(shape[0], int) and shape[0] > 1 else "NV"
    return None


def _square(elements: int | None) -> tuple[int | None, int | None]:
    side = math.isqrt(elements or 0)
    return (side, side) if side and side * side == elements else (None, None)


def _size(form: _Form, argument: NodeArg, options: ImageOptions) -> tuple[int, int] | None:
    """Width and height; None keeps the image's own."""
    if options.size is not None:
        return options.size
    if form.width is not None and form.height is not None:
        return form.width, form.height
    if form.axes == "NV" and argument.shape is not None and isinstance(argument.shape[1], int):
        raise InvalidArgument(f"{_label(argument)} is no square image: give --resize WIDTHxHEIGHT")
    return None


def _pixels(path: Path, mode: str, size: tuple[int, int] | None) -> HostArray:
    """uint8 ``[H, W, C]``."""
    with needs_package("pillow", f"reading image {str(path)!r}"):
        from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        with Image.open(path) as opened:
            image = ImageOps.exif_transpose(opened).convert(mode)
    except FileNotFoundError:
        raise
    except UnidentifiedImageError:
        raise InvalidArgument(f"cannot read {str(path)!r}: it is no image that Pillow knows") from None
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise InvalidArgument(f"cannot read image {str(path)!r}: {error}") from error
    if size is not None and image.size != size:
        image = image.resize(size, Image.Resampling.BICUBIC)
    return np.asarray(image).reshape(image.height, image.width, -1)


def _scaled(pixels: HostArray, argument: NodeArg, options: ImageOptions) -> HostArray:
    element_type = argument.element_type
    if element_type in {None, TensorElementType.STRING}:
        raise InvalidArgument(f"{_label(argument)} takes no images")
    dtype = (element_type or TensorElementType.FLOAT).numpy_dtype
    is_float = dtype.kind not in "biu"
    scale = _default_scale(options) if options.scale is None and is_float else options.scale or 1.0
    values = pixels.astype(np.float64) * scale
    for name, statistic in (("--mean", options.mean), ("--std", options.std)):
        if len(statistic) not in {0, 1, pixels.shape[-1]}:
            raise InvalidArgument(f"{name} has {len(statistic)} numbers for an image of {pixels.shape[-1]} channels")
    values = (values - np.asarray(options.mean or 0)) / np.asarray(options.std or 1)
    if dtype.kind in "iu":
        values = np.clip(np.rint(values), np.iinfo(dtype).min, np.iinfo(dtype).max)
    tensor: HostArray = values.astype(dtype)
    return tensor


def _default_scale(options: ImageOptions) -> float:
    """To 0..1, unless the statistics are those of pixels from 0 to 255."""
    return 1.0 if any(abs(number) > 1 for number in (*options.mean, *options.std)) else 1 / 255


def _arranged(pixels: HostArray, form: _Form) -> HostArray:
    """``[H, W, C]`` in the order of the form's axes."""
    axes = form.axes.replace("N", "")
    if axes == "V":
        laid = pixels.reshape(-1)
    elif axes == "HW":
        laid = pixels[..., 0]
    else:
        laid = pixels.transpose(["HWC".index(axis) for axis in axes])
    return np.ascontiguousarray(laid[None] if "N" in form.axes else laid)
