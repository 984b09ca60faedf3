"""ONNX's float cases as cases of double: their inputs are exact in it, so the expected outputs stay right."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from ort_sdk.api import KernelRegistry, OperatorSchema, OrtSdkError, find_schema

from .case_runs import is_random
from .cases import ModelCase
from .kernel_cases import operators_with_kernels

__all__ = ["as_double", "double_cases", "double_model"]

DOUBLE = "tensor(double)"


def double_cases(cases: Mapping[str, ModelCase], registry: KernelRegistry | None) -> list[str]:
    """Names of the cases whose node, made one of doubles, has a matching kernel."""
    return [] if registry is None else [name for name, case in cases.items() if _runs_in_double(case, registry)]


def as_double(values: Sequence[Any], indices: frozenset[int]) -> list[Any]:
    """The values with the arrays at some indices made double."""
    return [value.astype(np.float64) if index in indices else value for index, value in enumerate(values)]


@functools.cache
def double_model(case: ModelCase) -> tuple[bytes, frozenset[int], frozenset[int]] | None:
    """The case's model with its float arguments made double, and the indices of those among inputs and outputs.

    None if it has more than one node, an attribute that names a type or holds a tensor, or no float that may be a double.
    """
    model = onnx.ModelProto.FromString(case.model_bytes())
    graph = model.graph
    if len(graph.node) != 1 or graph.initializer or is_random(case) or not _are_tensors([*graph.input, *graph.output]):
        return None
    node = graph.node[0]
    if any(_names_type(attribute) for attribute in node.attribute):
        return None
    imports = {row.domain: row.version for row in model.opset_import}
    schema = find_schema(node.op_type, imports.get(node.domain, 0), node.domain)
    if schema is None:
        return None
    inputs, constraints = _widen_inputs(graph.input, list(node.input), schema)
    outputs = _widen_outputs(graph.output, list(node.output), schema, constraints)
    return (bytes(model.SerializeToString()), inputs, outputs) if inputs and outputs is not None else None


def _are_tensors(values: Sequence[Any]) -> bool:
    return all(value.type.HasField("tensor_type") for value in values)


def _names_type(attribute: onnx.AttributeProto) -> bool:
    return attribute.type not in (1, 2, 3, 6, 7, 8) or attribute.name in ("to", "dtype", "output_dtype", "stash_type")


def _widen_inputs(values: Sequence[Any], names: list[str], schema: OperatorSchema) -> tuple[frozenset[int], set[str]]:
    """Make graph inputs double where the operator allows it; gives their indices and their type constraints."""
    changed, constraints = set(), set()
    for index, value in enumerate(values):
        formal = schema.input(names.index(value.name))
        if formal is not None and _is_float(value) and DOUBLE in schema.allowed_types(formal.type_str):
            value.type.tensor_type.elem_type = onnx.TensorProto.DOUBLE
            changed.add(index)
            constraints.add(formal.type_str)
    return frozenset(changed), constraints


def _widen_outputs(
    values: Sequence[Any], names: list[str], schema: OperatorSchema, constraints: set[str]
) -> frozenset[int] | None:
    """Make the graph outputs double whose type constraint an input made double; gives their indices.

    None if it is not known whether an output becomes double too.
    """
    changed = set()
    for index, value in enumerate(values):
        formal = schema.output(names.index(value.name))
        if formal is None or not _is_float(value):
            continue
        if formal.type_str in constraints:
            value.type.tensor_type.elem_type = onnx.TensorProto.DOUBLE
            changed.add(index)
        elif DOUBLE in schema.allowed_types(formal.type_str):
            return None
    return frozenset(changed)


def _is_float(value: Any) -> bool:
    return bool(value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT)


def _runs_in_double(case: ModelCase, registry: KernelRegistry) -> bool:
    found = double_model(case)
    if found is None:
        return False
    try:
        return bool(operators_with_kernels(found[0], registry))
    except OrtSdkError:
        return False  # the operator ties types together in a way that its schema does not say
