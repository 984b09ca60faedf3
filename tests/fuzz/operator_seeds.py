"""Models of operators with feeds, that mutants are made of: ONNX's node cases, and all that tests of operators run.

The latter are recorded: as a plugin of pytest, this module writes the models and feeds of sessions that tests make.
"""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
from onnx import ModelProto

import ort_sdk
from ort_sdk.testing.cases import load_cases

TESTS = Path(__file__).resolve().parents[1]
FILE_VARIABLE = "ORT_SDK_RECORDED_SEEDS"
MOST_MODEL_BYTES, MOST_FEED_BYTES = 20_000, 200_000
RECORDED = ("test_contrib_*.py", "test_llm.py", "test_nn_*.py", "test_quantization.py", "test_index.py", "test_ml*.py")

PLUGINS = ("-p", "no:cacheprovider", "-p", "no:xdist", "-p", "operator_seeds")


def record(path):
    """Write the seeds to a file: lists of (name, model's bytes, feeds by name), by operator."""
    files = sorted(str(file) for pattern in RECORDED for file in (TESTS / "opset").glob(pattern))
    folder = str(Path(__file__).parent)
    known = os.environ.get("PYTHONPATH")
    environment = os.environ | {
        FILE_VARIABLE: str(path),
        "PYTHONPATH": os.pathsep.join((folder, known) if known else (folder,)),
    }
    command = [sys.executable, "-P", "-m", "pytest", "-q", *PLUGINS, *files]
    subprocess.run(command, check=True, env=environment, cwd=TESTS.parent, stdout=subprocess.PIPE)
    path.write_bytes(pickle.dumps(_by_operator([*_node_cases(), *load(path)])))


def load(path):
    """What a file of seeds holds."""
    return pickle.loads(Path(path).read_bytes())  # noqa: S301 - written by `record`


def operator_of(model):
    """What a seed is chosen by: domain and type of its last node, which is the tested one where others prepare its inputs."""
    node = model.graph.node[-1]
    return f"{node.domain}:{node.op_type}"


def _by_operator(seeds):
    found = {}
    for name, data, feeds in seeds:
        model = ModelProto.FromString(data)
        if model.graph.node:
            found.setdefault(operator_of(model), []).append((name, data, feeds))
    return dict(sorted(found.items()))


def _node_cases():
    found = []
    for case in load_cases("node"):
        data = case.model_bytes()
        inputs, _ = next(case.data_sets())
        feeds = dict(zip(case.feed_names(), inputs, strict=False))
        if _is_small(data, feeds):
            found.append((case.name, data, feeds))
    return found


def _is_small(data, feeds):
    return len(data) <= MOST_MODEL_BYTES and sum(getattr(value, "nbytes", 0) for value in feeds.values()) <= MOST_FEED_BYTES


class _Recorder:
    """Notes the first feeds of each model."""

    def __init__(self):
        self.found = {}
        self.test = ""
        self._make, self._run = ort_sdk.InferenceSession.__init__, ort_sdk.InferenceSession.run

    def start(self):
        def make(session, model, *arguments, **options):
            self._make(session, model, *arguments, **options)
            if isinstance(model, bytes):
                self._models[id(session)] = model

        def run(session, names, feeds, *arguments):
            data = self._models.get(id(session))
            if data is not None and isinstance(feeds, dict):
                self._note(data, feeds)
            return self._run(session, names, feeds, *arguments)

        self._models = {}
        ort_sdk.InferenceSession.__init__, ort_sdk.InferenceSession.run = make, run

    def _note(self, data, feeds):
        if data not in self.found and all(isinstance(value, np.ndarray) for value in feeds.values()) and _is_small(data, feeds):
            self.found[data] = (self.test, {name: value.copy() for name, value in feeds.items()})

    def write(self, path):
        rows = [(name, data, feeds) for data, (name, feeds) in self.found.items()]
        Path(path).write_bytes(pickle.dumps(rows))


_recorder = _Recorder()


def pytest_configure():
    _recorder.start()


def pytest_runtest_logstart(nodeid):
    _recorder.test = nodeid


def pytest_sessionfinish():
    _recorder.write(os.environ[FILE_VARIABLE])
