"""Which of ONNX's cases a provider's kernels can run, found from the models alone."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import MappingProxyType

import onnx

from ort_sdk.api import KernelRegistry, OrtSdkError
from ort_sdk.graph.operator_schemas import OperatorSchemas
from ort_sdk.graph.shape_inference import infer_shapes
from ort_sdk.graph.type_inference import infer_types
from ort_sdk.kernels import RegistryLookup
from ort_sdk.loader import load_model

from .cases import KINDS, ModelCase, load_cases

__all__ = [
    "case_operators",
    "label",
    "matching_cases",
    "node_cases",
    "operators_with_kernels",
    "reached_operators",
    "whole_model_cases",
]

Operator = tuple[str, str]
"""(domain, op_type)."""


def label(operator: Operator) -> str:
    """``ai.onnx::Abs``."""
    return f"{operator[0] or 'ai.onnx'}::{operator[1]}"


@functools.cache
def case_operators(case: ModelCase) -> frozenset[Operator]:
    """Operators of a case's main graph."""
    graph = onnx.ModelProto.FromString(case.model_bytes()).graph
    return frozenset(("" if node.domain == "ai.onnx" else node.domain, node.op_type) for node in graph.node)


@functools.cache
def reached_operators(case: ModelCase, registry: KernelRegistry) -> frozenset[Operator]:
    """Operators of a case for which the registry has a kernel that matches in version, types and its own predicate."""
    possible = case_operators(case) & _operators(registry)
    if not possible:
        return frozenset()
    try:
        return operators_with_kernels(case.model_bytes(), registry)
    except OrtSdkError:
        return possible  # a case that cannot be loaded fails by itself, and takes no other with it


@functools.cache
def _operators(registry: KernelRegistry) -> frozenset[Operator]:
    return frozenset(registry.operators())


def operators_with_kernels(model_bytes: bytes, registry: KernelRegistry) -> frozenset[Operator]:
    """Operators of a model's main graph for which the registry has a kernel that matches a node.

    Raises:
        OrtSdkError: the model cannot be loaded.
    """
    schemas = OperatorSchemas(registry.declared_operators())
    model = load_model(model_bytes, schemas=schemas)
    infer_types(model.graph, schemas)
    infer_shapes(model.graph)
    lookup = RegistryLookup(registry, model.graph, model.opset_imports)
    return frozenset((node.domain, node.op_type) for node in model.graph.nodes if lookup.lookup(node) is not None)


@functools.cache
def matching_cases(kind: str, registry: KernelRegistry | None) -> Mapping[str, ModelCase]:
    """Cases of a kind of which at least one node has a matching kernel, by name."""
    if registry is None:
        return {}
    return MappingProxyType({case.name: case for case in load_cases(kind) if reached_operators(case, registry)})


def node_cases(registry: KernelRegistry | None) -> Mapping[str, ModelCase]:
    """Matching node cases."""
    return matching_cases("node", registry)


def whole_model_cases(registry: KernelRegistry | None) -> Mapping[str, ModelCase]:
    """Matching cases that are small models; the large ones of kind ``real`` are left out."""
    found: dict[str, ModelCase] = {}
    for kind in KINDS:
        if kind not in ("node", "real"):
            found.update(matching_cases(kind, registry))
    return found
