"""The kernels of providers as rows, and as a Markdown page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ort_sdk.api import KernelRegistry, schema_versions
from ort_sdk.api.data_classes import dataclass
from ort_sdk.graph.operator_schemas import OperatorSchemas

__all__ = ["KernelRow", "kernel_page", "kernel_rows"]

_SHORT = {
    "float": "f32",
    "double": "f64",
    "float16": "f16",
    "bfloat16": "bf16",
    "complex64": "c64",
    "complex128": "c128",
    "string": "str",
    "bool": "bool",
    **{f"{sign}int{bits}": f"{letter}{bits}" for sign, letter in (("", "i"), ("u", "u")) for bits in (2, 4, 8, 16, 32, 64)},
    "float8e4m3fn": "f8e4m3fn",
    "float8e4m3fnuz": "f8e4m3fnuz",
    "float8e5m2": "f8e5m2",
    "float8e5m2fnuz": "f8e5m2fnuz",
    "float8e8m0": "f8e8m0",
    "float4e2m1": "f4e2m1",
    "float6e2m3": "f6e2m3",
    "float6e3m2": "f6e3m2",
}
_GROUPS = {
    "f*": ("f16", "f32", "f64"),
    "i*": ("i8", "i16", "i32", "i64"),
    "u*": ("u8", "u16", "u32", "u64"),
    "c*": ("c64", "c128"),
    "f8*": ("f8e4m3fn", "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz"),
}
_ORDER = {name: index for index, name in enumerate([*_GROUPS, *dict.fromkeys(_SHORT.values())])}


@dataclass(frozen=True, slots=True)
class KernelRow:
    """Versions of an operator that have the same types on the same providers."""

    domain: str
    op_type: str
    versions: tuple[int, ...]
    """Since-versions."""
    types: Mapping[str, tuple[str, ...]]
    """Constraint → type strings, sorted."""
    providers: tuple[str, ...]


def kernel_rows(registries: Sequence[KernelRegistry]) -> list[KernelRow]:
    """The rows of some providers, by domain, operator and version."""
    merged: dict[tuple[str, str, tuple[tuple[str, tuple[str, ...]], ...], tuple[str, ...]], list[int]] = {}
    for domain, op_type in sorted({operator for registry in registries for operator in registry.operators()}):
        kinds: dict[tuple[int, tuple[tuple[str, tuple[str, ...]], ...]], list[str]] = {}
        for registry in registries:
            for version, types in _types_by_version(domain, op_type, registry).items():
                kinds.setdefault((version, types), []).append(registry.provider_name)
        for (version, types), providers in sorted(kinds.items()):
            merged.setdefault((domain, op_type, types, tuple(providers)), []).append(version)
    rows = [
        KernelRow(domain, op_type, tuple(versions), dict(types), providers)
        for (domain, op_type, types, providers), versions in merged.items()
    ]
    return sorted(rows, key=lambda row: (row.domain, row.op_type, row.versions, row.providers))


def _types_by_version(domain: str, op_type: str, registry: KernelRegistry) -> dict[int, tuple[tuple[str, tuple[str, ...]], ...]]:
    """Since-version → constraints with all types that any kernel of the version takes."""
    found: dict[int, dict[str, set[str]]] = {}
    schemas = OperatorSchemas(registry.declared_operators())
    known = schemas.versions(op_type, domain)
    for candidate in registry.candidates(domain, op_type):
        kernel_def = candidate.kernel_def
        for version in [version for version in known if kernel_def.matches_version(version)] or [kernel_def.since_version]:
            schema = schemas.find(op_type, version, domain)
            allowed = dict(schema.type_constraints) if schema is not None else {}
            union = found.setdefault(version, {})
            for name, types in (allowed | dict(kernel_def.type_constraints)).items():
                union.setdefault(name, set()).update(types)
    return {
        version: tuple((name, tuple(sorted(types))) for name, types in sorted(constraints.items()))
        for version, constraints in found.items()
    }


def kernel_page(rows: Sequence[KernelRow], providers: Sequence[str], command: str) -> str:
    """A Markdown page.

    Args:
        rows: from ``kernel_rows``.
        providers: names of all the providers asked.
        command: command that writes the page.
    """
    lines = [
        "# Kernels",
        "",
        f"Operators with kernels on {', '.join(f'`{name}`' for name in providers)}. Written by `{command}`; do not edit.",
        "",
        "*Versions* are since-versions of the operator's schema: `7-13` stands for every version from 7 to 13 that the operator",
        "has. *Types* lists what each type constraint of the operator allows. A kernel may still decline a node by its rank or",
        "attributes; `ort-sdk explain MODEL` says which.",
        "",
        *_legend(),
    ]
    for domain in dict.fromkeys(row.domain for row in rows):
        lines += ["", f"## {domain or 'ai.onnx'}", "", *_table([row for row in rows if row.domain == domain], providers)]
    return "\n".join(lines) + "\n"


def _legend() -> list[str]:
    names = [f"`{short}` {name}" for name, short in _SHORT.items() if not name.startswith(("int", "uint")) and name != "bool"]
    groups = [f"`{group}` = {' '.join(f'`{member}`' for member in members)}" for group, members in _GROUPS.items()]
    return [
        "Element types are short:",
        "",
        "- `i8` int8, `u8` uint8, and so on for 2 to 64 bits; `bool`",
        *[f"- {', '.join(names[start : start + 4])}" for start in range(0, len(names), 4)],
        *[f"- {group}" for group in groups],
    ]


def _table(rows: Sequence[KernelRow], providers: Sequence[str]) -> list[str]:
    several = len(providers) > 1
    lines = [
        "| operator | versions | types |" + (" providers |" if several else ""),
        "|---|---|---|" + ("---|" if several else ""),
    ]
    previous = ""
    for row in rows:
        types = "<br>".join(f"{name}: `{type_set_text(found)}`" for name, found in row.types.items())
        names = f" {', '.join(row.providers)} |" if several else ""
        lines.append(f"| {row.op_type if row.op_type != previous else ''} | {_versions_text(row)} | {types} |{names}")
        previous = row.op_type
    return lines


def _versions_text(row: KernelRow) -> str:
    """``7-13, 22``: ranges where nothing between is missing."""
    known = schema_versions(row.op_type, row.domain) or row.versions
    runs: list[list[int]] = []
    for version in row.versions:
        follows = runs and version in known and known.index(version) == known.index(runs[-1][-1]) + 1
        if follows:
            runs[-1].append(version)
        else:
            runs.append([version])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def type_set_text(types: Iterable[str]) -> str:
    """Type strings, short: ``f* bf16 i64``, ``seq(f32)``."""
    by_wrapper: dict[str, list[str]] = {}
    for text in types:
        wrapper, short = _split(text)
        by_wrapper.setdefault(wrapper, []).append(short)
    return " ".join(
        " ".join(_grouped(names)) if wrapper == "tensor" else f"{wrapper}({' '.join(_grouped(names))})"
        for wrapper, names in sorted(by_wrapper.items(), key=lambda item: (item[0] != "tensor", item[0]))
    )


def _split(text: str) -> tuple[str, str]:
    """What is around the tensor, and the element's short name."""
    wrapper, separator, element = text.rpartition("tensor(")
    if not separator:
        kind, _, inner = text.partition("(")
        return kind, inner.removesuffix(")").replace("tensor(", "").replace(" ", "")
    name = element.split(")", maxsplit=1)[0]
    return wrapper.replace("(", " ").strip() or "tensor", _SHORT.get(name, name)


def _grouped(names: Sequence[str]) -> list[str]:
    left = set(names)
    result = []
    for group, members in _GROUPS.items():
        if left.issuperset(members):
            left -= set(members)
            result.append(group)
    return sorted([*result, *left], key=lambda name: (_ORDER.get(name, len(_ORDER)), name))
