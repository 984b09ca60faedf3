"""Files of every kind as inputs, right ones and wrong ones."""

import json

import numpy as np
import pytest
from onnx import TensorProto
from PIL import Image


@pytest.fixture
def values(cli):
    """Runs a model that gives its input back."""

    def run(model, *arguments):
        done = cli("run", model, *arguments, "--json")
        assert done.code == 0, done.err
        return np.array(json.loads(done.out)["outputs"]["y"]["values"])

    return run


def refusal(done, code=2):
    assert done.code == code
    assert done.out == ""
    assert "Traceback" not in done.err
    return done.err


@pytest.fixture
def rgb(tmp_path):
    """An image of 4x2 pixels whose channels differ: 10, 20, 30 in the first one."""
    pixels = np.arange(24, dtype=np.uint8).reshape(2, 4, 3) * 10 + np.uint8([10, 10, 10])
    path = tmp_path / "rgb.png"
    Image.fromarray(pixels).save(path)
    return path, pixels


@pytest.mark.parametrize(
    ("shape", "arranged"),
    [
        ([1, 3, 2, 4], lambda p: p.transpose(2, 0, 1)[None]),
        (["n", 2, 4, 3], lambda p: p[None]),
        (["n", 3, None, "w"], lambda p: p.transpose(2, 0, 1)[None]),
        ([3, 2, 4], lambda p: p.transpose(2, 0, 1)),
        ([2, 4, 3], lambda p: p),
    ],
    ids=["batch-first", "channels-last", "symbols", "no-batch", "no-batch-channels-last"],
)
def test_layout_follows_the_input(values, identity, rgb, shape, arranged):
    path, pixels = rgb
    found = values(identity(TensorProto.UINT8, shape), "--input", path)
    np.testing.assert_array_equal(found, arranged(pixels))
    floats = values(identity(TensorProto.FLOAT, shape), "--input", path)
    np.testing.assert_allclose(floats, arranged(pixels) / 255, rtol=1e-6)


@pytest.mark.parametrize("shape", [[1, 1, 2, 4], [1, 2, 4], [2, 4], [1, 2, 4, 1]], ids=str)
def test_one_channel_is_gray(values, identity, rgb, shape):
    path, _ = rgb
    gray = np.asarray(Image.open(path).convert("L"))
    np.testing.assert_array_equal(values(identity(TensorProto.UINT8, shape), "--input", path).reshape(2, 4), gray)


def test_channels_of_an_ambiguous_shape(values, identity, rgb):
    path, pixels = rgb
    model = identity(TensorProto.UINT8, [None, None, None, None])
    np.testing.assert_array_equal(values(model, "--input", path), pixels.transpose(2, 0, 1)[None])
    found = values(model, "--input", path, "--layout", "nhwc", "--channels", "bgr")
    np.testing.assert_array_equal(found, pixels[None, ..., ::-1])
    assert values(model, "--input", path, "--channels", "gray").shape == (1, 1, 2, 4)
    assert values(model, "--input", path, "--resize", "6x5").shape == (1, 3, 5, 6)


def test_resized_to_the_input(values, identity, rgb):
    assert values(identity(shape=[1, 3, 16, 8]), "--input", rgb[0]).shape == (1, 3, 16, 8)


def test_all_pixels_in_one_dimension(values, identity, image):
    assert values(identity(shape=["n", 64]), "--input", image).shape == (1, 64)
    assert values(identity(shape=["n", 6]), "--input", image, "--resize", "3x2").shape == (1, 6)


def test_scale_mean_and_std(values, identity, rgb):
    path, pixels = rgb
    model = identity(shape=[1, 3, 2, 4])
    plain = pixels.transpose(2, 0, 1)[None].astype(np.float64)
    per_channel = np.array([0.485, 0.456, 0.406]).reshape(1, 3, 1, 1)

    def close(expected, *arguments):
        np.testing.assert_allclose(values(model, "--input", path, *arguments), expected, rtol=1e-5, atol=1e-5)

    close(plain * 2, "--scale", "2")
    close(plain / 127.5 - 1, "--scale", "1/127.5", "--mean", "1")
    close((plain / 255 - per_channel) / 0.25, "--mean", "0.485,0.456,0.406", "--std", "0.25")
    close((plain - 127) / 128, "--mean", "127", "--std", "128")
    close(plain - 100, "--scale", "1", "--mean=100")


def test_whole_numbers_are_rounded_and_clipped(values, identity, rgb):
    path, pixels = rgb
    found = values(identity(TensorProto.UINT8, [1, 3, 2, 4]), "--input", path, "--mean", "100.4")
    np.testing.assert_array_equal(found[0], np.clip(np.rint(pixels.transpose(2, 0, 1) - 100.4), 0, 255))


def test_encoded_bytes_for_a_model_that_decodes(values, identity, rgb):
    found = values(identity(TensorProto.UINT8, ["bytes"]), "--input", rgb[0])
    assert bytes(found.astype(np.uint8)) == rgb[0].read_bytes()


@pytest.mark.parametrize("suffix", ["png", "jpg", "jpeg", "bmp", "PNG"])
def test_kinds_of_images(values, identity, tmp_path, suffix):
    path = tmp_path / f"p.{suffix}"
    Image.new("RGBA" if suffix == "png" else "RGB", (5, 5), "white").save(path)
    np.testing.assert_allclose(values(identity(shape=[1, 3, 5, 5]), "--input", path), 1, atol=0.01)


@pytest.mark.parametrize(
    ("text", "shape"),
    [("1 2 3 4", [2, 2]), ("1,2\n3,4\n", [2, 2]), ("1\n2\n3\n4", ["n", 2]), ("1 2\n\n3 4", [None, 2]), ("1 2 3 4", ["a", "b"])],
    ids=range(5),
)
@pytest.mark.parametrize("element_type", [TensorProto.FLOAT, TensorProto.INT64, TensorProto.FLOAT16, TensorProto.BFLOAT16])
def test_numbers_in_a_text(values, identity, tmp_path, element_type, text, shape):
    path = tmp_path / "x.txt"
    path.write_text(text, encoding="utf-8")
    found = values(identity(element_type, shape), "--input", path)
    assert found.ravel().tolist() == [1, 2, 3, 4]
    assert found.shape == ((1, 4) if shape == ["a", "b"] else (2, 2))


def test_json(values, identity, tmp_path):
    path = tmp_path / "x.json"
    path.write_text("[[1, 2], [3, 4.5]]", encoding="utf-8")
    np.testing.assert_array_equal(values(identity(), "--input", f"x={path}"), [[1, 2], [3, 4.5]])


def test_archive(cli, values, add, identity, tmp_path):
    path = tmp_path / "both.npz"
    np.savez(path, a=np.ones((1, 2), np.float32), b=np.float32([2, 3]))
    done = cli("run", add, "--input", path, "--json")
    assert json.loads(done.out)["outputs"]["c"]["values"] == [[3, 4]]
    assert "has no array 'x'" in refusal(cli("run", identity(), "--input", f"x={path}"))
    assert "are no inputs" in refusal(cli("run", identity(), "--input", path))


def test_other_type_is_converted_only_when_asked(cli, values, identity, save_array):
    doubles = save_array("x.npy", np.ones((2, 2)))
    assert "--dtype float" in refusal(cli("run", identity(), "--input", doubles))
    for name in ("float", "float32"):
        assert values(identity(), "--input", doubles, "--dtype", name).tolist() == [[1, 1], [1, 1]]
    assert "no element type" in refusal(cli("run", identity(), "--input", doubles, "--dtype", "blue"))


def test_wrong_shape(cli, identity, save_array, tmp_path):
    assert "input 'x' is [2, 2], its file has [3]" in refusal(
        cli("run", identity(), "--input", save_array("x.npy", np.ones(3, np.float32)))
    )
    path = tmp_path / "x.txt"
    path.write_text("1 2 3", encoding="utf-8")
    assert "do not fill input 'x' [2, 2]" in refusal(cli("run", identity(), "--input", path))


@pytest.mark.parametrize(
    ("name", "content"),
    [("x.png", b"no image"), ("x.npy", b"no array"), ("x.npz", b"no archive"), ("x.json", b"{"), ("x.txt", b"one two")],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_damaged_file(cli, identity, tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    assert name in refusal(cli("run", identity(shape=[1, 3, 8, 8]), "--input", path))


def test_half_an_image(cli, digits, image, tmp_path):
    path = tmp_path / "half.png"
    path.write_bytes(image.read_bytes()[:100])
    assert "half.png" in refusal(cli("run", digits, "--input", path))


def test_objects_are_not_loaded_from_npy(cli, identity, tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, np.array([print], dtype=object), allow_pickle=True)
    assert "x.npy" in refusal(cli("run", identity(), "--input", path))


def test_no_image_for_this_input(cli, identity, rgb):
    assert "dimensions of an image" in refusal(cli("run", identity(shape=[2, 2, 2, 2, 2]), "--input", rgb[0]))
    assert "has 5 channels" in refusal(cli("run", identity(shape=[1, 5, 4, 4]), "--input", rgb[0], "--layout", "nchw"))
    assert "no square image" in refusal(cli("run", identity(shape=["n", 63]), "--input", rgb[0]))
    assert "takes no images" in refusal(cli("run", identity(TensorProto.STRING, [1, 3, 2, 4]), "--input", rgb[0]))


def test_missing_inputs_are_listed(cli, add, save_array):
    err = refusal(cli("run", add))
    assert "a: tensor(float) [rows, 2]" in err
    assert "b: tensor(float) [2]" in err
    err = refusal(cli("run", add, "--input", f"a={save_array('a.npy', np.ones((1, 2), np.float32))}"))
    assert "  a:" not in err
    assert "  b:" in err


def test_wrong_name(cli, digits, add, image):
    err = refusal(cli("run", digits, "--input", f"photo={image}"))
    assert "no input 'photo'" in err
    assert "image: tensor(float) [batch, 1, 8, 8]" in err
    assert "NAME=FILE" in refusal(cli("run", add, "--input", image))


@pytest.mark.parametrize(
    "option",
    [["--resize", "8"], ["--resize", "0x8"], ["--scale", "big"], ["--scale", "1/0"], ["--std", "1,0,1"], ["--mean", "1,2"]],
)
def test_wrong_image_option(cli, digits, image, option):
    assert option[0] in refusal(cli("run", digits, "--input", image, *option))


def test_unequal_batch(cli, identity, save_array):
    model = identity(shape=["n", "m"])
    one, two = save_array("1.npy", np.ones((1, 2), np.float32)), save_array("2.npy", np.ones((1, 3), np.float32))
    assert "make no batch" in refusal(cli("run", model, "--input", one, "--input", two))


def test_unknown_kind_of_file(cli, digits):
    assert "must end in" in refusal(cli("run", digits, "--input", digits))
