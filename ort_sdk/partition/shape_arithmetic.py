"""Arithmetic on shapes stays on the host, where the shapes are (ORT's ``GetCpuPreferredNodes``)."""

from __future__ import annotations

import math
from collections.abc import Collection

from ort_sdk.api import KernelDef, TensorElementType
from ort_sdk.graph import Graph, Node

__all__ = ["is_shape_arithmetic"]

MAX_ELEMENTS = 64
"""Elements of values that are computed faster than they are copied to a device and back."""
HOST_TYPES = frozenset(
    {
        TensorElementType.BOOL,
        TensorElementType.INT32,
        TensorElementType.INT64,
        TensorElementType.FLOAT,
        TensorElementType.DOUBLE,
    }
)
"""Element types in which sizes are computed. Others the host might compute in another precision than the device."""


def is_shape_arithmetic(graph: Graph, node: Node, kernel_def: KernelDef, on_host: Collection[str]) -> bool:
    """Whether a node on a device only computes a few numbers from values that its provider has left on the host.

    What the node's kernel reads on the host in any case, as the target of a Reshape, is no reason: its result may be large, and
    is wanted on the device.

    Args:
        graph: that the node is in.
        node: placed on a device.
        kernel_def: of its kernel there.
        on_host: values that kernels of devices have left on the host, and what was computed from them there.
    """
    if node.subgraphs or not any(name in on_host and not kernel_def.input_on_host(at) for at, name in enumerate(node.inputs)):
        return False
    others = [name for name in node.inputs if name and name not in on_host]
    if not all(_is_small_constant(graph, name) for name in others):
        return False
    return all(_is_small(graph, name) for name in node.outputs if name)


def _is_small_constant(graph: Graph, name: str) -> bool:
    constant = graph.constant(name)
    return constant is not None and constant.element_type in HOST_TYPES and math.prod(constant.shape) <= MAX_ELEMENTS


def _is_small(graph: Graph, name: str) -> bool:
    argument = graph.node_arg(name)
    sizes = None if argument.shape is None else [size for size in argument.shape if isinstance(size, int)]
    if sizes is None or len(sizes) < len(argument.shape or ()):
        return False
    return argument.element_type in HOST_TYPES and math.prod(sizes) <= MAX_ELEMENTS
