"""The reference pages are what the code says, and say all of it."""

import ast
import importlib.util
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ort_sdk import config_keys
from ort_sdk.api import PluginHooks, ProviderHooks
from ort_sdk.config_keys import CONFIG_KEYS, RUN_CONFIG_KEYS, ConfigKey

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs" / "reference"
GENERATOR = ROOT / "tools" / "generate_reference.py"
KEY = re.compile(r"(session|optimization|memory|ep|ort_sdk)\.[a-z_]+(\.[a-z_]+)*")
HOOKS = [
    (specification, name)
    for specification in (ProviderHooks, PluginHooks)
    for name, value in vars(specification).items()
    if inspect.isfunction(value) and name[0] != "_"
]


def sources(*folders):
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py")) if "build" not in path.parts]


@pytest.fixture(scope="module")
def generator():
    spec = importlib.util.spec_from_file_location("generate_reference", GENERATOR)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_pages_are_fresh():
    done = subprocess.run([sys.executable, "-P", GENERATOR, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("specification", "hook"), HOOKS, ids=lambda value: getattr(value, "__name__", value))
def test_hook_has_its_exact_signature(specification, hook):
    text = (REFERENCE / "hooks.md").read_text(encoding="utf-8")
    section = text.partition("## Hooks of other plugins")[specification is not ProviderHooks and 2]
    block = re.search(rf"^### `{hook}`\n\n```text\n(.*?)\n```", section, re.MULTILINE | re.DOTALL)
    assert block, f"{hook} is not documented"
    documented = ast.parse(f"def {block[1]}: ...").body[0]
    expected = ast.parse(inspect.cleandoc("\n" + inspect.getsource(getattr(specification, hook)))).body[0]
    expected.args.args.pop(0)
    assert ast.dump(documented.args) == ast.dump(expected.args)
    assert ast.dump(documented.returns) == ast.dump(expected.returns)


def implemented_hooks():
    """Names of functions marked with ``hookimpl`` in providers, in the conformance kit and in the tests."""
    found = set()
    texts = (path.read_text(encoding="utf-8") for path in sources("providers", "ort_sdk/testing", "tests", "examples"))
    for text in filter(re.compile("hookimpl").search, texts):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef) and any("hookimpl" in ast.unparse(mark) for mark in node.decorator_list):
                found.add(node.name)
    return found


def test_every_hook_has_an_implementation():
    assert {hook for _, hook in HOOKS} - implemented_hooks() == set()


def test_every_config_key_is_in_the_table():
    """A key that the code reads and the table lacks is a key nobody can find; one that nobody reads has no place in it."""
    assert spelled_keys("ort_sdk") == set()
    constants = {name: key for name, key in vars(config_keys).items() if isinstance(key, ConfigKey)}
    read = {key.name for name, key in constants.items() if name in imported_constants()}
    assert read | spelled_keys("providers/cpu/src", "providers/cuda/src", "providers/opencl/src") == {
        key.name for key in (*CONFIG_KEYS, *RUN_CONFIG_KEYS)
    }


def spelled_keys(*folders):
    """Keys that stand in the code as strings."""
    found = set()
    for path in sources(*folders):
        if path.name in ("config_keys.py", "__init__.py"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and KEY.fullmatch(node.value):
                found.add(node.value)
    groups = {"ort_sdk.providers", "ort_sdk.plugins"}
    return {text for text in found if text not in groups and not importlib_knows(text)}


def imported_constants():
    """Names that the host imports from the table."""
    imports = (node for path in sources("ort_sdk") for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    froms = (node for node in imports if isinstance(node, ast.ImportFrom) and node.module == "ort_sdk.config_keys")
    return {alias.name for node in froms for alias in node.names}


def importlib_knows(text):
    """Whether a dotted text is a module or logger of ours rather than a key."""
    return text.startswith("ort_sdk.")


def test_table_of_keys_is_sorted_and_complete():
    for keys in (CONFIG_KEYS, RUN_CONFIG_KEYS):
        names = [key.name for key in keys]
        assert names == sorted(set(names))
        assert all(key.meaning.endswith(".") for key in keys)


def test_every_error_has_a_row(generator):
    text = generator.errors_page()
    assert all(f"`{error.__name__}`" in text for error, _ in generator.walk_errors(generator.errors.OrtSdkError))


def test_public_names_have_meanings(generator):
    rows = re.findall(
        r"^\| `(\w+)` \| (\w+) \| (.*?) \|$", "\n".join(generator.module_parts(generator.ort_sdk.api, "###")), re.MULTILINE
    )
    assert {name for name, _, _ in rows} >= set(generator.ort_sdk.api.__all__)
    assert [name for name, _, meaning in rows if not meaning] == []
