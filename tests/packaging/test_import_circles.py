import importlib.util
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "check_imports.py"
_spec = importlib.util.spec_from_file_location("check_imports", TOOL)
check_imports = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(check_imports)

KNOWN = ({"ort_sdk.graph.graph", "ort_sdk.graph.node", "ort_sdk.graph.runtime_optimization"},)
"""Graphs hold nodes that hold graphs: nodes name the class in annotations only."""


def test_modules_do_not_import_each_other():
    assert [circle for circle in check_imports.find_circles(list(check_imports.PACKAGES)) if set(circle) not in KNOWN] == []


@pytest.fixture
def package(tmp_path, monkeypatch):
    def write(**modules):
        (tmp_path / "__init__.py").write_text("")
        for name, text in modules.items():
            (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.setattr(check_imports, "PACKAGES", {"package": tmp_path})
        return check_imports.find_circles(["package"])

    return write


@pytest.mark.parametrize(
    "text",
    [
        "from .a import x",
        "from . import a",
        "import package.a",
        "from package import a",
        "def f():\n    from .a import x",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .a import x",
    ],
)
def test_imports_of_all_kinds_make_circles(package, text):
    assert package(a="from .b import y", b=f"{text}\ny = 1", c="from . import a, b") == [["package.a", "package.b"]]


def test_long_circles_are_found_once(package):
    circles = package(a="from . import b", b="from . import c", c="from . import d", d="from . import b, e", e="")
    assert circles == [["package.b", "package.c", "package.d"]]


def test_chains_are_no_circles(package):
    assert package(a="from . import b, c", b="from . import c", c="") == []
