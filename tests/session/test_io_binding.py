"""IOBinding, in onnxruntime and here."""

import numpy as np
import pytest

import ort_sdk
from tests.session import models

X = np.array([[1, 2], [3, 4]], np.float32)


@pytest.fixture
def bound(ort, session):
    """A session and a binding with its input bound."""
    made = session(models.identity())
    binding = made.io_binding()
    binding.bind_cpu_input("x", X)
    return made, binding


def test_output_made_by_the_session(bound):
    made, binding = bound
    binding.bind_output("y")
    made.run_with_iobinding(binding)
    np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], X)
    (value,) = binding.get_outputs()
    assert (value.device_name(), value.shape()) == ("cpu", [2, 2])
    assert len(binding.get_outputs_as_ortvaluevector()) == 1


def test_binding_belongs_to_its_session(session):
    binding = session(models.identity()).io_binding()
    with pytest.raises(ValueError, match="must be used with the session that created it"):
        session(models.identity()).run_with_iobinding(binding)


def test_input_is_read_at_each_run(session):
    made = session(models.identity())
    array = X.copy()
    binding = made.io_binding()
    binding.bind_cpu_input("x", array)
    binding.bind_output("y")
    made.run_with_iobinding(binding)
    array[...] = 5
    made.run_with_iobinding(binding)
    assert (binding.copy_outputs_to_cpu()[0] == 5).all()


def test_memory_at_an_address(session):
    made = session(models.identity())
    source, target = X.copy(), np.zeros_like(X)
    binding = made.io_binding()
    binding.bind_input("x", "cpu", 0, np.float32, [2, 2], source.ctypes.data)
    binding.bind_output("y", "cpu", 0, np.float32, [2, 2], target.ctypes.data)
    made.run_with_iobinding(binding)
    np.testing.assert_array_equal(target, X)


def test_values(ort, session):
    made = session(models.identity())
    target = np.zeros_like(X)
    binding = made.io_binding()
    binding.bind_ortvalue_input("x", ort.OrtValue.ortvalue_from_numpy(X))
    binding.bind_ortvalue_output("y", ort.OrtValue.ortvalue_from_numpy(target))
    binding.synchronize_inputs()
    made.run_with_iobinding(binding, ort.RunOptions())
    binding.synchronize_outputs()
    np.testing.assert_array_equal(target, X)


def test_clearing(bound):
    made, binding = bound
    assert len(binding.get_outputs()) == 0
    binding.bind_output("y")
    made.run_with_iobinding(binding)
    binding.clear_binding_outputs()
    assert binding.copy_outputs_to_cpu() == []
    binding.clear_binding_inputs()
    binding.bind_output("y")
    with pytest.raises(RuntimeError, match="Error in execution: "):
        made.run_with_iobinding(binding)


def test_unknown_names(bound):
    made, binding = bound
    with pytest.raises(RuntimeError, match="Failed to find NodeArg with name: q in the def list"):
        binding.bind_cpu_input("q", X)
    with pytest.raises(RuntimeError, match="Failed to find"):
        binding.bind_input("q", "cpu", 0, np.float32, [2, 2], X.ctypes.data)
    binding.bind_output("q")
    with pytest.raises(RuntimeError, match=r"Error in execution: Invalid output name: ?q"):
        made.run_with_iobinding(binding)


def test_no_output(bound):
    made, binding = bound
    with pytest.raises(RuntimeError, match=r"Error in execution: At least one output should be requested\."):
        made.run_with_iobinding(binding)


@pytest.mark.parametrize(
    ("fed", "text"),
    [
        (X.astype(np.float64), r"Unexpected input data type. Actual: \(tensor\(double\)\) , expected: \(tensor\(float\)\)"),
        (X[0], "Invalid rank for input: x Got: 1 Expected: 2"),
    ],
)
def test_inputs_that_do_not_fit(session, fed, text):
    made = session(models.identity())
    binding = made.io_binding()
    binding.bind_cpu_input("x", fed)
    binding.bind_output("y")
    with pytest.raises(RuntimeError, match="Error in execution: " + text):
        made.run_with_iobinding(binding)


@pytest.mark.parametrize(
    ("shape", "dtype", "text"),
    [
        ((2, 1), np.float32, "Got invalid dimensions for output: y for the following indices\n index: 1 Got: 1 Expected: 2"),
        ((2, 2), np.int32, r"Unexpected output data type. Actual: \(tensor\(int32\)\) , expected: \(tensor\(float\)\)"),
        ((3, 2), np.float32, "The output OrtValue provided for output 'y'"),
    ],
)
def test_memory_that_does_not_fit(ort, bound, shape, dtype, text):
    made, binding = bound
    binding.bind_ortvalue_output("y", ort.OrtValue.ortvalue_from_numpy(np.zeros(shape, dtype)))
    with pytest.raises(RuntimeError, match=text) as caught:
        made.run_with_iobinding(binding)
    assert "Error in execution: " in str(caught.value)


def test_memory_of_any_rank_where_none_is_declared(ort, session):
    made, target = session(models.identity(shape=[])), np.zeros(1, np.float32)
    binding = made.io_binding()
    binding.bind_cpu_input("x", np.ones(1, np.float32))
    binding.bind_ortvalue_output("y", ort.OrtValue.ortvalue_from_numpy(target))
    made.run_with_iobinding(binding)
    assert target == 1


def test_address_without_a_type(bound):
    _, binding = bound
    with pytest.raises(ValueError, match="`element_type` and `shape` are to be provided"):
        binding.bind_output("y", "cpu", 0, None, None, X.ctypes.data)


def test_vectors(ort, session):
    state = ort.capi.onnxruntime_pybind11_state
    made = session(models.identity())
    feeds, fetches = state.OrtValueVector(), state.OrtValueVector()
    feeds.push_back(ort.OrtValue.ortvalue_from_numpy(X)._ortvalue)
    device = ort.OrtDevice.make("cpu", 0)._get_c_device()
    made.run_with_ortvaluevector(ort.RunOptions(), ["x"], feeds, ["y"], fetches, [device])
    np.testing.assert_array_equal(fetches[0].numpy(), X)
    assert fetches.element_type_at(0) == 1


def test_results_are_copies():
    made = ort_sdk.InferenceSession(models.identity(), providers=["CPUExecutionProvider"])
    binding = made.io_binding()
    fed = X.copy()
    binding.bind_cpu_input("x", fed)
    binding.bind_output("y")
    made.run_with_iobinding(binding)
    first = binding.get_outputs()[0].numpy()
    assert not np.shares_memory(first, fed)
    made.run_with_iobinding(binding)
    assert not np.shares_memory(first, binding.get_outputs()[0].numpy())
    assert not np.shares_memory(binding.copy_outputs_to_cpu()[0], binding.get_outputs()[0].numpy())


def test_addresses_of_other_devices():
    binding = ort_sdk.InferenceSession(models.identity(), providers=["CPUExecutionProvider"]).io_binding()
    with pytest.raises(NotImplementedError, match="bind an OrtValue instead"):
        binding.bind_input("x", "cuda", 0, np.float32, [2, 2], 4096)


def test_rebinding_after_runs(ort, session):
    made = session(models.identity())
    binding = made.io_binding()
    target = np.zeros((3, 2), np.float32)
    for rows in (2, 2, 1, 3, 3):
        fed = np.random.default_rng(rows).random((rows, 2), np.float32)
        binding.bind_cpu_input("x", fed)
        binding.bind_output("y")
        made.run_with_iobinding(binding)
        np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], fed)
    binding.bind_ortvalue_output("y", ort.OrtValue.ortvalue_from_numpy(target))
    made.run_with_iobinding(binding)
    np.testing.assert_array_equal(target, fed)
    binding.bind_cpu_input("x", X)
    with pytest.raises(RuntimeError, match="Error in execution: "):
        made.run_with_iobinding(binding)


def test_runs_on_what_is_bound(ort, session):
    made = session(models.affine())
    fed, sums, rectified = X.copy(), np.zeros((2, 3), np.float32), np.zeros((2, 3), np.float32)
    binding = made.io_binding()
    binding.bind_cpu_input("x", fed)
    binding.bind_output("z", "cpu", 0, np.float32, [2, 3], rectified.ctypes.data)
    binding.bind_ortvalue_output("y", ort.OrtValue.ortvalue_from_numpy(sums))
    for factor in (1, -1, 2, -2):
        fed[...] = factor * X
        made.run_with_iobinding(binding)
        expected = factor * X @ np.arange(6, dtype=np.float32).reshape(2, 3) + 1
        np.testing.assert_array_equal(sums, expected)
        np.testing.assert_array_equal(rectified, np.maximum(expected, 0))


def test_default_that_is_bound_later():
    made = ort_sdk.InferenceSession(models.affine(), providers=["CPUExecutionProvider"])
    binding = made.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_output("y")
    made.run_with_iobinding(binding)
    with_default = binding.copy_outputs_to_cpu()[0]
    binding.bind_cpu_input("c", np.zeros(3, np.float32))
    made.run_with_iobinding(binding)
    np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], with_default - 1)


def test_memory_of_an_input_is_filled_last():
    made = ort_sdk.InferenceSession(models.aliases(), providers=["CPUExecutionProvider"])
    fed, same = -X, np.zeros_like(X)
    binding = made.io_binding()
    binding.bind_cpu_input("x", fed)
    binding.bind_ortvalue_output("fresh", ort_sdk.OrtValue.ortvalue_from_numpy(fed))
    binding.bind_ortvalue_output("same", ort_sdk.OrtValue.ortvalue_from_numpy(same))
    binding.bind_output("transposed")
    for source in (-X, X):
        fed[...] = source
        made.run_with_iobinding(binding)
        np.testing.assert_array_equal(same, source)
        np.testing.assert_array_equal(fed, np.maximum(source, 0))
        np.testing.assert_array_equal(binding.get_outputs()[2].numpy(), source.T)


def test_session_that_changes_under_a_binding():
    made = ort_sdk.InferenceSession(models.identity(), providers=["CPUExecutionProvider"])
    binding = made.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_output("y")
    made.run_with_iobinding(binding)
    made.set_providers(["CPUExecutionProvider"])
    made.run_with_iobinding(binding)
    np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], X)


def test_closed_session_runs_no_binding():
    made = ort_sdk.InferenceSession(models.identity(), providers=["CPUExecutionProvider"])
    binding = made.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_output("y")
    made.run_with_iobinding(binding)
    made.close()
    with pytest.raises(RuntimeError, match="Error in execution: the session was closed"):
        made.run_with_iobinding(binding)
