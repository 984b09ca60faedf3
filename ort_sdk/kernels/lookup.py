"""Which kernel runs a node: version rule, types by type strings, the kernel's own predicate, and every rejection's reason."""

from __future__ import annotations

from collections.abc import Callable

from ort_sdk.api import KernelCreateInfo, KernelDef, KernelInfo, KernelRegistry
from ort_sdk.graph import Graph, Node
from ort_sdk.graph.type_strings import Argument, resolve_type_strings

from .create import kernel_info

__all__ = ["RegistryLookup", "type_mismatch"]


class RegistryLookup:
    """Kernel look-up of one provider over one graph (the contract's ``KernelLookup``).

    Args:
        registry: the provider's kernels; None if it has none.
        graph: graph the nodes are in, for the types of their values.
        opset_imports: domain → opset version of the model.
    """

    def __init__(self, registry: KernelRegistry | None, graph: Graph, opset_imports: dict[str, int]) -> None:
        self._registry = registry
        self._graph = graph
        self._opset_imports = opset_imports

    def lookup(self, node: Node) -> KernelCreateInfo | None:
        """The first kernel, in order of registration, that matches a node."""
        for candidate in self._candidates(node):
            if self._rejection(candidate.kernel_def, node) is None:
                return candidate
        return None

    def rejections(self, node: Node) -> list[str]:
        """One line for each kernel of the operator that does not match, or that there is none."""
        candidates = self._candidates(node)
        if not candidates:
            return ["no kernel for this operator"]
        reasons = (self._rejection(candidate.kernel_def, node) for candidate in candidates)
        return list(dict.fromkeys(reason for reason in reasons if reason is not None))

    def _candidates(self, node: Node) -> tuple[KernelCreateInfo, ...]:
        return () if self._registry is None else self._registry.candidates(node.domain, node.op_type)

    def _rejection(self, kernel_def: KernelDef, node: Node) -> str | None:
        if not _version_matches(kernel_def, node):
            return f"registered for since_version {kernel_def.version_text()}, node has {node.since_version}"
        mismatch = type_mismatch(kernel_def, node, lambda name: self._graph.node_arg(name).type)
        if mismatch is not None:
            return mismatch
        if kernel_def.when is None:
            return None
        declined = kernel_def.when(self._info(node))
        return None if declined is None else f"version {kernel_def.version_text()} and types match; declined: {declined}"

    def _info(self, node: Node) -> KernelInfo:
        return kernel_info(node, self._graph, self._opset_imports.get(node.domain, 0))


def _version_matches(kernel_def: KernelDef, node: Node) -> bool:
    if resolve_type_strings(node.domain, node.op_type, node.since_version) is None:
        # An operator without a schema has no since-versions of its own: any kernel not newer than the import will do.
        return kernel_def.since_version <= max(node.since_version, 1) and (
            kernel_def.end_version is None or node.since_version <= kernel_def.end_version
        )
    return kernel_def.matches_version(node.since_version)


def type_mismatch(kernel_def: KernelDef, node: Node, type_of: Callable[[str], str | None]) -> str | None:
    """Why a node's types do not fit a kernel's constraints; None if they do.

    As in ORT, the first argument present decides for each constraint; of a variadic parameter, its first argument. An
    argument of unknown type fits.
    """
    table = resolve_type_strings(node.domain, node.op_type, node.since_version)
    if table is None:
        return None
    for name, allowed in kernel_def.type_constraints.items():
        for argument in table.get(name, ()):
            value = _argument_name(node, argument)
            if not value:
                continue
            found = type_of(value)
            if found is not None and found not in allowed:
                kind, index = argument
                return (
                    f"version {kernel_def.version_text()} matches; type constraint {name} allows "
                    f"{', '.join(allowed)}; {kind} {index} '{value}' is {found}"
                )
            break
    return None


def _argument_name(node: Node, argument: Argument) -> str:
    kind, index = argument
    names = node.inputs if kind == "input" else node.outputs
    return names[index] if index < len(names) else ""
