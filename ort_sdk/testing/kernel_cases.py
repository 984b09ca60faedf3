"""Which of ONNX's cases a provider's kernels can run, told from the models alone."""

from __future__ import annotations

import functools
from typing import Any

import onnx

from ort_sdk.api import KernelRegistry
from ort_sdk.graph.type_inference import infer_types
from ort_sdk.kernels import RegistryLookup
from ort_sdk.loader import load_model

from .cases import KINDS, ModelCase, load_cases

__all__ = ["case_operators", "label", "matching_cases", "node_cases", "reached_operators", "whole_model_cases"]

FAULTY_CASES = frozenset({"test_attention_4d_causal_fp16_expanded"})
"""Cases left out, since correct arithmetic fails them: this one rounds to float16 four times in a row, and ends further
from the expected output than its tolerance."""

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
    if not case_operators(case) & set(registry.operators()):
        return frozenset()
    model = load_model(case.model_bytes())
    infer_types(model.graph)
    lookup = RegistryLookup(registry, model.graph, model.opset_imports)
    return frozenset((node.domain, node.op_type) for node in model.graph.nodes if lookup.lookup(node) is not None)


def matching_cases(kind: str, registry: KernelRegistry | None) -> dict[str, ModelCase]:
    """Cases of a kind of which at least one node has a matching kernel, by name."""
    if registry is None:
        return {}
    cases = (case for case in load_cases(kind) if case.name not in FAULTY_CASES)
    return {case.name: case for case in cases if reached_operators(case, registry)}


def node_cases(registry: KernelRegistry | None) -> dict[str, ModelCase]:
    """Matching node cases."""
    return matching_cases("node", registry)


def whole_model_cases(registry: KernelRegistry | None) -> dict[str, ModelCase]:
    """Matching cases that are small models; the large ones of kind ``real`` are left out."""
    found: dict[str, Any] = {}
    for kind in KINDS:
        if kind not in ("node", "real"):
            found.update(matching_cases(kind, registry))
    return found
