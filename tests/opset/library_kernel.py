"""One kernel of the shared operator set over any array library, without a session around it."""

from __future__ import annotations

import functools
from types import SimpleNamespace

import array_api_strict
import numpy as np

from ort_sdk.api import KernelInfo, KernelRegistry, NodeArg, TensorElementType, find_schema, tensor_type
from ort_sdk.opset import add_opset


@functools.cache
def _registry(library):
    registry = KernelRegistry("LibraryExecutionProvider")
    add_opset(registry, library)
    return registry


def _argument(name, element_type):
    return None if element_type is None else NodeArg(name, tensor_type(element_type), None)


def _element_type(value):
    return None if value is None else TensorElementType.from_numpy_dtype(value.dtype)


def _attribute(value):
    """A NumPy array as the tensor an attribute holds."""
    if not isinstance(value, np.ndarray):
        return value
    return SimpleNamespace(element_type=_element_type(value), shape=value.shape, numpy=lambda: value)


def run_kernel(op_type, inputs, output_types, *, opset, domain="", attributes=None, library=array_api_strict):
    """Outputs, as NumPy arrays, of one node over ``library``; ``inputs``: NumPy arrays, None where absent."""
    schema = find_schema(op_type, opset, domain)
    info = KernelInfo(
        op_type=op_type,
        since_version=schema.since_version,
        domain=domain,
        attributes={name: _attribute(value) for name, value in (attributes or {}).items()},
        inputs=tuple(_argument(f"x{index}", _element_type(value)) for index, value in enumerate(inputs)),
        outputs=tuple(_argument(f"y{index}", element_type) for index, element_type in enumerate(output_types)),
        opset_version=opset,
    )
    rows = _registry(library).candidates(domain, op_type)
    row = next(row for row in rows if row.kernel_def.matches_version(schema.since_version))
    arguments = [
        value if value is None or row.kernel_def.input_on_host(index) else library.asarray(value)
        for index, value in enumerate(inputs)
    ]
    outputs = row.create(info).compute(*arguments)
    return [np.asarray(output) for output in (outputs if isinstance(outputs, tuple) else (outputs,))]
