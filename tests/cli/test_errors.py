"""One message on stderr, nothing on stdout, and the exit code that the help lists."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from ort_sdk.cli import main
from ort_sdk.cli.exit_codes import ExitCode

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = ("run", "inspect", "explain", "bench", "profile")


def test_help_lists_exit_codes_and_commands(shell):
    done = shell("--help")
    assert done.code == 0
    for word in (*COMMANDS, "providers", "kernels", *(str(int(code)) for code in ExitCode)):
        assert word in done.out


def test_version(shell):
    assert shell("--version").out.startswith("ort-sdk 0.")


@pytest.mark.parametrize("arguments", [[], ["no-such-command"], ["run"], ["bench", "m.onnx", "--runs", "0"]], ids=str)
def test_usage(cli, arguments):
    done = cli(*arguments)
    assert done.code == ExitCode.USAGE
    assert "usage: ort-sdk" in done.err


@pytest.mark.parametrize("command", COMMANDS)
def test_no_such_model(cli, command):
    done = cli(command, "no-such.onnx")
    assert (done.code, done.out) == (ExitCode.NO_SUCH_FILE, "")
    assert "no-such.onnx" in done.err
    assert len(done.err.splitlines()) == 1


@pytest.mark.parametrize("content", [b"", b"# not a model\n", b"\x00" * 100], ids=["empty", "text", "zeros"])
@pytest.mark.parametrize("command", COMMANDS)
def test_no_model(cli, tmp_path, command, content):
    path = tmp_path / "text.onnx"
    path.write_bytes(content)
    done = cli(command, path)
    assert (done.code, done.out) == (ExitCode.NO_MODEL, "")
    assert "text.onnx' is no valid ONNX model" in done.err


@pytest.fixture(scope="module")
def ort_file(tmp_path_factory):
    """The digits model in ORT format, as bytes."""
    path = tmp_path_factory.mktemp("ort") / "digits.ort"
    assert main(["convert", str(ROOT / "examples" / "digits" / "digits.onnx"), str(path)]) == ExitCode.OK
    return path.read_bytes()


DAMAGES = {
    "empty": lambda content: b"",
    "text": lambda content: b"# not a model\n",
    "half": lambda content: content[: len(content) // 2],
    "version": lambda content: content.replace(b"\x01\x00\x00\x006\x00", b"\x01\x00\x00\x009\x00", 1),
    "resolver": lambda content: content.replace(b":Conv:", b";Conv:"),
    "offsets": lambda content: content[:4] + content[4:8] + b"\xff" * (len(content) - 8),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("command", [*COMMANDS, "convert"])
def test_damaged_file_in_ort_format(cli, tmp_path, ort_file, command, damage):
    path = tmp_path / "damaged.ort"
    content = DAMAGES[damage](ort_file)
    assert content != ort_file
    path.write_bytes(content)
    done = cli(command, path, *([tmp_path / "out.onnx"] if command == "convert" else []))
    assert (done.code, done.out) == (ExitCode.NO_MODEL, "")
    assert "damaged.ort' is no valid model in ORT format: " in done.err
    assert len(done.err.splitlines()) == 1
    assert not (tmp_path / "out.onnx").exists()


def test_convert_records_only_where_it_can(cli, tmp_path):
    digits = ROOT / "examples" / "digits" / "digits.onnx"
    for target, level, message in (("d.ort", "basic", "--record needs --level"), ("d.onnx", "all", "ORT format")):
        done = cli("convert", digits, tmp_path / target, "--record", "--level", level)
        assert done.code == ExitCode.USAGE
        assert message in done.err
    assert not list(tmp_path.iterdir())
    assert cli("convert", digits, tmp_path / "d.ort", "--record", "--level", "extended").code == ExitCode.OK


def test_no_such_input_file(cli, digits):
    done = cli("run", digits, "--input", "image=no-such.png")
    assert done.code == ExitCode.NO_SUCH_FILE
    assert "no-such.png" in done.err


@pytest.mark.parametrize("command", COMMANDS)
def test_no_such_provider(cli, digits, command):
    stage = ["--stage", "plan"] if command == "inspect" else []
    done = cli(command, digits, "--provider", "NoSuchExecutionProvider", *stage)
    assert (done.code, done.out) == (ExitCode.PROVIDER, "")
    assert "CPUExecutionProvider" in done.err


def test_wrong_provider_option(cli, digits, image):
    for option, text in (("device_id=blue", "device_id"), ("device_id=99", "no device 99"), ("blue", "KEY=VALUE")):
        done = cli("run", digits, "--input", image, "--option", option)
        assert done.code == ExitCode.USAGE
        assert text in done.err


@pytest.mark.parametrize("command", ["bench", "profile"])
def test_no_kernel(cli, homeless, command):
    done = cli(command, homeless)
    assert (done.code, done.out) == (ExitCode.NO_KERNEL, "")
    assert "Frobnicate" in done.err


def test_failing_node(cli, save, save_array):
    node = helper.make_node("Reshape", ["x", "s"], ["y"], name="impossible")
    model = save([node], [("x", TensorProto.FLOAT, [2]), ("s", TensorProto.INT64, [1])], [("y", TensorProto.FLOAT, [None])])
    feeds = ["--input", f"x={save_array('x.npy', np.ones(2, np.float32))}", "--input", f"s={save_array('s.npy', np.int64([3]))}"]
    done = cli("run", model, *feeds)
    assert (done.code, done.out) == (ExitCode.FAILURE, "")
    assert "impossible" in done.err


def test_debug_shows_the_traceback(cli):
    assert "Traceback" in cli("inspect", "no-such.onnx", "--debug").err
    assert "Traceback" not in cli("inspect", "no-such.onnx").err


@pytest.mark.skipif(os.name == "nt", reason="pipes end otherwise there")
def test_reader_that_goes_away(digits):
    command = [sys.executable, "-P", "-m", "ort_sdk", "kernels", "--provider", "cpu"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == ExitCode.BROKEN_PIPE
