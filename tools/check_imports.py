"""Finds circles of imports, those inside functions and under ``TYPE_CHECKING`` included: python tools/check_imports.py.

Import-linter checks the direction between packages. This looks at single modules: one that imports another only when a function
runs depends on it all the same.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = {
    "ort_sdk": ROOT / "ort_sdk",
    "ort_sdk_cpu": ROOT / "providers" / "cpu" / "src" / "ort_sdk_cpu",
    "ort_sdk_cuda": ROOT / "providers" / "cuda" / "src" / "ort_sdk_cuda",
    "ort_sdk_opencl": ROOT / "providers" / "opencl" / "src" / "ort_sdk_opencl",
}


def main() -> int:
    """Print each circle; returns 1 if there is one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", nargs="*", default=list(PACKAGES), metavar="package", help="default: all packages")
    circles = find_circles(parser.parse_args().packages)
    for circle in circles:
        print(" <-> ".join(circle))
    print(f"{len(circles)} circles of imports")
    return bool(circles)


def find_circles(packages: list[str]) -> list[list[str]]:
    """Groups of modules that import each other, directly or through others of the group."""
    modules = {name: path for package in packages for name, path in _modules(package, PACKAGES[package])}
    graph = {name: set(_imported(name, path, modules)) - {name} for name, path in modules.items()}
    return sorted(sorted(group) for group in _strong_components(graph) if len(group) > 1)


def _modules(package: str, folder: Path) -> Iterator[tuple[str, Path]]:
    for path in folder.rglob("*.py"):
        parts = path.relative_to(folder).with_suffix("").parts
        yield ".".join((package, *(parts[:-1] if parts[-1] == "__init__" else parts))), path


def _imported(module: str, path: Path, modules: Mapping[str, Path]) -> Iterator[str]:
    """Modules of the packages that a module names in its imports."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom):
            source = _source(node, package)
            for alias in node.names:
                name = f"{source}.{alias.name}"
                yield from (each for each in ((name if name in modules else source),) if each in modules)


def _source(node: ast.ImportFrom, package: str) -> str:
    """The absolute name of what ``from ... import`` imports from."""
    if not node.level:
        return node.module or ""
    base = package.split(".")[: len(package.split(".")) - node.level + 1]
    return ".".join((*base, *([node.module] if node.module else [])))


def _strong_components(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Tarjan's algorithm (1972), without recursion."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    components: list[list[str]] = []
    for root in graph:
        work = [(root, iter(sorted(graph[root])))] if root not in index else []
        while work:
            node, successors = work[-1]
            if node not in index:
                index[node] = low[node] = len(index)
                stack.append(node)
            successor = next((each for each in successors if each not in index or each in stack), None)
            if successor is not None and successor not in index:
                work.append((successor, iter(sorted(graph[successor]))))
                continue
            if successor is not None:
                low[node] = min(low[node], index[successor])
                continue
            work.pop()
            if work:
                low[work[-1][0]] = min(low[work[-1][0]], low[node])
            if low[node] == index[node]:
                start = stack.index(node)
                components.append(stack[start:])
                del stack[start:]
    return components


if __name__ == "__main__":
    sys.exit(main())
