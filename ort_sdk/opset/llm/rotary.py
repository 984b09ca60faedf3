"""RotaryEmbedding: positions as rotations."""

from __future__ import annotations

from typing import Any

from ort_sdk.api import Array, Compute, InvalidArgument, KernelInfo
from ort_sdk.opset.definition import operator
from ort_sdk.opset.input_shapes import InputShapes

__all__ = ["rotary_embedding", "rotate"]


def _rotary_shapes(_info: KernelInfo, shapes: InputShapes) -> None:
    """Data of heads, and a row of cosines and sines for each token, or for each position that tokens have."""
    shapes.match(0, "X", ("batch", "length", "width"), ("batch", "heads", "length", "size"))
    shapes.match(3, "position_ids", ("batch", "length"))
    form = ("batch", "length", "pairs") if shapes.of(3) is None else ("positions", "pairs")
    shapes.match(1, "cos_cache", form)
    shapes.match(2, "sin_cache", form)


@operator("RotaryEmbedding", shapes=_rotary_shapes)
def rotary_embedding(info: KernelInfo, xp: Any) -> Compute:
    """The first ``rotary_embedding_dim`` elements of each head rotated by its token's position, the rest passed on."""
    interleaved = bool(info.attribute("interleaved", 0))
    rotary_dim = int(info.attribute("rotary_embedding_dim", 0))
    heads = int(info.attribute("num_heads", 0))

    def compute(x: Array, cos_cache: Array, sin_cache: Array, position_ids: Array | None = None) -> Array:
        cos, sin = _by_token(xp, cos_cache, position_ids), _by_token(xp, sin_cache, position_ids)
        if x.ndim == 4:
            _check(info, cos, sin, x.shape[3], rotary_dim)
            return rotate(xp, x, cos[:, None, :, :], sin[:, None, :, :], interleaved=interleaved)
        if x.ndim != 3 or not heads or x.shape[2] % heads:
            raise InvalidArgument(
                f"{info.describe()}: X has shape {list(x.shape)} and num_heads is {heads}; X must be 4-D, or 3-D with a last axis"
                " that num_heads divides"
            )
        split = xp.reshape(x, (*x.shape[:2], heads, x.shape[2] // heads))
        _check(info, cos, sin, split.shape[3], rotary_dim)
        return xp.reshape(rotate(xp, split, cos[:, :, None, :], sin[:, :, None, :], interleaved=interleaved), x.shape)

    return compute


def _by_token(xp: Any, cache: Array, position_ids: Array | None) -> Array:
    """Rows of the cache for each token: (batch, sequence, rotary / 2)."""
    if position_ids is None:
        return cache
    rows = xp.take(cache, xp.reshape(position_ids, (-1,)), axis=0)
    return xp.reshape(rows, (*position_ids.shape, cache.shape[-1]))


def _check(info: KernelInfo, cos: Array, sin: Array, head_size: int, rotary_dim: int) -> None:
    expected = (rotary_dim or head_size) // 2
    if cos.ndim != 3 or tuple(cos.shape) != tuple(sin.shape) or cos.shape[2] != expected:
        raise InvalidArgument(
            f"{info.describe()}: cos and sin have shapes {list(cos.shape)} and {list(sin.shape)} per token;"
            f" they must be (batch, sequence, {expected})"
        )


def rotate(xp: Any, x: Array, cos: Array, sin: Array, *, interleaved: bool) -> Array:
    """Rotate pairs of elements of the last axis.

    Args:
        xp: array namespace.
        x: (..., head size).
        cos: broadcasts against x's leading axes, (..., rotary / 2); elements beyond ``rotary`` pass unchanged.
        sin: the same.
        interleaved: pairs are adjacent elements; otherwise elements of the two halves of a head are paired.

    Returns:
        A new array of the shape of x.
    """
    half = cos.shape[-1]
    pairs = x[..., : 2 * half]
    if interleaved:
        first, second = pairs[..., 0::2], pairs[..., 1::2]
    else:
        first, second = pairs[..., :half], pairs[..., half:]
    real, imaginary = first * cos - second * sin, first * sin + second * cos
    if interleaved:
        result = xp.reshape(xp.stack([real, imaginary], axis=-1), pairs.shape)
    else:
        result = xp.concat([real, imaginary], axis=-1)
    return result if 2 * half == x.shape[-1] else xp.concat([result, x[..., 2 * half :]], axis=-1)
