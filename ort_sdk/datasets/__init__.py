"""Small models for examples and first steps: ``sigmoid.onnx``, ``mul_1.onnx`` and ``logreg_iris.onnx``."""

from __future__ import annotations

from pathlib import Path

from ort_sdk.api import NoSuchFile

__all__ = ["get_example"]


def get_example(name: str) -> str:
    """Absolute path of an example.

    Raises:
        NoSuchFile: there is none of that name.
    """
    folder = Path(__file__).resolve().parent
    names = sorted(path.name for path in folder.glob("*.onnx"))
    if name not in names:
        raise NoSuchFile(f"Unable to find example '{name}'; there are {', '.join(names)}")
    return str(folder / name)
