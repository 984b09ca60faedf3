"""From a node to its kernel: the ``KernelInfo``, and the factory call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ort_sdk.api import ExecutionProvider, KernelCreateInfo, KernelInfo, NodeArg, OrtSdkError, RuntimeException, Subgraph, Tensor
from ort_sdk.api.foreign_errors import foreign_class
from ort_sdk.graph import Graph, Node
from ort_sdk.graph.attribute_rules import check_node_attributes

__all__ = ["create_kernel", "kernel_info"]


def kernel_info(
    node: Node,
    graph: Graph,
    opset_version: int,
    *,
    subgraphs: Mapping[str, Subgraph] | None = None,
    execution_provider: ExecutionProvider | None = None,
    session_config: Mapping[str, str] | None = None,
) -> KernelInfo:
    """All a kernel may know of its node. Reads no weight.

    Raises:
        InvalidGraph: an attribute has a value that the operator does not allow. Nodes that were loaded are known to have none;
            those that passes made are looked at here.
    """
    if not node.has_checked_attributes:
        check_node_attributes(node)
    # By position: there is one for each node, and names take as long as all else.
    return KernelInfo(
        node.op_type,
        node.since_version,
        node.domain,
        node.name,
        _attributes(node),
        _arguments(node.inputs, graph),
        _arguments(node.outputs, graph),
        _constants(node, graph),
        subgraphs or {},
        len(node.implicit_inputs),
        execution_provider,
        session_config or {},
        opset_version,
    )


def _attributes(node: Node) -> dict[str, Any]:
    if not node.attributes:
        return {}
    bodies = node.subgraphs
    return {name: value for name, value in node.attributes.items() if name not in bodies} if bodies else dict(node.attributes)


def _arguments(names: list[str], graph: Graph) -> tuple[NodeArg | None, ...]:
    values = graph.values
    return tuple([values.get(name) or graph.node_arg(name) if name else None for name in names])


def _constants(node: Node, graph: Graph) -> dict[int, Tensor]:
    constants: dict[int, Tensor] = {}
    for index, name in enumerate(node.inputs):
        tensor = graph.constant(name) if name else None
        if tensor is not None:
            constants[index] = tensor
    return constants


def create_kernel(create_info: KernelCreateInfo, info: KernelInfo) -> Any:
    """Make the kernel of a node.

    Returns:
        An object with ``compute``: the factory's kernel, or a wrapper around the function it returned.

    Raises:
        RuntimeException: the factory raised something that is no error of the contract; the text names both.
        OrtSdkError: what the factory raised, with the node noted.
    """
    try:
        kernel = create_info.create(info)
    except OrtSdkError as error:
        error.add_note(f"while making the kernel of {info.describe()}")
        raise
    except Exception as error:
        raise foreign_class(error, RuntimeException)(
            f"Exception during initialization: making the kernel of {info.describe()} raised {type(error).__name__}: {error}"
        ) from error
    return kernel if hasattr(kernel, "compute") else FunctionKernel(kernel)


class FunctionKernel:
    """A plain function as a kernel: it declares nothing, so it is never folded and never bound."""

    __slots__ = ("compute",)

    deterministic = False
    shape_inputs = None
    contents_from_shapes = False

    def __init__(self, compute: Any) -> None:
        self.compute = compute

    @property
    def algorithm(self) -> str | None:
        """That of the function, if it has such an attribute."""
        return getattr(self.compute, "algorithm", None)
