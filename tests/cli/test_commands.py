"""The commands that show and measure."""

import itertools
import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from ort_sdk_cpu.plugin import CpuProvider

from ort_sdk.api import TensorElementType, hookimpl
from ort_sdk.cli.exit_codes import ExitCode
from ort_sdk.cli.models import device_check
from ort_sdk.plugins import plugin_manager, reset_manager
from ort_sdk.testing.strict.provider import STRICT_PROVIDER, STRICT_TYPES, StrictProvider


@pytest.fixture
def strict():
    """A device of its own without double, by its provider's name."""
    plugin_manager().register(StrictProvider(STRICT_TYPES - {TensorElementType.DOUBLE}), name="strict")
    yield STRICT_PROVIDER
    plugin_manager().unregister("strict")


@pytest.fixture
def detour(save):
    """``y = Relu(-x)``, the negation in double."""
    nodes = [
        helper.make_node("Abs", ["x"], ["a"], name="abs"),
        helper.make_node("Cast", ["x"], ["wide"], to=TensorProto.DOUBLE),
        helper.make_node("Neg", ["wide"], ["negative"]),
        helper.make_node("Cast", ["negative"], ["narrow"], to=TensorProto.FLOAT),
        helper.make_node("Relu", ["narrow"], ["y"], name="relu"),
    ]
    return save(nodes, [("x", TensorProto.FLOAT, [2])], [("y", TensorProto.FLOAT, [2]), ("a", TensorProto.FLOAT, [2])])


def test_providers(shell):
    done = shell("providers")
    assert done.code == 0
    assert "CPUExecutionProvider" in done.out
    assert "ort-sdk-cpu" in done.out
    rows = json.loads(shell("providers", "--json").out)["providers"]
    (cpu,) = [row for row in rows if row["name"] == "CPUExecutionProvider"]
    assert (cpu["state"], cpu["devices"]) == ("loaded", ["cpu:0"])


def test_providers_check_computes(cli, monkeypatch):
    monkeypatch.setenv("ORT_SDK_LOAD_PROVIDERS", "cpu")
    checks = json.loads(cli("providers", "--check", "--json").out)["checks"]
    (cpu,) = [check for check in checks if check["provider"] == "CPUExecutionProvider"]
    assert (cpu["device"], cpu["passed"], cpu["detail"]) == ("cpu:0", True, "computed Add, Relu")
    text = cli("providers", "--check").out
    assert "PASS  CPUExecutionProvider" in text
    assert all(line in text for line in cpu["environment"])
    assert all(any(name in line for line in cpu["environment"]) for name in ("oneDNN", "numba", "instruction set", "thread"))


def test_providers_check_model():
    model = onnx.load_from_string(device_check.ADD_RELU)
    onnx.checker.check_model(model, full_check=True)
    assert [node.op_type for node in model.graph.node] == ["Add", "Relu"]


def test_providers_check_fails(cli):
    class Broken(CpuProvider):
        name = "BrokenExecutionProvider"

        @hookimpl
        def get_kernel_registry(self, execution_provider):
            raise OSError("its library is gone")

    plugin_manager().register(Broken())
    try:
        done = cli("providers", "--check")
    finally:
        plugin_manager().unregister(Broken.name)
    assert done.code == ExitCode.PROVIDER
    assert "FAIL  BrokenExecutionProvider" in done.out
    assert "its library is gone" in done.out
    assert "PASS  CPUExecutionProvider" in done.out


FAKE_DISTS = Path(__file__).parents[1] / "data" / "fake_dists"


@pytest.fixture
def installed(monkeypatch):
    """Adds fake distributions to what is installed."""

    def add(*names):
        for name in names:
            monkeypatch.syspath_prepend(str(FAKE_DISTS / name))
        reset_manager()

    yield add
    reset_manager()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("too_new", "is refused"),
        ("misspelt", "is refused"),
        ("import_error", "is unavailable"),
        ("device_error", "(raised in hook get_supported_devices)"),
    ],
)
def test_providers_check_fails_for_what_is_installed_and_cannot_be_used(cli, installed, monkeypatch, name, text):
    assert cli("providers", "--check").code == ExitCode.OK
    installed(name)
    done = cli("providers", "--check")
    assert done.code == ExitCode.PROVIDER
    (line,) = [line for line in done.out.splitlines() if line.startswith("  FAIL")]
    assert text in line
    (check,) = [check for check in json.loads(cli("providers", "--check", "--json").out)["checks"] if not check["passed"]]
    assert text in check["detail"]
    assert cli("providers").code == ExitCode.OK
    monkeypatch.setenv("ORT_SDK_DISABLED_PROVIDERS", check["provider"])
    installed()
    assert cli("providers", "--check").code == ExitCode.OK


def test_providers_check_passes_where_a_device_is_missing(cli, installed):
    installed("no_device")
    done = cli("providers", "--check")
    assert "unavailable" in done.out
    assert done.code == ExitCode.OK


def test_what_providers_print_is_not_the_commands(cli, installed):
    installed("prints")
    for command in (("providers", "--check"), ("explain", "examples/digits/digits.onnx", "--provider", "prints")):
        done = cli(*command, "--json")
        json.loads(done.out)
        assert "noise" not in done.out
        assert "noise of the session" in done.err


def test_a_fault_of_ours_is_a_line_too(cli, monkeypatch):
    def broken(*_):
        raise AssertionError("cannot be")

    monkeypatch.setattr("ort_sdk.cli.commands.providers.provider_report", broken)
    done = cli("providers")
    assert (done.code, done.out) == (ExitCode.FAILURE, "")
    assert done.err == "ort-sdk providers: error: AssertionError('cannot be'); --debug shows where it was raised\n"
    assert "Traceback" in cli("providers", "--debug").err


def test_providers_check_computes_on_the_device_itself(cli, strict):
    checks = [row for row in json.loads(cli("providers", "--check", "--json").out)["checks"] if row["provider"] == strict]
    assert len({row["device"] for row in checks}) == len(checks) >= 2
    assert {(row["passed"], row["detail"]) for row in checks} == {(True, "computed Add, Relu")}


def test_inspect(cli, digits):
    out = cli("inspect", digits).out
    for text in (
        "image: float[batch, 1, 8, 8]",
        "probabilities: float[batch, 10]",
        "ai.onnx 17",
        "2  Conv",
        "6 tensors, 39,720 bytes",
    ):
        assert text in out
    summary = json.loads(cli("inspect", digits, "--json").out)
    assert summary["operators"]["Conv"] == 2
    assert summary["weights"] == {"float": {"tensors": 6, "size_bytes": 39720}}
    assert json.loads(summary["metadata"]["classes"])[9] == "9"


@pytest.mark.parametrize(
    ("stage", "text"),
    [
        ("graph", "Conv-11(image, conv1.weight, conv1.bias) <kernel_shape=[3, 3], pads=[1, 1, 1, 1]>"),
        ("optimized", "graph 'digits'"),
        ("partition", "@CPUExecutionProvider"),
        ("kernels", "deterministic"),
        ("memory", "weights: "),
        ("plan", "feed   %1 image on cpu:0"),
    ],
)
def test_stages(cli, digits, stage, text):
    done = cli("inspect", digits, "--stage", stage)
    assert done.code == 0, done.err
    assert text in done.out
    assert json.loads(cli("inspect", digits, "--stage", stage, "--json").out)


def test_inspect_does_not_need_kernels(cli, homeless):
    assert "nowhere.Frobnicate" in cli("inspect", homeless).out
    assert "nowhere.Frobnicate" in cli("inspect", homeless, "--stage", "graph").out
    assert cli("inspect", homeless, "--stage", "plan").code == ExitCode.NO_KERNEL


def test_inspect_bodies(cli, save):
    body = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["b"], name="inner")],
        "body",
        [],
        [helper.make_tensor_value_info("b", TensorProto.FLOAT, [2])],
    )
    node = helper.make_node("If", ["c"], ["y"], name="choice", then_branch=body, else_branch=body)
    model = save([node], [("c", TensorProto.BOOL, []), ("x", TensorProto.FLOAT, [2])], [("y", TensorProto.FLOAT, [2])])
    out = cli("inspect", model, "--stage", "partition").out
    assert "then_branch:\n      graph 'body'\n" in out
    assert out.count("Neg-13(x) @CPUExecutionProvider") == 2
    nodes = json.loads(cli("inspect", model, "--stage", "graph", "--json").out)["nodes"]
    assert nodes[0]["bodies"]["else_branch"]["nodes"][0]["op_type"] == "Neg"
    rows = json.loads(cli("explain", model, "--json").out)["nodes"]
    assert sorted(row["operator"] for row in rows) == ["If-16", "Neg-13", "Neg-13"]


def test_explain(cli, digits):
    done = cli("explain", digits, "--level", "none")
    assert done.code == 0
    assert "8 nodes: 8 on CPUExecutionProvider; copies inserted: none" in done.out
    assert "Relu-14" in done.out
    assert "relu1" in cli("explain", digits, "--nodes", "--level", "none").out


def test_explain_a_program(cli, digits):
    report = json.loads(cli("explain", digits, "--program", "--level", "none", "--json").out)["program"]
    assert report["operators"] >= report["steps"] > 3
    assert report["bound"] > 3
    assert report["layout_copies"] >= 0
    assert "replayed by a program of" in cli("explain", digits, "--program", "--level", "none").out


def test_explain_rejections_and_copies(cli, detour, strict):
    done = cli("explain", detour, "--provider", strict, "--level", "none")
    assert done.code == 0, done.err
    assert "Neg-13, StrictExecutionProvider:" in done.out
    assert "tensor(double)" in done.out
    assert "copies inserted: 2 MemcpyFromHost" in done.out
    report = json.loads(cli("explain", detour, "--provider", strict, "--level", "none", "--json").out)
    assert report["providers"] == {"CPUExecutionProvider": 3, strict: 2}


def test_explain_half_values_kept_in_float(cli, save):
    half = TensorProto.FLOAT16
    nodes = [
        helper.make_node("Exp", ["x"], ["e"]),
        helper.make_node("Cast", ["e"], ["idle"], to=half),
        helper.make_node("Sqrt", ["idle"], ["y"]),
    ]
    model = save(nodes, [("x", half, [2])], [("y", half, [2]), ("e", half, [2])])
    done = cli("explain", model, "--level", "none")
    assert "kept in float between operators that compute in it: 2 (e, idle)" in done.out
    report = json.loads(cli("explain", model, "--level", "none", "--json").out)
    assert report["kept_in_float"] == ["e", "idle"]
    assert [row["operator"].split("-")[0] for row in report["nodes"]] == ["Exp", "Identity", "Sqrt", "Cast", "Cast", "Cast"]
    assert report["nodes"][2]["type_strings"]["T"]["type"] == "tensor(float)"
    assert "e_as_float" in cli("inspect", model, "--stage", "plan", "--level", "none").out


@pytest.mark.parametrize("command", ["run", "bench", "profile"])
def test_on_a_device(cli, detour, strict, command, save_array):
    done = cli(command, detour, "--provider", strict, "--input", save_array("x.npy", np.float32([1, -2])), "--json")
    assert done.code == 0, done.err
    if command == "run":
        assert json.loads(done.out)["outputs"]["y"]["values"] == [0.0, 2.0]


def test_explain_where_no_session_is_possible(cli, homeless):
    done = cli("explain", homeless)
    assert done.code == ExitCode.NO_KERNEL
    assert "nowhere.Frobnicate" in done.out
    assert "no kernel for this operator" in done.out
    assert "2 nodes: 1 on CPUExecutionProvider, 1 on no provider" in done.out
    report = json.loads(cli("explain", homeless, "--json").out)
    assert report["unplaced"] == 1
    (row,) = [row for row in report["nodes"] if not row["provider"]]
    assert row["rejections"] == {"CPUExecutionProvider": ["no kernel for this operator"]}


def test_bench(cli, digits, image):
    done = cli("bench", digits, "--runs", "3", "--warmup", "2", "--json")
    report = json.loads(done.out)
    assert report["runs"] == 3
    assert 0 < report["min_ms"] <= report["median_ms"] <= report["p90_ms"] <= report["max_ms"]
    assert report["session_creation_ms"] > 0
    table = cli("bench", digits, "--runs", "1", "--dim", "batch=3", "--input", image).out
    assert "median_ms" in table


def test_bench_threads(shell, cli, digits):
    done = shell("bench", digits, "--runs", "2", "--threads", "1", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["runs"] == 2
    assert shell("bench", "no-such.onnx", "--threads", "1").code == ExitCode.NO_SUCH_FILE
    assert cli("bench", digits, "--threads", "0").code == ExitCode.USAGE


@pytest.mark.parametrize("command", ["bench", "profile"])
def test_dimensions(cli, add, command):
    assert cli(command, add, "--runs", "1", "--dim", "rows=4").code == 0
    assert "no dimension 'columns'" in cli(command, add, "--dim", "columns=4").err
    assert cli(command, add, "--dim", "rows=many").code == ExitCode.USAGE


@pytest.mark.parametrize("element_type", [TensorProto.STRING, TensorProto.BOOL, TensorProto.INT32, TensorProto.FLOAT16])
def test_made_up_inputs(cli, identity, element_type):
    assert cli("bench", identity(element_type, ["n", 3]), "--runs", "1").code == 0


def test_no_made_up_input_without_a_shape(cli, identity):
    done = cli("bench", identity(shape=None))
    assert done.code == ExitCode.USAGE
    assert "--input" in done.err


def test_profile(cli, digits):
    report = json.loads(cli("profile", digits, "--runs", "20", "--level", "none", "--json").out)
    convolutions = [row for row in report["rows"] if "Conv" in row["operator"].split("+")]
    assert report["how"] == "program"
    assert sum(row["calls"] for row in convolutions) == 2
    assert {row["provider"] for row in convolutions} == {"CPUExecutionProvider"}
    # What a run takes besides its steps has a row of its own: nothing is left out.
    assert sum(row["ms"] for row in report["rows"]) >= report["run_ms"] * 0.999
    nodes = json.loads(cli("profile", digits, "--runs", "2", "--level", "none", "--nodes", "--json").out)["rows"]
    assert {"conv1", "conv2", "softmax"} <= {name for row in nodes for name in row["node"].split(", ")}
    assert "as replayed by a program" in cli("profile", digits, "--runs", "1").out


def test_profile_step_by_step(cli, digits):
    report = json.loads(cli("profile", digits, "--runs", "2", "--level", "none", "--step-by-step", "--json").out)
    assert report["how"] == "step by step"
    assert {"Conv", "Flatten"} <= {row["operator"] for row in report["rows"]}
    assert "step by step" in cli("profile", digits, "--runs", "1", "--step-by-step").out


def test_memory_of_devices_is_shown(cli, save, strict):
    nodes = [helper.make_node("Neg", [a], [b]) for a, b in itertools.pairwise("xabcy")]
    model = save(nodes, [("x", TensorProto.FLOAT, [64])], [("y", TensorProto.FLOAT, [64])])
    bench = ("bench", model, "--provider", strict, "--runs", "2", "--level", "none")
    devices = json.loads(cli(*bench, "--json").out)["devices"]
    assert devices == {
        "strict:0": {"weights_bytes": 0, "arena_bytes": 512, "values_bytes": 0, "kernels_bytes": 0, "peak_bytes": 512}
    }
    assert "strict:0 arena_bytes" in cli(*bench).out
    explain = ("explain", model, "--provider", strict, "--level", "none", "--program")
    assert json.loads(cli(*explain, "--json").out)["program"]["device_bytes"] == 512
    assert "bytes of buffers on devices: 512" in cli(*explain).out
