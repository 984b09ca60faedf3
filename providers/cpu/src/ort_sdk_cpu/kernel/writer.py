"""Writers: callables that compute a node into preallocated outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import HostArray

__all__ = ["MakeWriter", "Writer", "copying_writer", "output_writer"]

Writer = Callable[..., Any]
"""Writes outputs: ``writer(*inputs, *outputs)``, with None for an absent optional input or output.

It never writes inputs. Strides may differ from call to call, shapes and types do not. A NumPy ufunc is a writer as it is.

A writer may have ``bind_arrays(*inputs, *outputs)``, which returns a call without arguments on arrays that stay the same, or
None; ``set_constant_inputs(inputs)``, called before that with the indices of inputs whose contents are constant, too; and
``bind_slots(slots)``, which returns a call on slots, some of which hold other arrays in each call.
"""

MakeWriter = Callable[[Sequence[Any], Sequence[HostArray]], Writer]
"""``make(inputs, outputs)`` makes a writer for arrays of these shapes and types; an absent input is None.

The writer keeps no array but constants of the node: all others may differ in the next call.
"""


def copying_writer(compute: Callable[..., Any]) -> Writer:
    """A writer that copies the result of a function to its only output.

    Args:
        compute: ``compute(*inputs)`` returns one array.
    """

    def write(*arrays: Any) -> None:
        np.copyto(arrays[-1], compute(*arrays[:-1]))

    return write


def output_writer(compute: Callable[..., Any]) -> Writer:
    """A writer of a function with one input and several outputs, of which only those that are not None are written.

    Args:
        compute: ``compute(x)`` returns an array, or a tuple of arrays.
    """

    def write(x: HostArray, *outputs: HostArray | None) -> None:
        found = compute(x)
        for value, out in zip(found if isinstance(found, tuple) else (found,), outputs, strict=False):
            if out is not None:
                np.copyto(out, value)

    return write
