"""InferenceSession.run, in onnxruntime and here."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto

import ort_sdk
from tests.session import models

X = np.array([[1, 2], [3, 4]], np.float32)


def errors(ort):
    return ort.capi.onnxruntime_pybind11_state


def test_all_outputs_in_order(session):
    y, z = session(models.affine()).run(None, {"x": X})
    np.testing.assert_array_equal(y, X @ np.arange(6).reshape(2, 3) + 1)
    np.testing.assert_array_equal(z, y)


@pytest.mark.parametrize("names", [[], (), None])
def test_no_names_mean_all(session, names):
    assert len(session(models.affine()).run(names, {"x": X})) == 2


def test_named_outputs_come_as_asked(session):
    z, y, again = session(models.affine()).run(["z", "y", "z"], {"x": -X})
    assert z.min() == 0 > y.min()
    np.testing.assert_array_equal(again, z)


def test_named_outputs_are_not_copied(monkeypatch):
    made = ort_sdk.InferenceSession(models.affine(), providers=["CPUExecutionProvider"])
    copied = []
    monkeypatch.setattr("ort_sdk.session.calls.fetches._own_copy", lambda array: copied.append(array.shape) or array.copy())
    made.run(["y", "z"], {"x": X})
    assert not copied
    first, second = made.run(["y", "y"], {"x": X})
    assert len(copied) == 1
    assert not np.may_share_memory(first, second)


def test_default_may_be_fed_or_left_out(session):
    made = session(models.affine())
    c = np.full(3, 5, np.float32)
    np.testing.assert_array_equal(made.run(["y"], {"x": X, "c": c})[0], made.run(["y"], {"x": X})[0] + 4)


def test_bare_text_is_no_list_of_names(session):
    with pytest.raises(TypeError, match="incompatible function arguments"):
        session(models.identity()).run("y", {"x": X})


def test_name_that_is_no_text(session):
    made = session(models.identity())
    with pytest.raises(TypeError, match="incompatible function arguments"):
        made.run([None], {"x": X})
    with pytest.raises(TypeError, match="incompatible function arguments"):
        made.run(None, {"x": X, 1: X})


def test_run_options_of_another_class(session):
    with pytest.raises(TypeError, match="incompatible function arguments"):
        session(models.identity()).run(None, {"x": X}, 3)


def test_unknown_output(ort, session):
    with pytest.raises(errors(ort).InvalidArgument, match=r"\[ONNXRuntimeError\] : 2 : INVALID_ARGUMENT : Invalid output name:q"):
        session(models.identity()).run(["q"], {"x": X})


def test_inner_value_is_no_output(ort, session):
    with pytest.raises(errors(ort).InvalidArgument, match="Invalid output name:p"):
        session(models.affine()).run(["p"], {"x": X})


def test_missing_input(session):
    with pytest.raises(ValueError, match=r"Required inputs \(\['x'\]\) are missing from input feed \(\[\]\)."):
        session(models.identity()).run(None, {})


def test_unknown_input(ort, session):
    with pytest.raises(errors(ort).InvalidArgument, match="Invalid input name: q"):
        session(models.identity()).run(None, {"x": X, "q": X})


def test_none_for_unknown_input_is_nothing(session):
    np.testing.assert_array_equal(session(models.identity()).run(None, {"x": X, "q": None})[0], X)


def test_none_for_needed_input(ort, session):
    with pytest.raises(errors(ort).Fail):
        session(models.identity()).run(None, {"x": None})


@pytest.mark.parametrize(
    ("fed", "text"),
    [
        (X.astype(np.float64), r"Unexpected input data type. Actual: \(tensor\(double\)\) , expected: \(tensor\(float\)\)"),
        (np.array([["a", "b"]]), r"Actual: \(tensor\(string\)\) , expected: \(tensor\(float\)\)"),
        (np.array([[1, 2]], object), r"Actual: \(tensor\(string\)\) , expected: \(tensor\(float\)\)"),
        (X[0], "Invalid rank for input: x Got: 1 Expected: 2 Please fix either the inputs/outputs or the model."),
        (
            np.ones((1, 3), np.float32),
            "invalid dimensions for input: x for the following indices\n index: 1 Got: 3 Expected: 2\n",
        ),
        ({"a": 1.0}, r"Unexpected input data type. Actual: \(+map\(string,tensor\(float\)\)"),
    ],
)
def test_refused_values(ort, session, fed, text):
    with pytest.raises(errors(ort).InvalidArgument, match=text):
        session(models.identity()).run(None, {"x": fed})


def test_all_wrong_sizes_are_named(ort, session):
    with pytest.raises(errors(ort).InvalidArgument, match="index: 0 Got: 1 Expected: 2\n index: 2 Got: 7 Expected: 4\n"):
        session(models.identity(shape=[2, 3, 4])).run(None, {"x": np.ones((1, 3, 7), np.float32)})


@pytest.mark.parametrize("fed", [[[1, 2], [1]], [["a", "b"]], object()])
def test_values_that_are_no_tensor(session, fed):
    with pytest.raises((RuntimeError, ValueError)):
        session(models.identity()).run(None, {"x": fed})


@pytest.mark.parametrize("fed", [[[1, 2], [3, 4]], [[1.0, 2.0], [3.0, 4.0]], [X[0], X[1]]], ids=["ints", "floats", "arrays"])
@pytest.mark.parametrize("element_type", [TensorProto.FLOAT, TensorProto.INT64, TensorProto.DOUBLE, TensorProto.INT8])
def test_lists_become_the_declared_type(session, element_type, fed):
    result = session(models.identity(element_type)).run(None, {"x": fed})[0]
    np.testing.assert_array_equal(result, X)
    assert result.dtype == {1: np.float32, 7: np.int64, 11: np.float64, 3: np.int8}[element_type]


def test_strided_and_read_only_feeds(session):
    made = session(models.identity())
    strided = np.arange(12, dtype=np.float32).reshape(3, 4)[:, ::2]
    np.testing.assert_array_equal(made.run(None, {"x": strided})[0], strided)
    frozen = X.copy()
    frozen.flags.writeable = False
    assert made.run(None, {"x": frozen})[0].flags.writeable


def test_empty_tensor(session):
    assert session(models.identity()).run(None, {"x": np.empty((0, 2), np.float32)})[0].shape == (0, 2)


def test_scalar_output_is_an_array(session):
    result = session(models.identity(shape=[])).run(None, {"x": np.array(3, np.float32)})[0]
    assert isinstance(result, np.ndarray)
    assert result.shape == ()


@pytest.mark.parametrize(
    "fed", [np.array([["a", "ü"]]), np.array([["a", "ü"]], object), [["a", "ü"]]], ids=["unicode", "object", "list"]
)
def test_texts(session, fed):
    result = session(models.identity(TensorProto.STRING)).run(None, {"x": fed})[0]
    assert result.dtype == object
    assert result.tolist() == [["a", "ü"]]


def test_objects_become_text(session):
    result = session(models.identity(TensorProto.STRING)).run(None, {"x": np.array([[1, "b"]], object)})[0]
    assert result.tolist() == [["1", "b"]]


@pytest.mark.parametrize(
    "element_type",
    [TensorProto.BOOL, TensorProto.FLOAT16, TensorProto.UINT8, TensorProto.UINT16, TensorProto.UINT32, TensorProto.UINT64],
)
def test_native_types(session, element_type):
    from onnx.helper import tensor_dtype_to_np_dtype

    fed = X.astype(tensor_dtype_to_np_dtype(element_type))
    result = session(models.identity(element_type)).run(None, {"x": fed})[0]
    np.testing.assert_array_equal(result, fed)
    assert result.dtype == fed.dtype


def test_ort_value_in_a_feed(ort, session):
    fed = ort.OrtValue.ortvalue_from_numpy(X)
    np.testing.assert_array_equal(session(models.identity()).run(None, {"x": fed})[0], X)


def test_sequence(session):
    fed = [X, np.zeros((0, 3), np.float32)]
    result, length = session(models.sequence_identity()).run(None, {"x": fed})
    assert isinstance(result, list)
    assert length == 2
    for got, expected in zip(result, fed, strict=True):
        np.testing.assert_array_equal(got, expected)
        assert not np.shares_memory(got, expected)


def test_map(session):
    np.testing.assert_array_equal(session(models.map_vectorizer()).run(None, {"x": {"b": 2.0, "a": 1.0}})[0], [[1, 2, 0]])


def test_optional(session):
    made = session(models.optional_identity())
    assert made.run(None, {"x": np.ones(2, np.float32)})[0]
    assert not made.run(None, {"x": None})[0]


@pytest.mark.parametrize("with_programs", [True, False])
def test_results_are_the_callers_alone(ort, session, with_programs):
    options = ort.SessionOptions()
    options.add_session_config_entry("session.disable_programs", "0" if with_programs else "1")
    made = session(models.aliases(), options)
    fed = X.copy()
    kept = []
    for _ in range(4):
        results = made.run(None, {"x": fed})
        for index, result in enumerate(results):
            assert result.flags.writeable
            assert result.flags.c_contiguous
            assert not any(np.shares_memory(result, other) for other in (fed, *results[index + 1 :], *kept))
        kept.extend(results)
    for result in kept:
        result[...] = -7
    np.testing.assert_array_equal(fed, X)
    np.testing.assert_array_equal(made.run(["weight"], {"x": fed})[0], np.arange(4).reshape(2, 2))
    np.testing.assert_array_equal(made.run(["fresh"], {"x": fed})[0], X)


def test_terminate_before_a_run(ort, session):
    options = ort.RunOptions()
    options.terminate = True
    made = session(models.affine())
    with pytest.raises(errors(ort).Fail, match=r"Exiting due to terminate flag being set to true."):
        made.run(None, {"x": X}, options)
    options.terminate = False
    assert len(made.run(None, {"x": X}, options)) == 2


def test_terminate_from_another_thread(ort, session):
    made = session(models.chain(4000))
    options = ort.RunOptions()
    fed = np.eye(200, dtype=np.float32)
    threading.Timer(0.2, setattr, (options, "terminate", True)).start()
    start = time.perf_counter()

    def run_for_long():
        for _ in range(200):
            made.run(None, {"x": fed}, options)

    with pytest.raises(errors(ort).Fail, match="terminate"):
        run_for_long()
    assert time.perf_counter() - start < 20


@pytest.mark.parametrize("disable_programs", ["0", "1"])
def test_threads_get_what_one_thread_gets(ort, session, disable_programs):
    options = ort.SessionOptions()
    options.add_session_config_entry("session.disable_programs", disable_programs)
    made = session(models.affine(), options)
    rng = np.random.default_rng(0)
    feeds = [rng.standard_normal((1 + index % 5, 2), np.float32) for index in range(400)]
    expected = [made.run(None, {"x": fed}) for fed in feeds]
    with ThreadPoolExecutor(8) as pool:
        got = list(pool.map(lambda fed: made.run(None, {"x": fed}), feeds))
    for one, other in zip(expected, got, strict=True):
        for left, right in zip(one, other, strict=True):
            np.testing.assert_array_equal(left, right)


def run_async(made, feeds):
    received = []
    done = threading.Event()

    def callback(results, user_data, error):
        received.append((results, user_data, error))
        done.set()

    made.run_async(None, feeds, callback, {"mine": 1})
    assert done.wait(20)
    return received[0]


def test_run_async(session):
    results, user_data, error = run_async(session(models.identity()), {"x": X})
    np.testing.assert_array_equal(results[0], X)
    assert user_data == {"mine": 1}
    assert error == ""


def test_run_async_hands_errors_to_the_callback(session):
    results, _, error = run_async(session(models.identity()), {"x": X[0]})
    assert results == []
    assert error == "Invalid rank for input: x Got: 1 Expected: 2 Please fix either the inputs/outputs or the model."


def test_run_async_without_an_input(session):
    with pytest.raises(ValueError, match="Required inputs"):
        session(models.identity()).run_async(None, {}, lambda *_: None, None)


class TestFriendlier:
    """What onnxruntime refuses or gets wrong, and ort_sdk takes."""

    @staticmethod
    def identity(element_type=TensorProto.FLOAT, shape=("b", 2)):
        return ort_sdk.InferenceSession(models.identity(element_type, shape), providers=["CPUExecutionProvider"])

    def test_tuples_and_scalars(self):
        np.testing.assert_array_equal(self.identity().run(None, {"x": ((1, 2), (3, 4))})[0], X)
        for scalar in (2.0, np.float32(2)):
            assert self.identity(shape=[]).run(None, {"x": scalar})[0] == 2

    def test_big_endian(self):
        np.testing.assert_array_equal(self.identity().run(None, {"x": X.astype(">f4")})[0], X)

    def test_bytes_are_utf8(self):
        result = self.identity(TensorProto.STRING).run(None, {"x": np.array([[b"ab", "ü".encode()]])})[0]
        assert result.tolist() == [["ab", "ü"]]

    @pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.int4, ml_dtypes.uint4])
    def test_types_numpy_lacks(self, dtype):
        from onnx.helper import np_dtype_to_tensor_dtype

        made = ort_sdk.InferenceSession(
            models.model(
                [models.helper.make_node("Reshape", ["x", "s"], ["y"])],
                [models.value("x", ["b", 2], np_dtype_to_tensor_dtype(np.dtype(dtype)))],
                [models.value("y", None, np_dtype_to_tensor_dtype(np.dtype(dtype)))],
                [models.numpy_helper.from_array(np.array([-1]), "s")],
                opset=21,
            ).SerializeToString(),
            providers=["CPUExecutionProvider"],
        )
        result = made.run(None, {"x": X.astype(dtype)})[0]
        assert result.dtype == dtype
        np.testing.assert_array_equal(result.astype(np.float32), X.reshape(-1))

    def test_fractions_become_no_integers(self):
        with pytest.raises(ValueError, match="whole and in the range"):
            self.identity(TensorProto.INT64).run(None, {"x": [[1.5, 2]]})

    def test_fractions_become_no_small_integers(self):
        node = models.helper.make_node("Identity", ["x"], ["y"])
        values = [models.value(name, ["b", 2], TensorProto.INT4) for name in "xy"]
        source = models.model([node], values[:1], values[1:], opset=21).SerializeToString()
        made = ort_sdk.InferenceSession(source, providers=["CPUExecutionProvider"])
        assert made.run(None, {"x": [[1, -2]]})[0].astype(int).tolist() == [[1, -2]]
        with pytest.raises(ValueError, match="whole and in the range"):
            made.run(None, {"x": [[1.5, 2]]})

    def test_bytes_that_are_no_text(self):
        with pytest.raises(ValueError, match=r"no UTF-8"):
            self.identity(TensorProto.STRING).run(None, {"x": np.array([[b"\xff", b"a"]])})

    def test_no_texts_at_all(self):
        assert self.identity(TensorProto.STRING, ["b"]).run(None, {"x": []})[0].shape == (0,)

    def test_subclasses_of_arrays(self, tmp_path):
        mapped = np.memmap(tmp_path / "x.bin", np.float32, "w+", shape=(2, 2))
        mapped[...] = X
        result = self.identity().run(None, {"x": mapped})[0]
        assert type(result) is np.ndarray
        assert not np.shares_memory(result, mapped)

    @pytest.mark.parametrize("number", [1e30, float("inf"), float("nan"), 300.0])
    def test_floats_out_of_range(self, number):
        with pytest.raises(ValueError, match="in the range of int8"):
            self.identity(TensorProto.INT8).run(None, {"x": [[1, number]]})

    def test_integers_out_of_range(self):
        with pytest.raises(ValueError, match="out of bounds"):
            self.identity(TensorProto.INT8).run(None, {"x": [[1, 200]]})

    def test_errors_are_builtins_too(self):
        with pytest.raises(ValueError, match="Invalid rank"):
            self.identity().run(None, {"x": X[0]})

    def test_anything_that_is_no_mapping(self):
        with pytest.raises(TypeError, match="dictionary"):
            self.identity().run(None, [X])

    def test_array_likes(self):
        class Like:
            def __array__(self, dtype=None, copy=None):
                return X

        np.testing.assert_array_equal(self.identity().run(None, {"x": Like()})[0], X)

    def test_closed_session(self):
        with self.identity() as made:
            made.run(None, {"x": X})
        with pytest.raises(RuntimeError, match="closed"):
            made.run(None, {"x": X})
