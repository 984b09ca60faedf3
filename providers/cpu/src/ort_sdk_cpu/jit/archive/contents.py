"""All that the archive of a package has: tasks of all families, functions written in LLVM IR, short chains, texts for others.

Each part is compiled by itself, so that processes can share the work. None of it is run.
"""

from __future__ import annotations

import fnmatch
import importlib
from collections.abc import Iterator

from ort_sdk_cpu.jit import call_list, independent_tasks, task_code, task_sequence
from ort_sdk_cpu.jit.llvm import emit_object
from ort_sdk_cpu.jit.numba_frontend import translate
from ort_sdk_cpu.platform.targets import InstructionSet, current_target

from .sources import compiled_modules
from .writer import content_entry, image_entry

__all__ = ["ALL", "compiled_parts", "parts"]

ALL = "*"
"""Pattern of all tasks."""

_FUNCTIONS = (
    ("run_task", task_code._SERIAL),
    ("run_task", task_code._PARALLEL),
    ("run_checked", task_code._CHECKED),
    ("run_sequence", task_sequence._SERIAL),
    ("run_sequence", task_sequence._PARALLEL),
    ("run_calls", call_list._RUN),
    ("run_independent", independent_tasks._RUN),
)
"""Symbol and text of all functions whose text is fixed."""
_CHAINS = "ort_sdk_cpu.fusion.elementwise"
"""Package of chains and of the texts that they take in; above this package, so that it is imported by name."""
_FUNCTIONS_PART, _CHAINS_PART = "functions", "chains"


def parts() -> list[str]:
    """Names of all parts: modules of tasks, and what belongs to no module. Those that take long come first."""
    return [_CHAINS_PART, *compiled_modules(), _FUNCTIONS_PART]


def compiled_parts(part: str, pattern: str = ALL) -> list[tuple[str, bytes]]:
    """Entries of a part: names and contents.

    Args:
        part: its name.
        pattern: of tasks, ``<family>.<module>.<task>``, as ``fnmatch`` takes it, or of ``chains``, which are made with the texts
            that they take in; functions are always made.
    """
    if part == _FUNCTIONS_PART:
        named = [(task_code.ir_function_name(*function), *function) for function in _FUNCTIONS]
        return [image_entry(name, symbol, emit_object(text)) for name, symbol, text in named]
    if part == _CHAINS_PART:
        return list(_chains()) if fnmatch.fnmatch(_CHAINS_PART, pattern) else []
    return list(_tasks(part, pattern))


def _chains() -> Iterator[tuple[str, bytes]]:
    library, compiler, packaged = (
        importlib.import_module(f"{_CHAINS}.{name}") for name in ("math_library", "compile", "packaged")
    )
    texts = library.make_texts()
    yield content_entry(library.texts_name(), texts)
    functions = library.functions_of(texts)
    for chain in packaged.packaged_chains():
        name = compiler.symbol_of(chain)
        yield image_entry(name, *compiler.compiled_chain(chain, name, functions))


def _tasks(path: str, pattern: str) -> Iterator[tuple[str, bytes]]:
    """A module's tasks, but those that need a higher level than the target's."""
    module, level = path.replace(".compiled.", "."), current_target().instruction_set
    content = vars(importlib.import_module(f"ort_sdk_cpu.{path}"))
    least = content.get("NEEDS", InstructionSet.PORTABLE)
    for name, made in content.items():
        is_task = isinstance(made, task_code.Task) and level >= max(least, made.needs)
        if is_task and fnmatch.fnmatch(f"{module}.{name}", pattern):
            symbol, text = translate(made.function, made.signature)
            yield image_entry(task_code._file_name(module, name), symbol, emit_object(text))
