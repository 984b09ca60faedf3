"""Values of a program as errors name them: by type, shape, and what makes them."""

from __future__ import annotations

from collections.abc import Sequence

from ort_sdk.api import TensorElementType
from ort_sdk.run.program.specialisation import Specialisation

__all__ = ["named_value"]


def named_value(index: int, element_type: TensorElementType, shape: Sequence[int], specialisation: Specialisation) -> str:
    """A value in words.

    Args:
        index: the value.
        element_type: of its elements.
        shape: its own.
        specialisation: of the program, which has it as a feed or makes it.
    """
    feeds = {feed.index: feed.name for feed in specialisation.plan.feeds}
    if index in feeds:
        return f"the feed '{feeds[index]}', {element_type.name}{list(shape)}"
    step = next(launched.step for launched in specialisation.steps if index in launched.outputs)
    return f"{element_type.name}{list(shape)} of {step.op_type} node '{step.node}'"
