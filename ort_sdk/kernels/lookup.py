"""Which kernel runs a node: version rule, types by type strings, the kernel's own predicate, and every rejection's reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ort_sdk.api import KernelCreateInfo, KernelDef, KernelInfo, KernelPredicate, KernelRegistry
from ort_sdk.api.data_classes import dataclass
from ort_sdk.api.foreign_errors import raise_foreign
from ort_sdk.graph import Graph, Node
from ort_sdk.graph.type_strings import Argument, TypeStrings

from .create import kernel_info
from .type_str_resolver import KernelTypeStrResolver, resolver_of

__all__ = ["KnownKernels", "RegistryLookup", "ResolvedTypes", "known_kernels"]


KnownKernels = dict[tuple[Any, ...], tuple[KernelCreateInfo, ...]]
"""Operator, version and types of the arguments → kernels they fit, up to the first that looks at nothing else of a node."""

_MOST_KNOWN = 4096

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


def known_kernels(registry: KernelRegistry | None, resolver: KernelTypeStrResolver) -> KnownKernels:
    """Where look-ups with a registry and a resolver keep what they find: with the registry, if nothing of a model decides."""
    return registry.matches if registry is not None and resolver is resolver_of(None) else {}


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
        fitting = self._known.get(key)
        if fitting is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            fitting = self._known[key] = tuple(self._fitting(node))
        for each in fitting:
            if each.kernel_def.when is None or self._declined(each.kernel_def.when, node) is None:
                return each
        return None

    def _fitting(self, node: Node) -> Iterator[KernelCreateInfo]:
        """Kernels for a node's version and types, in order of registration, up to the first without a predicate."""
        table = self._resolver.type_strings(node)
        for each in self._candidates(node):
            kernel_def = each.kernel_def
            fits = _version_matches(kernel_def, node, is_known=table is not None)
            if fits and (table is None or self._type_mismatch(kernel_def, node, table) is None):
                yield each
                if kernel_def.when is None:
                    return

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
        declined = self._declined(kernel_def.when, node)
        return None if declined is None else f"version {kernel_def.version_text()} and types match; declined: {declined}"

    def _declined(self, when: KernelPredicate, node: Node) -> str | None:
        try:
            return when(self._info(node))
        except Exception as error:  # noqa: BLE001 - a predicate may raise anything
            owner = "" if self._registry is None else f" of {self._registry.provider_name}"
            raise_foreign(error, f"raised in the predicate of a kernel{owner} for {node.describe()}")

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
