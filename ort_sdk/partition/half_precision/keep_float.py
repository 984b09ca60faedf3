"""float between neighbouring nodes that compute in it, where the model has float16 or bfloat16.

ONNX Runtime comes to the same values on its CPU: ``InsertCastTransformer`` lets such nodes compute in float and takes out
the casts between neighbours. It is part of how such a device computes, not an optimization.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ort_sdk.partition.assignment import Assignment, ProviderBinding

from .insert_cast import NARROW

__all__ = ["keep_float"]


def keep_float(assignment: Assignment, opset_imports: Mapping[str, int], providers: Sequence[ProviderBinding]) -> Assignment:
    """Make the values float that only pass between nodes that compute in float, on one provider.

    Who reads such a value in its own type (a graph output, another provider, a body, a kernel that knows the type) reads it
    rounded by a Cast, which is put in once per value. Afterwards the graph is not ONNX's any more: the inputs of a GEMM that
    share a type parameter may differ in type.

    What such a node reads or makes else, and what one reads that moves elements of such values, it is given in float, too,
    through a Cast, so that it is a node of float like any other: small constants, weights that its kernel puts in order, inputs,
    outputs. Large matrices of GEMMs stay as they are, and so do nodes with other large constants: these would be twice as
    large.

    Casts that stand in the way without rounding are put as what they are: one between equal 16-bit types as an Identity, a
    CastLike as a Cast.

    Args:
        assignment: its graph and bodies are changed in place.
        opset_imports: domain → version of the model.
        providers: those the nodes are placed on.

    Returns:
        The assignment, with the casts placed.
    """
    graphs = [graph for graph in assignment.graph.walk() if any(known.type in NARROW for known in graph.values.values())]
    if not graphs:
        return assignment
    from .apply import FloatRewriter

    keeper = FloatRewriter(assignment, dict(opset_imports), {binding.name: binding for binding in providers})
    for graph in graphs:
        keeper.change(graph)
    return keeper.result()
