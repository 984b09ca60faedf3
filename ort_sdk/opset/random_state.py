"""Random number generators of nodes, and the seed for those that have none of their own."""

from __future__ import annotations

import threading

import numpy as np

__all__ = ["new_generator", "set_seed"]

_lock = threading.Lock()
_entropy = np.random.SeedSequence()


def set_seed(seed: int) -> None:
    """Make the kernels created from now on, without a seed of their own, repeat the same numbers in every process.

    Args:
        seed: any integer; kernels take successive streams of it, in the order they are made.
    """
    global _entropy  # noqa: PLW0603 - one seed per process is what ONNX Runtime's ``set_seed`` means
    with _lock:
        _entropy = np.random.SeedSequence(seed & 0xFFFF_FFFF_FFFF_FFFF)


def new_generator(seed: float | None) -> np.random.Generator:
    """A node's generator: the same numbers for the same seed, a stream of its own without one.

    Args:
        seed: attribute ``seed`` of the node, None if it has none.

    Returns:
        A generator; several threads may draw from it.
    """
    if seed is not None:
        return np.random.default_rng(int(np.float32(seed).view(np.uint32)))
    with _lock:
        return np.random.default_rng(_entropy.spawn(1)[0])
