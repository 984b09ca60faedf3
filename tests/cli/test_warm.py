"""``ort-sdk warm``: a folder with all that a model needs, for other users and read-only places."""

import json
import os
import stat
import subprocess
import sys

import numpy as np
import pytest
from onnx import TensorProto, helper

from ort_sdk.cli.exit_codes import ExitCode


@pytest.fixture
def products(save):
    """A product whose weight is packed, a row kernel, and a chain of element-wise nodes."""
    weight = np.random.default_rng(0).standard_normal((256, 256)).astype(np.float32) / 16
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Softmax", ["p"], ["s"]),
        helper.make_node("Mul", ["s", "s"], ["m"]),
        helper.make_node("Sub", ["m", "p"], ["y"]),
    ]
    values = [(name, TensorProto.FLOAT, ["rows", 256]) for name in ("x", "y")]
    return save(nodes, values[:1], values[1:], {"w": weight}), weight


RUN = """
import sys
import numpy as np, ort_sdk
x = np.random.default_rng(1).standard_normal((64, 256)).astype(np.float32)
session = ort_sdk.InferenceSession(sys.argv[1])
for _ in range(20):
    found = session.run(None, {"x": x})[0]
assert session._runs._ready is not None and session._runs._worker is None, "something was missing"
p = x.astype(np.float64) @ np.load(sys.argv[2])
s = np.exp(p - p.max(1, keepdims=True)); s /= s.sum(1, keepdims=True)
assert abs(found - (s * s - p)).max() < 1e-5
assert not {"numba", "llvmlite"} & set(sys.modules)
lines = [line for line in open("/proc/self/maps") if sys.argv[3] in line]
print(sum(".image" in line for line in lines), sum("weights" in line for line in lines))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory maps are read from /proc")
def test_sessions_compute_with_what_was_warmed(shell, products, tmp_path):
    """From a folder that nobody may write: a process maps what is there, and loads no compiler. All users may read it."""
    pytest.importorskip("numba")
    model, weight = products
    folder = tmp_path / "warmed"
    done = shell("warm", model, "--shape", "x:64x256", "--output", folder, "--json")
    assert done.code == ExitCode.OK, done.err
    report = json.loads(done.out)
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert report["folder"] == str(folder)
    assert (report["files"], report["bytes"]) == (len(files), sum(path.stat().st_size for path in files))
    assert list(folder.glob("cpu/*/chain_*"))
    for path in (folder, *folder.rglob("*")):
        assert path.stat().st_mode & stat.S_IROTH
        assert not path.stat().st_mode & stat.S_IWOTH
    np.save(tmp_path / "weight.npy", weight)
    for path in (folder, *folder.rglob("*")):
        path.chmod(path.stat().st_mode & ~0o222)
    arguments = [sys.executable, "-P", "-c", RUN, str(model), str(tmp_path / "weight.npy"), str(folder)]
    own = {"ORT_SDK_CACHE_DIR": str(folder), "ORT_SDK_COMPILATION": "background", "HOME": "/nonexistent"}
    environment = {name: value for name, value in os.environ.items() if name != "ORT_SDK_CPU_CACHE_DIR"} | own
    ran = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=False)
    folder.chmod(0o700)
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stderr
    images, weights = map(int, ran.stdout.split())
    assert images >= 3
    assert weights >= 1


def test_several_shapes(shell, products, tmp_path):
    model, _ = products
    done = shell("warm", model, "--shape", "x:1x256", "--shape", "x:70x256", "--output", tmp_path / "warmed")
    assert done.code == ExitCode.OK, done.err
    assert "runs" in done.out


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ("x:64x100", r"the model declares [rows, 256]"),
        ("x:64", r"the model declares"),
        ("z:64x256", r"--shape names z; the model's inputs are x"),
        ("64x256", r"--shape takes NAME:AxBxC"),
        ("x:64x?", r"--shape takes NAME:AxBxC"),
    ],
)
def test_wrong_shapes_are_refused(shell, products, tmp_path, shape, message):
    model, _ = products
    done = shell("warm", model, "--shape", shape, "--output", tmp_path / "warmed")
    assert done.code == ExitCode.USAGE
    assert message in done.err


def test_what_is_no_folder_is_refused(shell, products, tmp_path):
    model, _ = products
    (tmp_path / "file").write_text("")
    done = shell("warm", model, "--output", tmp_path / "file")
    assert done.code != ExitCode.OK
    assert "error:" in done.err
    assert "Traceback" not in done.err
