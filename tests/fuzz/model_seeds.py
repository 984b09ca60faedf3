"""Whole models with feeds, that mutants are made of: the files of folders, as far as they run on given or made-up inputs."""

import pickle
import sys
from pathlib import Path

import numpy as np

import ort_sdk
from ort_sdk.api import OrtSdkError

FLOATS = {"float16": np.float16, "float": np.float32, "double": np.float64}
MOST_MODEL_BYTES, MOST_FEED_ELEMENTS = 12_000_000, 200_000
OPEN_SIZES = (16, 64, 48, 320, 1)
"""What sizes that a model leaves open are tried with, but the first of each input, which is 1."""


def record(folders, path):
    """Write the seeds to a file: a list of one (name, model's bytes, feeds by name), by file."""
    path.write_bytes(pickle.dumps(dict(_seeds_of(folders))))


def _seeds_of(folders):
    for folder in folders:
        files = sorted(Path(folder).glob("**/*.onnx"))
        if not files:
            raise FileNotFoundError(f"looked for models to mutate, and {folder} holds no *.onnx file: name folders that do")
        for file in files:
            name = str(file.relative_to(folder))
            seed = _seed_of(name, file) if file.stat().st_size <= MOST_MODEL_BYTES else None
            if seed is None:
                sys.stderr.write(f"left out {name}\n")
            else:
                yield name, [seed]


def _seed_of(name, file):
    """None for a model that runs on none of the feeds there are for it."""
    try:
        session = ort_sdk.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    except OrtSdkError:
        return None
    for feeds in _feeds_of(session, file):
        if any(value is None or value.size > MOST_FEED_ELEMENTS for value in feeds.values()):
            return None
        try:
            session.run(None, feeds)
        except OrtSdkError:
            continue
        return name, file.read_bytes(), feeds
    return None


def _feeds_of(session, file):
    """Those of a file MODEL.npz beside the model, or made-up ones of several sizes."""
    given = file.with_suffix(".npz")
    if given.is_file():
        with np.load(given) as arrays:
            yield {name: arrays[name] for name in arrays.files}
    else:
        for size in OPEN_SIZES:
            yield {argument.name: _made_up(argument, size) for argument in session.get_inputs()}


def _made_up(argument, size):
    """An input's value; None if it is no tensor."""
    element_type = argument.type.removeprefix("tensor(").removesuffix(")")
    if element_type == argument.type or argument.shape is None:
        return None
    shape = [known if isinstance(known, int) else 1 if axis == 0 else size for axis, known in enumerate(argument.shape)]
    if element_type == "string":
        return np.full(shape, "word", dtype=object)
    generator = np.random.default_rng(0)
    if element_type in FLOATS:
        return generator.standard_normal(shape).astype(FLOATS[element_type])
    return generator.integers(0, 2, shape).astype(element_type)
