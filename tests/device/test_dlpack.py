"""DLPack capsules, beside NumPy's own of memory of the host."""

import gc
import weakref

import numpy as np
import pytest

from ort_sdk.api import InvalidArgument, TensorElementType
from ort_sdk.device.drivers import capsule_of, shared_tensor

HOST = (1, 0)


class Owner:
    """Somebody whose end is seen."""


class Given:
    """A capsule as an object that NumPy takes."""

    def __init__(self, capsule):
        self._capsule = capsule

    def __dlpack__(self, **_options):
        return self._capsule

    def __dlpack_device__(self):
        return HOST


def _capsule(array, owner=None):
    return capsule_of(array.ctypes.data, array.shape, TensorElementType.from_numpy_dtype(array.dtype), HOST, owner)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?"])
@pytest.mark.parametrize("shape", [(), (5,), (2, 3, 4), (0, 3)])
def test_numpy_takes_what_is_given(dtype, shape):
    array = np.arange(int(np.prod(shape)), dtype="i4").reshape(shape).astype(dtype)
    taken = np.from_dlpack(Given(_capsule(array)))
    np.testing.assert_array_equal(taken, array)
    assert taken.dtype == array.dtype
    assert array.size == 0 or np.shares_memory(taken, array)


@pytest.mark.parametrize("dtype", ["f2", "f4", "i8", "u1", "?"])
def test_what_numpy_gives_is_taken(dtype):
    array = np.arange(24).reshape(2, 3, 4).astype(dtype)
    found = shared_tensor(array.__dlpack__())
    assert (found.address, found.shape, found.device) == (array.ctypes.data, array.shape, HOST)
    assert found.element_type.numpy_dtype == array.dtype
    found.check_dense()


def test_the_owner_lives_as_long_as_the_tensor():
    array = np.zeros(4, np.float32)
    for use in (lambda capsule: capsule, lambda capsule: np.from_dlpack(Given(capsule)), shared_tensor):
        owner = Owner()
        seen = weakref.ref(owner)
        kept = use(_capsule(array, owner))
        del owner
        gc.collect()
        assert seen() is not None
        del kept
        gc.collect()
        assert seen() is None


def test_numpys_memory_lives_as_long_as_it_is_shared():
    array = np.arange(5.0)
    seen = weakref.ref(array)
    found = shared_tensor(array.__dlpack__())
    del array
    gc.collect()
    assert seen() is not None
    del found
    gc.collect()
    assert seen() is None


def test_a_capsule_is_used_once():
    capsule = _capsule(np.zeros(4, np.float32))
    shared_tensor(capsule)
    with pytest.raises(InvalidArgument, match="was used already"):
        shared_tensor(capsule)


def test_tensors_with_gaps_and_types_that_there_are_not():
    array = np.zeros((4, 6), np.float32)
    with pytest.raises(InvalidArgument, match=r"strides of \[1, 6\] elements"):
        shared_tensor(array.T.__dlpack__()).check_dense()
    with pytest.raises(InvalidArgument, match="kind 5, 64 bits"):
        assert shared_tensor(np.zeros(2, np.complex64).__dlpack__()).element_type
    with pytest.raises(InvalidArgument, match="DLPack has no tensors of STRING"):
        capsule_of(0, (1,), TensorElementType.STRING, HOST, None)
