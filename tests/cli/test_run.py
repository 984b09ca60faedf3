import json
import re

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper


def first_class(out):
    return out.splitlines()[2].split()[0]


def test_first_command_of_the_readme(shell):
    done = shell("run", "examples/digits/digits.onnx", "--input", "image=examples/digits/images/digit_7_a.png")
    assert done.code == 0
    assert done.err == ""
    assert first_class(done.out) == "7"


@pytest.mark.parametrize("digit", range(10))
@pytest.mark.parametrize("letter", "ab")
def test_reads_every_digit(cli, digits, digit, letter):
    image = digits.parent / "images" / f"digit_{digit}_{letter}.png"
    assert first_class(cli("run", digits, "--input", image).out) == str(digit)


def test_json_scores_are_those_of_onnxruntime(cli, digits, image):
    done = cli("run", digits, "--input", f"image={image}", "--json", "--top", "3")
    (name, output), *others = json.loads(done.out)["outputs"].items()
    assert (name, others, done.err) == ("probabilities", [], "")
    (top,) = output["top"]
    assert top[0]["class"] == "7"
    assert len(top) == 3
    from PIL import Image

    small = Image.open(image).convert("L").resize((8, 8))
    image = np.asarray(small, np.float32).reshape(1, 1, 8, 8) / 255
    (expected,) = onnxruntime.InferenceSession(str(digits)).run(None, {"image": image})
    np.testing.assert_allclose(output["values"], expected, rtol=1e-4, atol=1e-6)
    assert output["shape"] == [1, 10]
    assert output["type"] == "float32"


def test_repeated_name_makes_a_batch(cli, digits):
    images = [digits.parent / "images" / f"digit_{digit}_a.png" for digit in (3, 1, 4)]
    done = cli("run", digits, "--json", *(word for image in images for word in ("--input", f"image={image}")))
    output = json.loads(done.out)["outputs"]["probabilities"]
    assert output["shape"] == [3, 10]
    assert [row[0]["class"] for row in output["top"]] == ["3", "1", "4"]


def test_output_folder(cli, add, save_array, tmp_path):
    a = np.float32([[1, 2], [3, 4]])
    feeds = ["--input", f"a={save_array('a.npy', a)}", "--input", f"b={save_array('b.npy', a[0])}"]
    done = cli("run", add, *feeds, "--output", tmp_path / "new" / "folder")
    assert done.code == 0
    np.testing.assert_array_equal(np.load(tmp_path / "new" / "folder" / "c.npy"), a + a[0])
    assert "c: float32 [2, 2]" in done.out
    assert "[[2. 4.]\n   [4. 6.]]" in done.out
    assert "c.npy" in done.out


@pytest.mark.parametrize("level", ["none", "basic", "extended", "all"])
def test_levels(cli, digits, image, level):
    assert first_class(cli("run", digits, "--input", image, "--level", level).out) == "7"


@pytest.mark.parametrize("name", ["cpu", "CPUExecutionProvider"])
def test_provider_by_either_name(cli, digits, image, name):
    done = cli("run", digits, "--input", image, "--provider", name, "--option", "device_id=0", "--option", f"{name}.device_id=0")
    assert first_class(done.out) == "7"


@pytest.mark.parametrize(
    "text", ['["cat", "dog"]', '{"0": "cat", "1": "dog"}', "{0: 'cat', 1: 'dog'}", "cat,dog", "cat\ndog\n"], ids=range(5)
)
@pytest.mark.parametrize("key", ["classes", "labels", "names"])
def test_class_names_in_metadata(cli, identity, save_array, key, text):
    model = identity(shape=(1, 2), metadata={key: text})
    done = cli("run", model, "--input", save_array("x.npy", np.float32([[0.25, 0.75]])))
    assert re.search(r"dog +0.7500\n +cat +0.2500", done.out)


def test_not_a_number_is_json(cli, identity, save_array):
    done = cli("run", identity(), "--input", save_array("x.npy", np.float32([[np.nan, np.inf], [-np.inf, 1]])), "--json")
    assert json.loads(done.out)["outputs"]["y"]["values"] == [["NaN", "Infinity"], ["-Infinity", 1.0]]


def test_strings(cli, identity, tmp_path):
    lines = tmp_path / "lines.txt"
    lines.write_text("Grüße, Welt\n[bold]two words\n", encoding="utf-8")
    done = cli("run", identity(TensorProto.STRING, [None]), "--input", f"x={lines}", "--json")
    assert json.loads(done.out)["outputs"]["y"]["values"] == ["Grüße, Welt", "[bold]two words"]


def test_model_without_inputs(cli, save):
    node = helper.make_node("Constant", [], ["y"], value_ints=[4, 5])
    done = cli("run", save([node], [], [("y", TensorProto.INT64, [2])]))
    assert "y: int64 [2]\n  [4 5]" in done.out


def test_default_of_an_input_may_be_used(cli, save):
    node = helper.make_node("Neg", ["x"], ["y"])
    values = [("x", TensorProto.FLOAT, [2])]
    model = save([node], values, [("y", TensorProto.FLOAT, [2])], weights={"x": np.float32([1, 2])})
    assert "[-1. -2.]" in cli("run", model).out


def test_help_imports_neither_onnx_nor_a_provider(shell):
    import subprocess
    import sys

    code = (
        "import sys\nfrom ort_sdk.cli import main\n"
        "try:\n    main(['run', '--help'])\nexcept SystemExit:\n    pass\n"
        "providers = {'ort_sdk_cpu', 'ort_sdk_cuda', 'ort_sdk_opencl'}\n"
        "print(sorted(({'onnx', 'google.protobuf', 'rich', 'PIL'} | providers) & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
