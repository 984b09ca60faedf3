"""SequenceMap."""

from __future__ import annotations

from typing import Any

from ort_sdk.api import Array, Compute, InvalidArgument, KernelInfo
from ort_sdk.opset.definition import operator

from .bodies import owned


@operator("SequenceMap", shape_inputs=None, deterministic=False, any_type=True, host_only=True)
def sequence_map(info: KernelInfo, xp: Any) -> Compute:
    """Sequences of what the body makes of each element of the input sequences; tensors are the same for all elements."""
    body = info.subgraph("body")
    own_inputs = len(info.inputs)

    def compute(*values: Any) -> tuple[list[Array], ...]:
        inputs, captured = values[:own_inputs], values[own_inputs:]
        lengths = {len(value) for value in inputs if isinstance(value, list)}
        if len(lengths) != 1:
            raise InvalidArgument(
                f"{info.describe()}: sequences of lengths {sorted(lengths)} are given; they must be equally long"
            )
        results: list[list[Array]] = [[] for _ in body.output_names]
        for position in range(lengths.pop()):
            arguments = [value[position] if isinstance(value, list) else value for value in inputs]
            for result, value in zip(results, owned(xp, body, body(arguments, captured)), strict=True):
                result.append(value)
        return tuple(results)

    return compute
