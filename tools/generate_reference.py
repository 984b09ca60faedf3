"""Write the generated pages of ``docs/reference`` from the code: hooks, errors, options, graph passes and public names.

Usage: python tools/generate_reference.py [--check]

``--check`` writes nothing and fails if a page is not what the code says.
"""

from __future__ import annotations

import argparse
import ast
import enum
import functools
import importlib
import inspect
import itertools
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import ort_sdk
import ort_sdk.api
import ort_sdk.opset
from ort_sdk import config_keys
from ort_sdk.api import PluginHooks, ProviderHooks, errors
from ort_sdk.optimizer import transformers_of_level
from ort_sdk.plugins import manager
from ort_sdk.session.options import session_options
from ort_sdk.session.options.fields import OptionField

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "reference"
HOST = ROOT / "ort_sdk"
LEVELS = {1: "before nodes are placed", 2: "after nodes are placed", 3: "layouts"}
NOTICE = "<!-- Written by tools/generate_reference.py. Change the code's docstrings, then run it again. -->"


# -- text


def page(title: str, introduction: str, *parts: str) -> str:
    return "\n\n".join([NOTICE, f"# {title}", introduction, *parts]) + "\n"


def table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def code(text: object) -> str:
    return f"`{text}`"


def plain(docstring: str | None) -> str:
    """A docstring with Markdown's way to mark code."""
    return re.sub(r"``(.+?)``", r"`\1`", inspect.cleandoc(docstring or ""), flags=re.DOTALL)


def first_paragraph(docstring: str | None) -> str:
    return plain(docstring).partition("\n\n")[0].replace("\n", " ")


def sentence(pattern: str, text: str) -> str:
    """The sentence that a pattern begins; empty if there is none."""
    found = re.search(pattern + r"(.*?)(?:\.(?=\s|$)|;\s)", text, re.DOTALL)
    return found.group(1).replace("\n", " ").strip() if found else ""


# -- hooks


def hook_functions(specification: type) -> dict[str, Callable[..., Any]]:
    return {name: value for name, value in vars(specification).items() if inspect.isfunction(value) and name[0] != "_"}


def signature_of(function: Callable[..., Any]) -> str:
    """The signature as the source has it, without ``self``."""
    definition = ast.parse(inspect.cleandoc("\n" + inspect.getsource(function))).body[0]
    assert isinstance(definition, ast.FunctionDef)  # noqa: S101 - narrows the type
    parameters = [ast.unparse(argument) for argument in definition.args.args[1:]]
    result = "" if definition.returns is None else ast.unparse(definition.returns)
    one_line = f"{definition.name}({', '.join(parameters)}) -> {result}"
    if len(one_line) <= 100:
        return one_line
    return f"{definition.name}(\n" + "".join(f"    {parameter},\n" for parameter in parameters) + f") -> {result}"


@functools.cache
def host_text() -> str:
    """Source of the host's stages, where hooks are asked."""
    files = sorted(path for path in HOST.rglob("*.py") if path.relative_to(HOST).parts[0] not in ("api", "plugins", "testing"))
    return "\n".join(path.read_text(encoding="utf-8") for path in files)


def is_asked(hook: str, specification: type) -> bool:
    pattern = rf"handle\.{hook}\b" if specification is ProviderHooks else rf"\.{hook}s?\("
    return re.search(pattern, host_text()) is not None


def hook_part(hook: str, function: Callable[..., Any], specification: type) -> str:
    lines = [f"### `{hook}`", "", "```text", signature_of(function), "```", "", plain(function.__doc__)]
    if not is_asked(hook, specification):
        lines += ["", "*The host does not ask this hook yet.*"]
    return "\n".join(lines)


def hooks_page() -> str:
    parts = []
    kinds = (
        (ProviderHooks, "Hooks of a provider", "ort_sdk.providers"),
        (PluginHooks, "Hooks of other plugins", "ort_sdk.plugins"),
    )
    for specification, title, group in kinds:
        functions = hook_functions(specification)
        # Both kinds have a hook of one name, whose headings would share an anchor: only the first table has links.
        label = "[`{0}`](#{0})" if specification is ProviderHooks else "`{0}`"
        rows = [
            (
                label.format(name),
                sentence(r"\bAsked", plain(found.__doc__)) or "-",
                sentence(r"\bNone:", plain(found.__doc__)) or "-",
            )
            for name, found in functions.items()
        ]
        parts += [
            f"## {title}",
            f"{plain(specification.__doc__)} Entry-point group `{group}`, class `ort_sdk.api.{specification.__name__}`.",
            table(("hook", "asked", "None means"), rows),
            *(hook_part(name, found, specification) for name, found in functions.items()),
        ]
    introduction = (
        "A hook is what the host asks a plugin when a session is set up, or at the edges of a run. Mark each one you implement "
        "with `@hookimpl`, and take all its parameters, by these names and without defaults: the host refuses a plugin that does "
        "not. What the host asks per node is a method of a kernel, an allocator or a data transfer. "
        "See [the contract's types](contract.md) for what is given and taken."
    )
    return page("Hooks", introduction, *parts)


# -- errors


def walk_errors(base: type, depth: int = 0) -> Iterator[tuple[type, int]]:
    yield base, depth
    for found in sorted(base.__subclasses__(), key=lambda error: (error.code, error.__name__)):  # type: ignore[attr-defined]
        if found.__module__ == errors.__name__:
            yield from walk_errors(found, depth + 1)


def builtin_of(error: type) -> str:
    found = next(base for base in error.__mro__ if base.__module__ == "builtins")
    return found.__name__


def errors_page() -> str:
    rows = [
        (
            "&nbsp;" * 4 * depth + code(error.__name__),
            str(error.code),
            code(error.code_name),
            code(builtin_of(error)),
            plain(error.__doc__),
        )
        for error, depth in walk_errors(errors.OrtSdkError)
    ]
    introduction = (
        "Everything that ort_sdk raises on purpose is an `OrtSdkError`. Each class is also the builtin in its row, so that "
        "`except ValueError` catches an `InvalidArgument`. Names, codes and the shape of the text are ONNX Runtime's:"
    )
    shape = "```text\n[ONNXRuntimeError] : <code> : <code name> : <text>\n```"
    text = (
        "`error.text` is the text without that head. The error of a kernel has the node, its provider and the shapes of its "
        "inputs in the text, and the kernel's own exception as its `__cause__`. Wrong Python types are `TypeError`s, as they "
        "are in ONNX Runtime's bindings."
    )
    return page("Errors", introduction, shape, text, table(("class", "code", "code name", "builtin", "meaning"), rows))


# -- options


def option_rows(owner: type) -> list[tuple[str, ...]]:
    fields = {name: value for name, value in vars(owner).items() if isinstance(value, OptionField)}
    return [(code(name), code(repr_of(field._default)), plain(field.__doc__)) for name, field in sorted(fields.items())]


def repr_of(value: Any) -> str:
    return value.name if hasattr(value, "name") else repr(value)


def method_rows(owner: type) -> list[tuple[str, ...]]:
    return [
        (code(f"{name}({', '.join(list(inspect.signature(found).parameters)[1:])})"), first_paragraph(found.__doc__))
        for name, found in vars(owner).items()
        if inspect.isfunction(found) and name[0] != "_"
    ]


def environment_rows() -> list[tuple[str, ...]]:
    notes = attribute_notes(manager)
    return [
        (code(getattr(manager, name)), note.partition(": ")[2]) for name, note in notes.items() if note.startswith("Environment")
    ]


def key_table(keys: Sequence[config_keys.ConfigKey]) -> str:
    rows = [(code(key.name), code(key.default or '""'), key.meaning, "" if key.is_of_ort else "ort_sdk only") for key in keys]
    return table(("key", "default", "meaning", ""), rows)


def options_page() -> str:
    parts = []
    for owner in (session_options.SessionOptions, session_options.RunOptions):
        parts += [
            f"## `{owner.__name__}`",
            plain(owner.__doc__),
            table(("property", "default", "meaning"), option_rows(owner)),
            table(("method", "meaning"), method_rows(owner)),
        ]
    introduction = (
        "Names and defaults are ONNX Runtime's. *Accepted* means: the value is kept and read back, and changes nothing. "
        "A value of a wrong type is a `TypeError`, an unknown property an `AttributeError`."
    )
    return page(
        "Options",
        introduction,
        *parts,
        "## Session config keys",
        "For `SessionOptions.add_session_config_entry(key, value)`; both are text. The host reads these keys and hands all "
        "entries to each provider and each kernel. Keys that nobody reads are kept and ignored.",
        key_table(config_keys.CONFIG_KEYS),
        "## Run config keys",
        "For `RunOptions.add_run_config_entry(key, value)`, of one run; the entries go to its providers, too.",
        key_table(config_keys.RUN_CONFIG_KEYS),
        "## Provider options",
        "Given per provider, as text. The host itself reads `device_id`: which of the provider's devices the session uses. For "
        "devices other than the host it reads `gpu_mem_limit`, too: the most bytes that the session may hold there, of weights, "
        "values of programs, their feeds and results, and what kernels count of their own. What else there is, the provider's "
        "own page says.",
        "## Environment variables",
        table(("variable", "meaning"), environment_rows()),
    )


# -- graph passes


def passes_page() -> str:
    parts = []
    for level, title in LEVELS.items():
        found = [deferred.imported() for deferred in transformers_of_level(level)]
        rows = [(code(each.name), first_paragraph(type(each).__doc__)) for each in found]
        text = table(("pass", "what it does"), rows) if rows else "None of the host's; providers may have some."
        parts += [f"## Level {level}: {title}", text]
    introduction = (
        "The host's passes, in the order they run at each level. A level runs until no pass changes anything. Each can be left "
        "out by its name: see [Disable optimizations](../how-to/disable-optimizations.md). Passes of providers come after these."
    )
    return page("Graph passes", introduction, *parts)


# -- public names


def attribute_notes(module: ModuleType) -> dict[str, str]:
    """Name → the string that follows its assignment in the source."""
    body = ast.parse(inspect.getsource(module)).body
    notes: dict[str, str] = {}
    for statement, following in itertools.pairwise(body):
        targets = (
            statement.targets
            if isinstance(statement, ast.Assign)
            else [statement.target]
            if isinstance(statement, ast.AnnAssign)
            else []
        )
        if (
            isinstance(following, ast.Expr)
            and isinstance(following.value, ast.Constant)
            and isinstance(following.value.value, str)
        ):
            notes.update((target.id, plain(following.value.value)) for target in targets if isinstance(target, ast.Name))
    return notes


def homes(package: ModuleType) -> dict[str, list[str]]:
    """Module of a package → names that the package has from it, in the order of its imports."""
    tree = ast.parse(inspect.getsource(package))
    imports = [statement for statement in tree.body if isinstance(statement, ast.ImportFrom) and statement.level == 1]
    return {str(statement.module): [alias.name for alias in statement.names] for statement in imports}


def described(value: Any, note: str) -> tuple[str, str]:
    """(kind, meaning) of a public name."""
    if inspect.isclass(value) and not note:
        kind = "error" if issubclass(value, BaseException) else "class"
        return kind, first_paragraph(value.__doc__)
    if inspect.isfunction(inspect.unwrap(value) if callable(value) else value):
        return "function", first_paragraph(value.__doc__)
    return "constant", note.partition("\n\n")[0].replace("\n", " ")


def module_parts(package: ModuleType, heading: str) -> Iterator[str]:
    """What a package exports, by the module that it is from."""
    for module_name, names in homes(package).items():
        module = importlib.import_module(f"{package.__name__}.{module_name}")
        notes = attribute_notes(module)
        rows = [(code(name), *described(getattr(module, name), notes.get(name, ""))) for name in names]
        yield f"{heading} `{module.__name__}`"
        yield first_paragraph(module.__doc__)
        yield table(("name", "kind", "meaning"), rows)


def host_rows() -> list[tuple[str, ...]]:
    rows = []
    notes = attribute_notes(ort_sdk)
    for name in sorted(set(ort_sdk.__all__)):
        value = getattr(ort_sdk, name)
        rows.append(
            (
                code(name),
                *(
                    ("module", first_paragraph(value.__doc__))
                    if inspect.ismodule(value)
                    else described(value, notes.get(name, ""))
                ),
            )
        )
    return rows


def api_page() -> str:
    return page(
        "Public names",
        "Names that are not listed here are not public, whatever their spelling; they may change in any version.",
        "## `ort_sdk`",
        "What runs models, with ONNX Runtime's names: `import ort_sdk as ort`. Each is imported when it is first used.",
        table(("name", "kind", "meaning"), host_rows()),
        "## `ort_sdk.api`",
        "The contract: what a provider may import, beside `ort_sdk.opset`. All names are importable from `ort_sdk.api` itself.",
        *module_parts(ort_sdk.api, "###"),
    )


# -- the contract's types


def members(owner: type) -> Iterator[tuple[str, str]]:
    """(declaration, meaning) of each public member that a class itself declares."""
    body = ast.parse(inspect.getsource(owner)).body[0]
    assert isinstance(body, ast.ClassDef)  # noqa: S101 - narrows the type
    for statement, following in itertools.zip_longest(body.body, body.body[1:]):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.target.id[0] != "_":
            note = following.value.value if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant) else ""
            default = (
                f" = {ast.unparse(statement.value)}" if isinstance(statement.value, (ast.Constant, ast.Name, ast.Tuple)) else ""
            )
            yield f"{statement.target.id}: {ast.unparse(statement.annotation)}{default}", plain(str(note))
        elif isinstance(statement, ast.FunctionDef) and (statement.name[0] != "_" or statement.name == "__init__"):
            yield member_declaration(statement), plain(ast.get_docstring(statement))


def member_declaration(function: ast.FunctionDef) -> str:
    result = "" if function.returns is None else ast.unparse(function.returns)
    if any(isinstance(decorator, ast.Name) and decorator.id == "property" for decorator in function.decorator_list):
        return f"{function.name}: {result}"
    function.args.args = [argument for argument in function.args.args if argument.arg not in ("self", "cls")]
    return f"{function.name}({ast.unparse(function.args)})" + (f" -> {result}" if result != "None" else "")


def as_list(text: str) -> str:
    """Names on lines of their own, with indented text below, as Markdown's list."""
    return re.sub(r"^(`\w+`)\n {4}", r"- \1: ", text, flags=re.MULTILINE)


def class_parts(package: ModuleType) -> Iterator[str]:
    """Each class that a package exports, with its members."""
    for module_name, names in homes(package).items():
        module = importlib.import_module(f"{package.__name__}.{module_name}")
        notes = attribute_notes(module)
        for name in names:
            value = getattr(module, name)
            if not inspect.isclass(value) or name in notes or issubclass(value, (BaseException, ProviderHooks, PluginHooks)):
                continue
            rows = [(code(declaration), " ".join(meaning.split())) for declaration, meaning in members(value)]
            yield f"## `{name}`"
            yield as_list(plain(value.__doc__))
            if issubclass(value, enum.Enum):
                yield f"Members: {', '.join(code(member.name) for member in value)}."
            if rows:
                yield table(("member", "meaning"), rows)


def contract_page() -> str:
    introduction = (
        "What the host hands to providers, and what providers hand to the host: each class of `ort_sdk.api`, with its members. "
        "A *protocol* need not be inherited from: an object with its members will do. [Hooks](hooks.md) says who asks when."
    )
    return page("The contract's types", introduction, *class_parts(ort_sdk.api))


def opset_page() -> str:
    introduction = (
        "ONNX's operators over an array namespace, which any provider may register: `ort_sdk.opset`. A provider whose library "
        "looks like NumPy has all of them by [one call](../how-to/package-a-provider.md); others take single ones."
    )
    return page("The operator set", introduction, *module_parts(ort_sdk.opset, "##"), *class_parts(ort_sdk.opset))


PAGES: dict[str, Callable[[], str]] = {
    "hooks.md": hooks_page,
    "contract.md": contract_page,
    "opset.md": opset_page,
    "errors.md": errors_page,
    "options.md": options_page,
    "graph-passes.md": passes_page,
    "api.md": api_page,
}


def stale_pages() -> list[str]:
    """Pages whose text is not what the code says."""
    return [
        name
        for name, make in PAGES.items()
        if not (FOLDER / name).is_file() or (FOLDER / name).read_text(encoding="utf-8") != make()
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a page is stale")
    if parser.parse_args().check:
        stale = stale_pages()
        if stale:
            print(f"stale: {', '.join(stale)}; run python tools/generate_reference.py", file=sys.stderr)
        return int(bool(stale))
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, make in PAGES.items():
        (FOLDER / name).write_text(make(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
