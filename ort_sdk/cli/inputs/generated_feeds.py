"""Inputs made from the shapes a model declares, where no file is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, InvalidArgument, NodeArg, TensorElementType
from ort_sdk.cli.arguments import key_value
from ort_sdk.cli.output import shape_text

__all__ = ["generated_feed", "read_dimensions"]


def read_dimensions(texts: Sequence[str], inputs: Sequence[NodeArg]) -> dict[str, int]:
    """Sizes of symbolic dimensions, from ``NAME=N`` each.

    Raises:
        InvalidArgument: no such dimension, or no number.
    """
    known = sorted({dim for argument in inputs for dim in argument.shape or () if isinstance(dim, str)})
    found = {}
    for text in texts:
        name, number = key_value(text, "--dim")
        if name not in known:
            raise InvalidArgument(
                f"--dim {text!r}: the inputs have no dimension '{name}'; they have {known or 'no symbolic ones'}"
            )
        if not number.isdecimal():
            raise InvalidArgument(f"--dim takes NAME=N with a whole number N, got {text!r}")
        found[name] = int(number)
    return found


def generated_feed(argument: NodeArg, dimensions: Mapping[str, int], generator: np.random.Generator) -> HostArray:
    """A value for an input: floats from 0 to 1, whole numbers 0, booleans true, strings empty. Unknown dimensions are 1.

    Raises:
        InvalidArgument: the input is no tensor, or its number of dimensions is not known.
    """
    element_type = argument.element_type
    if element_type is None or argument.shape is None:
        raise InvalidArgument(
            f"cannot make a value for input '{argument.name}' ({argument.type} {shape_text(argument.shape)}): give it a file "
            "with --input NAME=FILE"
        )
    shape = [dim if isinstance(dim, int) else dimensions.get(str(dim), 1) for dim in argument.shape]
    dtype = element_type.numpy_dtype
    if element_type == TensorElementType.STRING:
        return np.full(shape, "", dtype=object)
    if dtype.kind in "iub":
        return np.full(shape, dtype.kind == "b", dtype=dtype)
    made: Any = generator.random(shape).astype(dtype)
    return np.asarray(made)
