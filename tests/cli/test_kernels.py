import json

import pytest

from ort_sdk.api import CPU_DEVICE, KernelRegistry, ProviderHooks, hookimpl
from ort_sdk.cli.exit_codes import ExitCode
from ort_sdk.cli.models.kernel_table import kernel_page, kernel_rows, type_set_text
from ort_sdk.plugins import plugin_manager


@pytest.mark.parametrize(
    ("types", "text"),
    [
        (["tensor(float)"], "f32"),
        (["tensor(double)", "tensor(float)", "tensor(float16)", "tensor(bfloat16)"], "f* bf16"),
        (["tensor(int8)", "tensor(int16)", "tensor(int32)", "tensor(int64)", "tensor(uint8)"], "i* u8"),
        (["tensor(string)", "seq(tensor(string))", "seq(tensor(float))"], "str seq(f32 str)"),
        (["optional(seq(tensor(bool)))"], "optional seq(bool)"),
        (["map(int64, string)", "map(string, float)"], "map(int64,string string,float)"),
    ],
    ids=str,
)
def test_type_sets(types, text):
    assert type_set_text(types) == text


def registries():
    first, second = KernelRegistry("First"), KernelRegistry("Second")
    for version in (6, 13, 14):
        first.kernel("Relu", version, {"T": ["tensor(float)"]})(abs)
    second.kernel("Relu", 14, {"T": ["tensor(float)"]})(abs)
    second.kernel("Odd", 1, domain="own")(abs)
    return [first, second]


def test_rows_merge_versions_and_providers():
    rows = {(row.op_type, row.versions): row.providers for row in kernel_rows(registries())}
    assert rows == {("Relu", (6, 13)): ("First",), ("Relu", (14,)): ("First", "Second"), ("Odd", (1,)): ("Second",)}


def test_page():
    page = kernel_page(kernel_rows(registries()), ["First", "Second"], "command")
    assert "| Relu | 6-13 | T: `f32` | First |\n|  | 14 | T: `f32` | First, Second |" in page
    assert "## own" in page


class LostProvider(ProviderHooks):
    name = "LostExecutionProvider"

    @hookimpl
    def get_supported_devices(self):
        return [CPU_DEVICE]

    @hookimpl
    def create_execution_provider(self, device, provider_options, session_options):
        raise RuntimeError("driver lost")


@pytest.fixture
def lost():
    plugin_manager().register(LostProvider(), name="lost")
    yield
    plugin_manager().unregister("lost")


@pytest.mark.usefixtures("lost")
def test_a_broken_provider_does_not_break_the_list_of_the_others(cli):
    done = cli("kernels")
    assert done.code == ExitCode.PROVIDER
    assert "CPUExecutionProvider" in done.out
    assert "left out: RuntimeError('driver lost') (raised in hook create_execution_provider of execution provider" in done.err


@pytest.mark.usefixtures("lost")
@pytest.mark.parametrize("command", [["kernels"], ["explain", "examples/digits/digits.onnx"]])
def test_what_a_provider_raises_is_one_line(cli, command):
    done = cli(*command, "--provider", "lost")
    assert (done.code, done.out, len(done.err.splitlines())) == (ExitCode.FAILURE, "", 1)
    assert "error: RuntimeError('driver lost') (raised in hook create_execution_provider" in done.err


def test_check(cli, tmp_path):
    page = tmp_path / "folder" / "kernels.md"
    arguments = ["kernels", "--provider", "cpu", "--output", page]
    assert cli(*arguments).code == 0
    text = page.read_text(encoding="utf-8")
    assert text.rstrip("\n").splitlines()[8:] == cli("kernels", "--provider", "cpu").out.splitlines()[8:]
    assert cli(*arguments, "--check").code == 0
    page.write_text(text + "more\n", encoding="utf-8")
    done = cli(*arguments, "--check")
    assert done.code == ExitCode.FAILURE
    assert "not up to date" in done.err
    assert page.read_text(encoding="utf-8") == text + "more\n"
    page.unlink()
    assert cli(*arguments, "--check").code == ExitCode.NO_SUCH_FILE
    assert cli("kernels", "--check").code == ExitCode.USAGE


def test_json(cli):
    rows = json.loads(cli("kernels", "--provider", "cpu", "--json").out)
    assert {"domain": "", "op_type": "And", "versions": [1, 7], "providers": ["CPUExecutionProvider"]}.items() <= next(
        row for row in rows if row["op_type"] == "And"
    ).items()
