"""Outputs of a run: printed, listed by score, written to files."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ort_sdk.api import HostArray

from .output import print_json, print_text, shape_text, table_lines

__all__ = ["print_results", "save_outputs"]

CLASS_KEYS = ("classes", "labels", "class_names", "names", "id2label")
"""Metadata entries that may hold class names: a JSON list or object, a Python-like dictionary, or lines or words."""
MANY_SCORES = 100
"""From how many scores on a row without class names is listed by score."""


def print_results(
    outputs: Mapping[str, Any], metadata: Mapping[str, str], files: Mapping[str, str], *, top: int, as_json: bool
) -> None:
    """Print the outputs of a run.

    Args:
        outputs: name → array, list or dictionary.
        metadata: the model's, for class names.
        files: name → file it was written to.
        top: scores listed of a classifier.
        as_json: print one JSON value.
    """
    names = class_names(metadata)
    if as_json:
        print_json({"outputs": {name: _json_row(value, names, top) | _file(files, name) for name, value in outputs.items()}})
        return
    for name, value in outputs.items():
        print_text(f"{name}: {_describe(value)}")
        print_text("\n".join(f"  {line}" for line in _lines(value, names, top)))
        if name in files:
            print_text(f"  written to {files[name]}")


def save_outputs(outputs: Mapping[str, Any], folder: str) -> dict[str, str]:
    """Write each tensor to ``folder/NAME.npy``, making the folder; other values to ``NAME.json``. Returns name → file."""
    root = Path(folder)
    root.mkdir(parents=True, exist_ok=True)
    files = {}
    for name, value in outputs.items():
        stem = re.sub(r"[^\w.-]", "_", name)
        path = root / f"{stem}.npy"
        if not isinstance(value, np.ndarray):
            path = root / f"{stem}.json"
            path.write_text(json.dumps(_plain(value)), encoding="utf-8")
        else:
            np.save(path, value.astype(str) if value.dtype == object else value, allow_pickle=False)
        files[name] = str(path)
    return files


def class_names(metadata: Mapping[str, str]) -> list[str]:
    """Class names in a model's metadata; empty if there are none."""
    text = next((metadata[key] for key in CLASS_KEYS if metadata.get(key)), "")
    if not text:
        return []
    try:
        value = json.loads(text)
    except ValueError:
        pairs = re.findall(r"""(\d+)\s*:\s*(['"])(.*?)\2""", text)
        value = {key: name for key, _, name in pairs} or [name.strip() for name in re.split(r"[\n,]", text) if name.strip()]
    if isinstance(value, dict):
        value = [value[key] for key in sorted(value, key=lambda key: (len(str(key)), str(key)))]
    return [str(name) for name in value] if isinstance(value, list) else []


def _is_scores(value: Any, names: Sequence[str]) -> bool:
    if not isinstance(value, np.ndarray) or value.ndim not in {1, 2} or value.size == 0 or value.dtype.kind in "biuOSUc":
        return False
    return value.shape[-1] == len(names) or (value.ndim == 2 and value.shape[-1] >= MANY_SCORES)


def _top(row: HostArray, names: Sequence[str], top: int) -> list[dict[str, Any]]:
    scores = row.astype(np.float64)
    order = np.argsort(-scores, kind="stable")[:top]
    labels = names if len(names) == len(row) else [str(index) for index in range(len(row))]
    return [{"index": int(index), "class": labels[index], "score": float(scores[index])} for index in order]


def _rows(value: HostArray, names: Sequence[str], top: int) -> list[list[dict[str, Any]]]:
    return [_top(row, names, top) for row in value.reshape(-1, value.shape[-1])]


def _lines(value: Any, names: Sequence[str], top: int) -> list[str]:
    if not _is_scores(value, names):
        return _array_text(value).splitlines()
    lines: list[str] = []
    rows = _rows(value, names, top)
    for index, row in enumerate(rows):
        lines += [f"row {index}:"] if len(rows) > 1 else []
        lines += table_lines(["class", "score"], [(entry["class"], _score_text(entry["score"])) for entry in row], right=(1,))
    return lines


def _score_text(score: float) -> str:
    return f"{score:.4f}" if 0 <= score <= 1 else f"{score:.6g}"


def _array_text(value: Any) -> str:
    if not isinstance(value, np.ndarray):
        return str(_plain(value))
    with np.printoptions(threshold=200, linewidth=110, edgeitems=3):
        return str(value)


def _describe(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{'string' if value.dtype == object else value.dtype} {shape_text(value.shape)}"
    return "none" if value is None else f"{type(value).__name__} of {len(value)}"


def _json_row(value: Any, names: Sequence[str], top: int) -> dict[str, Any]:
    if not isinstance(value, np.ndarray):
        return {"values": _plain(value)}
    row = {"type": "string" if value.dtype == object else str(value.dtype), "shape": list(value.shape), "values": _plain(value)}
    return row | {"top": _rows(value, names, top)} if _is_scores(value, names) else row


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        if value.dtype.kind == "c":
            return np.stack([value.real, value.imag], axis=-1).tolist()
        return value.tolist() if value.dtype.kind in "biufO" else value.astype(np.float64).tolist()
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value


def _file(files: Mapping[str, str], name: str) -> dict[str, str]:
    return {"file": files[name]} if name in files else {}
