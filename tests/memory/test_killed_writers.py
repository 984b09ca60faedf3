"""Processes killed at any moment while they save models and fill caches leave nothing half done."""

import json
import random
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from ort_sdk.formats.files import unfinished_file
from ort_sdk.memory.prepack_cache import PrepackCache, _header, _read
from tests.memory.models import WEIGHT, X, product_model, run
from tests.memory.test_saved_prepacked import SAVE

ROOT = Path(__file__).resolve().parents[2]
AT_ONCE = 4

PROCESS = """
import itertools, sys
import ort_sdk
from ort_sdk.formats.files import unfinished_file
from ort_sdk.plugins import plugin_manager
from tests.memory.models import WEIGHT, product_model
from tests.memory.packing import PackingProvider
from tests.memory.test_saved_prepacked import SAVE
if sys.argv[2] == "named":
    unfinished_file._NAMELESS = 0
provider = PackingProvider()
plugin_manager().register(provider)
models = [product_model(WEIGHT * factor).SerializeToString() for factor in (1, -1, 2)]
ort_sdk.InferenceSession(models[0], providers=[provider.name])
print("ready", flush=True)
for round in itertools.count():
    provider.version = str(round % 7)
    options = ort_sdk.SessionOptions()
    for key, value in {**SAVE, "session.prepack_cache_dir": sys.argv[1] + "/cache"}.items():
        options.add_session_config_entry(key, value)
    options.optimized_model_filepath = sys.argv[1] + "/saved.onnx"
    ort_sdk.InferenceSession(models[round % 3], options, providers=[provider.name])
    provider.kernels.clear()
"""


def start_and_kill(folder, kind, seed):
    command = [sys.executable, "-c", PROCESS, str(folder), kind]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as process:
        line = process.stdout.readline()
        time.sleep(random.Random(seed).uniform(0, 0.3))
        process.kill()
        error = process.stderr.read()
    assert line == "ready\n", error
    assert not error, error


def factors(result):
    return [factor for factor in (1, -1, 2) if np.allclose(result, X @ WEIGHT * factor, atol=1e-4)]


def check_cache(folder):
    """Every file that has its name is complete."""
    from ort_sdk.formats.files.byte_source import map_descriptor

    files = list(folder.glob("*.prepacked"))
    for file in files:
        with file.open("rb") as opened:
            source = map_descriptor(opened.fileno(), str(file))
        assert _read(source, json.loads(_header(source))["key"]) is not None
    return len(files)


def killed(count, kind, folder):
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(lambda seed: start_and_kill(folder, kind, seed), range(count)))


@pytest.mark.parametrize("kind", ["nameless", "named"])
@pytest.mark.parametrize("count", [6, pytest.param(100, marks=pytest.mark.slow)])
def test_killed_processes(provider, start, tmp_path, kind, count):
    folder = tmp_path / "there"
    saved = folder / "saved.onnx"
    folder.mkdir()
    start(product_model().SerializeToString(), SAVE, saved_to=saved)
    killed(count, kind, folder)
    (wanted,) = factors(run(start(saved)))
    theirs = onnxruntime.InferenceSession(saved, providers=["CPUExecutionProvider"])
    assert factors(theirs.run(None, {"x": X})[0]) == [wanted]
    assert check_cache(folder / "cache") > 0
    for version in range(7):
        provider.version = str(version)
        config = {**SAVE, "session.prepack_cache_dir": folder / "cache"}
        assert factors(run(start(product_model().SerializeToString(), config, saved_to=saved))) == [1]
        assert factors(run(start(saved, config))) == [1]
    assert sorted(file.name for file in folder.iterdir()) == ["cache", "saved.bin", "saved.onnx"]
    assert {file.suffix for file in (folder / "cache").iterdir()} == {".prepacked"}


@pytest.mark.parametrize("nameless", [True, False])
def test_leftovers_are_removed_and_files_being_written_stay(tmp_path, monkeypatch, nameless):
    monkeypatch.setattr(unfinished_file, "_NAMELESS", unfinished_file._NAMELESS if nameless else 0)
    with unfinished_file.UnfinishedFile(tmp_path, "unfinished") as writing:
        writing.file.write(b"abc")
        left = tmp_path / f".unfinished.{'0' * 16}.tmp"
        left.write_bytes(b"half")
        PrepackCache(tmp_path)
        assert not left.exists()
        writing.complete()
        writing.publish(tmp_path / "done")
    assert [file.name for file in tmp_path.iterdir()] == ["done"]
    assert (tmp_path / "done").read_bytes() == b"abc"
