"""ONNX's node cases: its package generates them, which takes seconds, so they are kept from one process to the next."""

from __future__ import annotations

import contextlib
import pickle
import platform
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ort_sdk.formats.files.unfinished_file import write_whole

__all__ = ["GeneratedCase", "generated_cases", "kept_in"]

FOLDER = Path(__file__).parent / "__pycache__"
"""As safe as the byte code beside it: who can write there needs no pickle to have code run."""


class GeneratedCase(NamedTuple):
    """A node case, with the fields of the suite's own record that are used."""

    name: str
    rtol: float
    atol: float
    model: bytes
    """The serialized model."""
    data_sets: list[tuple[list[Any], list[Any]]]
    """(inputs, expected outputs) of each run."""
    model_dir: None = None
    """Such a case is no file."""


def kept_in(folder: Path) -> Path:
    """The file that cases are kept in, named by all that they depend on."""
    import onnx

    versions = f"onnx-{onnx.__version__}-numpy-{np.__version__}-python-{platform.python_version()}"
    return folder / f"node-cases-{versions}.pickle"


def generated_cases(folder: Path = FOLDER) -> list[GeneratedCase]:
    """All node cases.

    Args:
        folder: where they are kept, if it can be written.
    """
    path = kept_in(folder)
    with contextlib.suppress(OSError, pickle.UnpicklingError, EOFError, TypeError):
        return [GeneratedCase(*row) for row in pickle.loads(path.read_bytes())]  # noqa: S301 - see FOLDER
    cases = _generate()
    with contextlib.suppress(OSError):
        folder.mkdir(exist_ok=True)
        write_whole(path, pickle.dumps([tuple(case) for case in cases], pickle.HIGHEST_PROTOCOL))
    return cases


def _generate() -> list[GeneratedCase]:
    from onnx.backend.test import loader

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the generators of the cases overflow and divide by zero on purpose
        found = loader.load_model_tests(kind="node")
    return [GeneratedCase(row.name, row.rtol, row.atol, row.model.SerializeToString(), row.data_sets) for row in found]
