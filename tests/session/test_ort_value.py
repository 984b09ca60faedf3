"""OrtValue, devices, memory infos and sparse tensors, in onnxruntime and here."""

import ml_dtypes
import numpy as np
import pytest

import ort_sdk
from ort_sdk.api import CPU_DEVICE
from ort_sdk.session.providers.device_memory import device_memory
from ort_sdk.testing.strict.provider import STRICT_PROVIDER, StrictProvider
from tests.session import models

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_what_it_says(ort):
    value = ort.OrtValue.ortvalue_from_numpy(X)
    assert value.shape() == [2, 3]
    assert value.data_type() == "tensor(float)"
    assert value.element_type() == 1
    assert value.device_name() == "cpu"
    assert value.tensor_size_in_bytes() == 24
    assert value.has_value()
    assert value.is_tensor()
    assert not value.is_sparse_tensor()
    assert not value.is_tensor_sequence()


def test_aliases_the_array(ort):
    array = X.copy()
    value = ort.OrtValue.ortvalue_from_numpy(array)
    assert value.data_ptr() == array.ctypes.data
    array[0, 0] = 9
    assert value.numpy()[0, 0] == 9
    value.numpy()[0, 1] = 8
    assert array[0, 1] == 8


def test_strided_array_is_copied(ort):
    array = np.arange(12, dtype=np.float32).reshape(3, 4)[:, ::2]
    value = ort.OrtValue.ortvalue_from_numpy(array)
    np.testing.assert_array_equal(value.numpy(), array)
    assert not np.shares_memory(value.numpy(), array)


def test_keeps_the_array_alive(ort):
    value = ort.OrtValue.ortvalue_from_numpy(np.full(1000, 7, np.int64))
    assert (value.numpy() == 7).all()


@pytest.mark.parametrize("fed", [[1, 2], 3, "a", None])
def test_values_that_are_no_array(ort, fed):
    with pytest.raises((RuntimeError, TypeError)):
        ort.OrtValue.ortvalue_from_numpy(fed)


def test_unknown_device(ort):
    with pytest.raises(Exception, match="Unsupported device type: foo"):
        ort.OrtValue.ortvalue_from_numpy(X, "foo")
    with pytest.raises(Exception, match="Unsupported device type: foo"):
        ort.OrtDevice.make("foo", 0)


def test_device_that_is_not_here(ort):
    with pytest.raises(RuntimeError, match="Can't allocate memory on the device"):
        ort.OrtValue.ortvalue_from_numpy(X, "cuda", 0)


@pytest.mark.parametrize(("code", "name"), [(10, "float16"), (16, "bfloat16")])
def test_bytes_as_another_type(ort, code, name):
    value = ort.OrtValue.ortvalue_from_numpy_with_onnx_type(np.zeros((3, 2), np.uint16), code)
    assert (value.data_type(), value.element_type(), value.shape()) == (f"tensor({name})", code, [3, 2])
    with pytest.raises(RuntimeError, match="Items size in the incoming array: 4 specified by onnxtype: 2"):
        ort.OrtValue.ortvalue_from_numpy_with_onnx_type(X, code)
    with pytest.raises(RuntimeError, match="ONNX Tensor data type: 99"):
        ort.OrtValue.ortvalue_from_numpy_with_onnx_type(X, 99)


def test_packed_bytes(ort):
    value = ort.OrtValue.ortvalue_from_numpy_with_onnx_type(np.array([0x21, 0x03, 0], np.uint8), 22)
    assert value.shape() == [3]
    assert value.data_type() == "tensor(int4)"


def test_from_shape(ort):
    make = ort.OrtValue.ortvalue_from_shape_and_type
    assert make([2, 3], np.float32).numpy().shape == (2, 3)
    assert make((2,), np.int64).numpy().dtype == np.int64
    assert make([2], 16).data_type() == "tensor(bfloat16)"
    assert make([3], 22).tensor_size_in_bytes() == 2
    assert make([2, 3], np.float32, "cpu", 0).shape() == [2, 3]
    with pytest.raises(RuntimeError, match="must be >= 0"):
        make([-2, 3], np.float32)
    with pytest.raises(RuntimeError, match="Not a valid numpy type"):
        make([2], "zz")


def test_update_inplace(ort):
    array = X.copy()
    value = ort.OrtValue.ortvalue_from_numpy(array)
    value.update_inplace(data=X + 1)
    np.testing.assert_array_equal(array, X + 1)
    with pytest.raises(RuntimeError, match=r"The input size of numpy arrays does not match the size of the OrtValue."):
        value.update_inplace(np.zeros((3, 3), np.float32))
    value.update_inplace(np.zeros((3, 2), np.float32))
    assert value.numpy().shape == (2, 3)


def test_as_an_array(ort):
    value = ort.OrtValue.ortvalue_from_numpy(X)
    np.testing.assert_array_equal(np.asarray(value), X)
    assert np.array(value, dtype=np.float64).dtype == np.float64


def test_dlpack(ort):
    array = X.copy()
    value = ort.OrtValue.ortvalue_from_numpy(array)
    shared = np.from_dlpack(value)
    assert shared.ctypes.data == array.ctypes.data
    assert tuple(value.__dlpack_device__()) == (1, 0)
    back = ort.OrtValue.from_dlpack(array)
    assert back.data_ptr() == array.ctypes.data
    assert back.data_type() == "tensor(float)"


def test_constructor_takes_values_only(ort):
    with pytest.raises(ValueError, match="Provided ortvalue"):
        ort.OrtValue(3)


def test_copy_tensors(ort):
    with pytest.raises((RuntimeError, ValueError)):
        ort.copy_tensors([ort.OrtValue.ortvalue_from_numpy(X)], [])


def test_run_with_ort_values(ort, session):
    value = ort.OrtValue.ortvalue_from_numpy(X[:, :2].copy())
    made = session(models.affine())
    y, z = made.run_with_ort_values(None, {"x": value})
    np.testing.assert_array_equal(y.numpy(), z.numpy())
    assert y.data_type() == "tensor(float)"
    assert made.run_with_ort_values(["z"], {"x": value}, ort.RunOptions())[0].shape() == [2, 3]
    with pytest.raises(ValueError, match="Required inputs"):
        made.run_with_ort_values(None, {})
    with pytest.raises((TypeError, AttributeError)):
        made.run_with_ort_values(None, {"x": X})


def test_devices(ort):
    assert [ort.OrtDevice.make(name, 0).device_type() for name in ("cpu", "cuda", "gpu", "cann", "dml", "npu", "webgpu")] == [
        0,
        1,
        1,
        3,
        1,
        3,
        1,
    ]
    device = ort.OrtDevice.make("cuda", 1)
    assert (device.device_id(), device.device_vendor_id(), device.device_mem_type()) == (1, 0x10DE, 0)
    assert ort.OrtDevice.make("gpu", 0, ort.OrtDeviceVendorId.AMD).device_vendor_id() == 0x1002


def test_memory_infos(ort):
    info = ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT)
    assert (info.name, info.device_id) == ("Cpu", 0)
    assert info.mem_type == ort.OrtMemType.DEFAULT
    assert info.allocator_type == ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR
    assert info.device_mem_type == ort.OrtDeviceMemoryType.DEFAULT
    with pytest.raises(RuntimeError, match=r"Specified device is not supported. Try CreateMemoryInfo_V2"):
        ort.OrtMemoryInfo("foo", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT)
    made = ort.OrtMemoryInfo.create_v2(
        "Test",
        ort.OrtMemoryInfoDeviceType.GPU,
        1,
        2,
        ort.OrtDeviceMemoryType.DEFAULT,
        256,
        ort.OrtAllocatorType.ORT_DEVICE_ALLOCATOR,
    )
    assert (made.name, made.device_id, made.device_vendor_id) == ("Test", 2, 1)


def test_arena_settings(ort):
    made = ort.OrtArenaCfg(0, -1, -1, -1)
    assert (made.max_mem, made.arena_extend_strategy, made.max_power_of_two_extend_bytes) == (0, -1, -1)
    made = ort.OrtArenaCfg({"max_mem": 1, "initial_growth_chunk_size_bytes": 4})
    assert (made.max_mem, made.initial_growth_chunk_size_bytes, made.initial_chunk_size_bytes) == (1, 4, -1)
    info = ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT)
    ort.create_and_register_allocator(info, made)
    for wrong in ({"foo": 1}, {"max_mem": "a"}):
        with pytest.raises((RuntimeError, ValueError)):
            ort.OrtArenaCfg(wrong)


def cpu(ort):
    return ort.OrtDevice.make("cpu", 0)


def test_sparse_coordinates(ort):
    values = np.array([1, 2], np.float32)
    sparse = ort.SparseTensor.sparse_coo_from_numpy([3, 3], values, np.array([0, 4]), cpu(ort))
    np.testing.assert_array_equal(sparse.values(), values)
    np.testing.assert_array_equal(sparse.as_coo_view().indices(), [0, 4])
    assert sparse.format() == ort.OrtSparseFormat.ORT_SPARSE_COO
    assert (list(sparse.dense_shape()), sparse.data_type(), sparse.device_name()) == ([3, 3], "sparse_tensor(float)", "cpu")
    for view in (sparse.as_csrc_view, sparse.as_blocksparse_view):
        with pytest.raises(RuntimeError, match="does not contain"):
            view()
    with pytest.raises(TypeError):
        ort.SparseTensor.sparse_coo_from_numpy([3, 3], [1], np.array([0]), cpu(ort))
    with pytest.raises((RuntimeError, ValueError), match="must be equal to or twice the values size: 2"):
        ort.SparseTensor.sparse_coo_from_numpy([3, 3], values, np.array([0]), cpu(ort))


def test_sparse_rows(ort):
    values = np.array([1, 2], np.float32)
    sparse = ort.SparseTensor.sparse_csr_from_numpy([2, 3], values, np.array([0, 1]), np.array([0, 1, 2]), cpu(ort))
    np.testing.assert_array_equal(sparse.as_csrc_view().inner(), [0, 1])
    np.testing.assert_array_equal(sparse.as_csrc_view().outer(), [0, 1, 2])
    value = ort.OrtValue.ort_value_from_sparse_tensor(sparse)
    assert value.is_sparse_tensor()
    assert (value.data_type(), value.element_type(), value.shape()) == ("sparse_tensor(float)", 1, [2, 3])
    np.testing.assert_array_equal(value.as_sparse_tensor().values(), values)
    with pytest.raises(RuntimeError, match="Tensors are convertible to Numpy"):
        value.numpy()
    with pytest.raises(RuntimeError, match="does not contain SparseTensor"):
        ort.OrtValue.ortvalue_from_numpy(X).as_sparse_tensor()
    with pytest.raises(RuntimeError, match="Cuda is not available"):
        sparse.to_cuda(ort.OrtDevice.make("cuda", 0))


class TestOurs:
    """What onnxruntime does not do, or not here."""

    def test_indices_are_checked(self):
        with pytest.raises(ValueError, match="sparse indices must be from 0 to below 9, got 0 to 40"):
            ort_sdk.SparseTensor.sparse_coo_from_numpy([3, 3], X[0, :2], np.array([0, 40]), cpu(ort_sdk))

    def test_texts_and_small_floats(self):
        assert ort_sdk.OrtValue.ortvalue_from_numpy(np.array(["a"])).numpy().tolist() == ["a"]
        assert ort_sdk.OrtValue.ortvalue_from_numpy(X.astype(ml_dtypes.bfloat16)).data_type() == "tensor(bfloat16)"

    def test_packed_bytes_are_unpacked(self):
        value = ort_sdk.OrtValue.ortvalue_from_numpy_with_onnx_type(np.array([0xF1, 0x03, 0], np.uint8), 22)
        assert value.numpy().astype(int).tolist() == [1, -1, 3]

    def test_copies_on_the_host(self):
        source, target = (ort_sdk.OrtValue.ortvalue_from_numpy(array.copy()) for array in (X, np.zeros_like(X)))
        ort_sdk.copy_tensors([source], [target])
        np.testing.assert_array_equal(target.numpy(), X)
        with pytest.raises(ValueError, match="must be alike"):
            ort_sdk.copy_tensors([source], [ort_sdk.OrtValue.ortvalue_from_numpy(X[:1])])

    def test_sequences(self):
        made = ort_sdk.InferenceSession(models.sequence_identity(), providers=["CPUExecutionProvider"])
        fed = ort_sdk.OrtValue.wrap([X], device_memory(CPU_DEVICE))
        value, length = made.run_with_ort_values(None, {"x": fed})
        assert value.is_tensor_sequence()
        assert value.data_type() == "seq(tensor(float))"
        assert length.numpy() == 1
        np.testing.assert_array_equal(value.value[0], X)


@pytest.fixture
def strict():
    from ort_sdk.plugins import plugin_manager

    handle = plugin_manager().register(StrictProvider())
    yield handle.devices[0]
    plugin_manager().unregister(STRICT_PROVIDER)


class TestOnADevice:
    """Values on a device whose arrays nobody can read but through its transfer."""

    def test_there_and_back(self, strict):
        value = ort_sdk.OrtValue.ortvalue_from_numpy(X, strict.name, strict.index)
        assert value.device_name() == strict.name
        assert (value.shape(), value.data_type(), value.tensor_size_in_bytes()) == ([2, 3], "tensor(float)", 24)
        np.testing.assert_array_equal(value.numpy(), X)
        value.update_inplace(X + 1)
        np.testing.assert_array_equal(value.numpy(), X + 1)

    def test_made_there(self, strict):
        value = ort_sdk.OrtValue.ortvalue_from_shape_and_type([2, 3], np.float32, strict.name, strict.index)
        value.update_inplace(X)
        np.testing.assert_array_equal(value.numpy(), X)

    def test_fed_without_a_copy(self, strict):
        made = ort_sdk.InferenceSession(models.affine(), providers=[(STRICT_PROVIDER, {"device_id": strict.index})])
        value = ort_sdk.OrtValue.ortvalue_from_numpy(X[:, :2].copy(), strict.name, strict.index)
        expected = made.run(None, {"x": X[:, :2].copy()})
        for got, wanted in zip(made.run(None, {"x": value}), expected, strict=True):
            np.testing.assert_array_equal(got, wanted)
        assert [result.device_name() for result in made.run_with_ort_values(None, {"x": value})] == ["cpu", "cpu"]

    def test_bound_without_a_copy(self, strict):
        made = ort_sdk.InferenceSession(models.affine(), providers=[(STRICT_PROVIDER, {"device_id": strict.index})])
        value = ort_sdk.OrtValue.ortvalue_from_numpy(X[:, :2].copy(), strict.name, strict.index)
        binding = made.io_binding()
        binding.bind_ortvalue_input("x", value)
        binding.bind_output("z", strict.name, strict.index)
        for _ in range(3):
            made.run_with_iobinding(binding)
            (result,) = binding.get_outputs()
            assert result.device_name() == strict.name
            np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], made.run(["z"], {"x": X[:, :2].copy()})[0])
            value.update_inplace(result.numpy()[:, :2].copy() / 10)
            value.update_inplace(X[:, :2].copy())

    def test_preallocated_there(self, strict):
        made = ort_sdk.InferenceSession(models.affine(), providers=[(STRICT_PROVIDER, {"device_id": strict.index})])
        target = ort_sdk.OrtValue.ortvalue_from_numpy(np.zeros((2, 3), np.float32), strict.name, strict.index)
        binding = made.io_binding()
        binding.bind_cpu_input("x", X[:, :2].copy())
        binding.bind_ortvalue_output("z", target)
        made.run_with_iobinding(binding)
        np.testing.assert_array_equal(target.numpy(), made.run(["z"], {"x": X[:, :2].copy()})[0])


@pytest.mark.parametrize(
    "array", [np.zeros((1, 8, 0, 3), np.float32), np.arange(6.0).reshape(2, 3), np.arange(3, dtype=np.float16)]
)
def test_dlpack_capsules_are_taken_like_what_they_are_of(array):
    value = ort_sdk.OrtValue.from_dlpack(array.__dlpack__())
    assert tuple(value.shape()) == array.shape
    np.testing.assert_array_equal(value.numpy(), array)


def test_dlpack_tensors_with_gaps_are_refused():
    for array in (np.arange(6.0).reshape(2, 3).T, np.arange(6.0)[::2]):
        with pytest.raises(ort_sdk.api.InvalidArgument, match="contiguous"):
            ort_sdk.OrtValue.from_dlpack(array)
