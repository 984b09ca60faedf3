"""Which kernel runs a node: version rule, types by type strings, the kernel's own predicate, and every rejection's reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ort_sdk.api import KernelCreateInfo, KernelDef, KernelInfo, KernelRegistry
from ort_sdk.api.data_classes import dataclass
from ort_sdk.graph import Graph, Node
from ort_sdk.graph.type_strings import Argument, TypeStrings

from .create import kernel_info
from .type_str_resolver import KernelTypeStrResolver, resolver_of

__all__ = ["KnownKernels", "RegistryLookup", "ResolvedTypes"]


KnownKernels = dict[tuple[Any, ...], "KernelCreateInfo | None"]
"""Operator, version and types of the arguments → kernel, where no kernel looks at more of a node."""

_ABSENT = ""
"""Stands for an omitted argument among types."""


@dataclass(frozen=True, slots=True)
class ResolvedTypes:
    """The type strings of one node."""

    source: str | None
    """Where its operator is described: ``operator schemas``, a file, a provider's declaration; None if nowhere."""
    arguments: Mapping[str, tuple[Argument, ...]]
    """Type string → formal parameters it covers."""
    types: Mapping[str, str | None]
    """Type string → type of the first of them that is present; None if none is, or it is not known."""


class RegistryLookup:
    """Kernel look-up of one provider over one graph (the contract's ``KernelLookup``).

    Args:
        registry: the provider's kernels; None if it has none.
        graph: graph the nodes are in, for the types of their values.
        opset_imports: domain → opset version of the model.
        resolver: says which arguments type constraints speak of; by the schemas and what the registry declares if left out.
        known: what look-ups with the same registry and resolver have found for operators and types, which is added to.
    """

    def __init__(
        self,
        registry: KernelRegistry | None,
        graph: Graph,
        opset_imports: Mapping[str, int],
        resolver: KernelTypeStrResolver | None = None,
        known: KnownKernels | None = None,
    ) -> None:
        self._registry = registry
        self._graph = graph
        self._opset_imports = opset_imports
        self._resolver = resolver_of(registry) if resolver is None else resolver
        self._known: KnownKernels = {} if known is None else known

    def lookup(self, node: Node) -> KernelCreateInfo | None:
        """The first kernel, in order of registration, that matches a node."""
        inputs, graph = node.inputs, self._graph
        values = graph.values
        types = [(values.get(name) or graph.node_arg(name)).type if name else _ABSENT for name in (*inputs, *node.outputs)]
        key = (node.domain, node.op_type, node.since_version, len(inputs), *types)
        if key in self._known:
            return self._known[key]
        candidates = self._candidates(node)
        table = self._resolver.type_strings(node)
        found = next((each for each in candidates if self._rejection(each.kernel_def, node, table) is None), None)
        if not any(each.kernel_def.when for each in candidates):
            self._known[key] = found
        return found

    def rejections(self, node: Node) -> list[str]:
        """One line for each kernel of the operator that does not match, or that there is none."""
        candidates = self._candidates(node)
        if not candidates:
            return ["no kernel for this operator"]
        table = self._resolver.type_strings(node)
        reasons = (self._rejection(candidate.kernel_def, node, table) for candidate in candidates)
        return list(dict.fromkeys(reason for reason in reasons if reason is not None))

    def resolved_types(self, node: Node) -> ResolvedTypes:
        """What look-up makes of a node: where its type strings are described, and the type of each."""
        found = (self._resolver.type_strings(node) or {}).items()
        types = {
            name: self._graph.node_arg(value).type if (value := first_argument(node, each)[1]) else None for name, each in found
        }
        return ResolvedTypes(self._resolver.source(node), dict(found), types)

    def _candidates(self, node: Node) -> tuple[KernelCreateInfo, ...]:
        return () if self._registry is None else self._registry.candidates(node.domain, node.op_type)

    def _rejection(self, kernel_def: KernelDef, node: Node, table: TypeStrings | None) -> str | None:
        if not _version_matches(kernel_def, node, is_known=table is not None):
            return f"registered for since_version {kernel_def.version_text()}, node has {node.since_version}"
        mismatch = None if table is None else self._type_mismatch(kernel_def, node, table)
        if mismatch is not None:
            return f"version {kernel_def.version_text()} matches; {mismatch}"
        if kernel_def.when is None:
            return None
        declined = kernel_def.when(self._info(node))
        return None if declined is None else f"version {kernel_def.version_text()} and types match; declined: {declined}"

    def _info(self, node: Node) -> KernelInfo:
        return kernel_info(node, self._graph, self._opset_imports.get(node.domain, 0))

    def _type_mismatch(self, kernel_def: KernelDef, node: Node, table: TypeStrings) -> str | None:
        """Why a node's types do not fit a kernel's constraints; None if they do.

        As in ORT, the first argument present decides for each constraint; of a variadic parameter, its first argument. An
        argument of unknown type fits.
        """
        for name, allowed in kernel_def.type_constraints.items():
            arguments = table.get(name)
            if arguments is None:
                missing = self._resolver.missing(node, name)
                if missing is not None:
                    return f"its type constraint {name} cannot be resolved: {missing}"
                continue
            (kind, index), value = first_argument(node, arguments)
            found = self._graph.node_arg(value).type if value else None
            if found is not None and found not in allowed:
                return f"type constraint {name} allows {', '.join(allowed)}; {kind} {index} '{value}' is {found}"
        return None


def _version_matches(kernel_def: KernelDef, node: Node, *, is_known: bool) -> bool:
    if not is_known:
        # An operator that nothing is known of has no since-versions of its own: any kernel not newer than the import will do.
        return kernel_def.since_version <= max(node.since_version, 1) and (
            kernel_def.end_version is None or node.since_version <= kernel_def.end_version
        )
    return kernel_def.matches_version(node.since_version)


def first_argument(node: Node, arguments: Sequence[Argument]) -> tuple[Argument, str]:
    """The first formal parameter whose argument is present, with its value; of none, the first one and an empty name."""
    for argument in arguments:
        kind, index = argument
        names = node.inputs if kind == "input" else node.outputs
        if index < len(names) and names[index]:
            return argument, names[index]
    return arguments[0], ""
