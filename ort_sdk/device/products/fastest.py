"""The form that a product is computed in: what plans prefer for the class, or what was found to be fastest on the device."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from ort_sdk.device.context import DeviceContext
from ort_sdk.device.expressions.nodes import Strided
from ort_sdk.device.launches import Memory

from .tuning_key import TuningKey

__all__ = ["Forms", "submit_fastest"]

Forms = Mapping[str, Callable[[], None]]
"""Name → queues the computation in this form; the first one is what plans prefer."""


def submit_fastest(context: DeviceContext, key: TuningKey, forms: Forms, output: Strided, weights: Sequence[Memory]) -> None:
    """Queue a computation in one of several forms, which differ in time and rounding alone.

    Forms are compared where the context's tuning wants it, and never while launches are captured: their memory has no place then.

    Args:
        context: of the device.
        key: what is computed.
        forms: at least one.
        output: what each form writes; nothing that one reads is written.
        weights: what is most often constant: packing it is no part of a form's time.
    """
    name, tuning = next(iter(forms)), context.tuning
    if tuning is not None and len(forms) > 1:
        found = tuning.chosen(key, forms)
        if found is None and tuning.times and context.recording is None:
            with _constant(weights):
                found = tuning.compared(key, forms, lambda: _wait(context, output))
        name = found or name
    forms[name]()


def _wait(context: DeviceContext, output: Strided) -> None:
    """Wait for the queue; raises what kernels of the run have reported."""
    context.launcher.download(output.held, np.empty(1, np.uint8))


@contextlib.contextmanager
def _constant(memories: Sequence[Memory]) -> Iterator[None]:
    """Take memories as constant for a while; what was made of them meanwhile, by forms that are not used, is forgotten."""
    before = [(memory, memory.is_constant, memory.exchange_derived(None)) for memory in memories]
    for memory in memories:
        memory.is_constant = True
    try:
        yield
    finally:
        for memory, is_constant, derived in before:
            memory.is_constant = is_constant
            memory.exchange_derived(derived)
