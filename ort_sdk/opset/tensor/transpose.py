"""Transpose, DepthToSpace and SpaceToDepth: axes in another order."""

from __future__ import annotations

from typing import Any

from ort_sdk.api import Array, Compute, InvalidArgument, KernelInfo
from ort_sdk.opset.definition import operator

__all__ = ["depth_to_space", "space_to_depth", "transpose"]


@operator("Transpose", moves=True, alias=((0, 0),))
def transpose(info: KernelInfo, xp: Any) -> Compute:
    """The axes in the order of ``perm``, reversed by default."""
    perm = info.attribute("perm", None)
    permute = xp.permute_dims
    if perm is None:
        return lambda data: permute(data, tuple(range(data.ndim))[::-1])
    order = tuple(perm)
    if sorted(order) != list(range(len(order))):
        raise InvalidArgument(f"{info.describe()}: perm {list(order)} is no permutation of {list(range(len(order)))}")

    def compute(data: Array) -> Array:
        if data.ndim != len(order):
            raise InvalidArgument(f"{info.describe()}: perm {list(order)} has {len(order)} axes, the input {data.ndim}")
        return permute(data, order)

    return compute


def _block_size(info: KernelInfo) -> int:
    block = int(info.attribute("blocksize"))
    if block < 1:
        raise InvalidArgument(f"{info.describe()}: blocksize is {block}; it must be at least 1")
    return block


def _mode(info: KernelInfo) -> str:
    mode = str(info.attribute("mode", "DCR"))
    if mode not in {"DCR", "CRD"}:
        raise InvalidArgument(f"{info.describe()}: mode is '{mode}'; it must be DCR or CRD")
    return mode


def _four_dims(info: KernelInfo, x: Array) -> tuple[int, int, int, int]:
    if x.ndim != 4:
        raise InvalidArgument(f"{info.describe()}: the input has shape {x.shape}; it must have four dimensions, NCHW")
    n, c, h, w = x.shape
    return n, c, h, w


@operator("DepthToSpace", moves=True)
def depth_to_space(info: KernelInfo, xp: Any) -> Compute:
    """(N, C, H, W) → (N, C / b², H·b, W·b): blocks of channels become blocks of pixels, in DCR or CRD order."""
    block = _block_size(info)
    mode = _mode(info)

    def compute(x: Array) -> Array:
        n, c, h, w = _four_dims(info, x)
        if c % (block * block):
            raise InvalidArgument(f"{info.describe()}: {c} channels are no multiple of blocksize² = {block * block}")
        depth = c // (block * block)
        if mode == "DCR":
            moved = xp.permute_dims(xp.reshape(x, (n, block, block, depth, h, w)), (0, 3, 4, 1, 5, 2))
        else:
            moved = xp.permute_dims(xp.reshape(x, (n, depth, block, block, h, w)), (0, 1, 4, 2, 5, 3))
        return xp.reshape(moved, (n, depth, h * block, w * block), copy=True)

    return compute


@operator("SpaceToDepth", moves=True)
def space_to_depth(info: KernelInfo, xp: Any) -> Compute:
    """(N, C, H, W) → (N, C·b², H / b, W / b): blocks of pixels become channels, in DCR or CRD order."""
    block = _block_size(info)
    order = (0, 3, 5, 1, 2, 4) if _mode(info) == "DCR" else (0, 1, 3, 5, 2, 4)

    def compute(x: Array) -> Array:
        n, c, h, w = _four_dims(info, x)
        if h % block or w % block:
            raise InvalidArgument(f"{info.describe()}: an image of {h}x{w} is not divisible into blocks of {block}")
        blocks = xp.reshape(x, (n, c, h // block, block, w // block, block))
        moved = xp.permute_dims(blocks, order)
        return xp.reshape(moved, (n, c * block * block, h // block, w // block), copy=True)

    return compute
