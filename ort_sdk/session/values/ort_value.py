"""``OrtValue``: a tensor, sequence, map or sparse tensor on some device, handed around without copies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ort_sdk.api import CPU_DEVICE, Array, Fail, HostArray, InvalidArgument, TensorElementType, tensor_type
from ort_sdk.api import OrtDevice as Device
from ort_sdk.api.foreign_errors import only_ort_errors, public_class
from ort_sdk.graph.tensor import unpack_elements
from ort_sdk.session.providers.device_memory import DeviceAccess, copy_between, device_memory

from .ort_device import OrtDevice, device_of
from .sparse_tensor import SparseTensor
from .type_strings import type_of_value

if TYPE_CHECKING:
    from .memory_info import OrtMemoryInfo

__all__ = ["OrtValue", "OrtValueVector", "copy_tensors"]


@public_class(but=("wrap", "value", "device", "has_value", "holds", "is_tensor", "overwrite", "value_on"))
class OrtValue:
    """A value and the device it is on. Host tensors are NumPy arrays, aliased and never copied.

    Args:
        ortvalue: the OrtValue to stand for; use the ``ortvalue_…`` makers for anything else.
        numpy_obj: accepted for ONNX Runtime's sake.

    Raises:
        ValueError: ``ortvalue`` is none.
    """

    __slots__ = ("__weakref__", "_access", "_type", "_value")

    def __init__(self, ortvalue: OrtValue, numpy_obj: Any = None) -> None:
        del numpy_obj
        if not isinstance(ortvalue, OrtValue):
            raise InvalidArgument(
                f"`Provided ortvalue` needs to be of type `OrtValue`, got {type(ortvalue).__name__}; "
                "make one from an array with OrtValue.ortvalue_from_numpy"
            )
        self._value: Any = ortvalue._value
        self._access: DeviceAccess = ortvalue._access
        self._type: str = ortvalue._type

    @staticmethod
    def wrap(value: Any, access: DeviceAccess, type_string: str = "") -> OrtValue:
        """An OrtValue around a value in a device's memory.

        Args:
            value: the provider's own array, a list for a sequence, a dict for a map, None for an absent optional.
            access: the device, kept alive by the value.
            type_string: ONNX type, if known.
        """
        made = OrtValue.__new__(OrtValue)
        made._value = value
        made._access = access
        made._type = type_string
        return made

    # -- makers

    @staticmethod
    def ortvalue_from_numpy(
        numpy_obj: HostArray, device_type: str | OrtDevice = "cpu", device_id: int = 0, vendor_id: int = -1
    ) -> OrtValue:
        """A tensor from an array: on the host an alias of it (a copy if it is not contiguous), elsewhere a copy.

        Raises:
            Fail: it is no array, or no installed provider has the device.
        """
        del vendor_id
        if not isinstance(numpy_obj, np.ndarray):
            raise Fail(f"Creation of OrtValues is currently only supported from numpy arrays, got {type(numpy_obj).__name__}")
        element_type = TensorElementType.from_numpy_dtype(numpy_obj.dtype)
        array = np.asarray(numpy_obj, dtype=element_type.numpy_dtype, order="C")
        access = device_memory(device_of(device_type, device_id))
        return OrtValue.wrap(access.from_host(array), access, tensor_type(element_type))

    @staticmethod
    def ortvalue_from_numpy_with_onnx_type(data: HostArray, /, onnx_element_type: int) -> OrtValue:
        """A host tensor from an array's bytes, read as another element type of the same size.

        Sub-byte types: ``data`` has the tensor's shape, and its first bytes are the packed elements.

        Raises:
            Fail: no such type, or one of another size.
        """
        element_type = _element_type(onnx_element_type)
        dtype = element_type.numpy_dtype
        if element_type.is_packed and data.itemsize == 1:
            flat = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
            array = unpack_elements(flat[: element_type.nbytes(data.size)], element_type, data.size).reshape(data.shape)
        elif dtype.itemsize != data.itemsize or dtype.hasobject:
            raise Fail(
                f"Items size in the incoming array: {data.itemsize} specified by onnxtype: {dtype.itemsize} ({element_type.name})"
            )
        else:
            array = np.ascontiguousarray(data).view(dtype)
        return OrtValue.wrap(array, device_memory(CPU_DEVICE), tensor_type(element_type))

    @staticmethod
    def ortvalue_from_shape_and_type(
        shape: Sequence[int],
        element_type: Any,
        device_type: str | OrtDevice = "cpu",
        device_id: int = 0,
        vendor_id: int = -1,
        memory_info: OrtMemoryInfo | None = None,
    ) -> OrtValue:
        """A tensor with undefined contents.

        Args:
            shape: sizes, not negative.
            element_type: NumPy type or ONNX's code.
            device_type: name of the device.
            device_id: which one of several.
            vendor_id: accepted.
            memory_info: the memory instead of a device.

        Raises:
            Fail: a negative size, no such type or no such device.
        """
        del vendor_id
        sizes = tuple(int(size) for size in shape)
        if any(size < 0 for size in sizes):
            raise Fail(f"Tensor shape.Size() must be >= 0, got {list(sizes)}")
        device = memory_info.device if memory_info is not None else device_of(device_type, device_id)
        access = device_memory(device)
        kind = _element_type(element_type)
        return OrtValue.wrap(access.allocate(sizes, kind), access, tensor_type(kind))

    @staticmethod
    def ort_value_from_sparse_tensor(sparse_tensor: SparseTensor) -> OrtValue:
        """A value around a sparse tensor."""
        return OrtValue.wrap(sparse_tensor, device_memory(CPU_DEVICE), sparse_tensor.data_type())

    @staticmethod
    def from_dlpack(data: Any, is_bool_tensor: bool = False, /) -> OrtValue:
        """A host tensor around another library's tensor, sharing its memory.

        Args:
            data: object with ``__dlpack__``, or the capsule that such a method gives, which is used up; on the host.
            is_bool_tensor: whether bytes are booleans.

        Raises:
            InvalidArgument: its elements have gaps or another order than row by row: shape and address would not determine where
                they are.
        """
        array = np.from_dlpack(_Capsule(data) if type(data).__name__ == "PyCapsule" else data)
        if not array.flags.c_contiguous:
            raise InvalidArgument(
                f"OrtValue.from_dlpack got a tensor of shape {array.shape} with strides of {array.strides} bytes; it must be "
                "contiguous, row by row. Copy it first"
            )
        if is_bool_tensor and array.dtype == np.uint8:
            array = array.view(np.bool_)
        return OrtValue.wrap(array, device_memory(CPU_DEVICE))

    # -- what it is

    def has_value(self) -> bool:
        """False for an absent optional."""
        return self._value is not None

    def is_sparse_tensor(self) -> bool:
        """Whether it is a sparse tensor."""
        return isinstance(self._value, SparseTensor)

    def is_tensor_sequence(self) -> bool:
        """Whether it is a sequence of tensors."""
        return isinstance(self._value, list) and not any(isinstance(element, dict) for element in self._value)

    def is_tensor(self) -> bool:
        """Whether it is a dense tensor."""
        return self._value is not None and not isinstance(self._value, (list, dict, SparseTensor))

    def device_name(self) -> str:
        """Device in lower case, ``cpu``."""
        return self._access.device.name

    def data_type(self) -> str:
        """ONNX type string, ``tensor(float)``."""
        if not self._type:
            self._type = tensor_type(self._access.describe(self._value)[0]) if self.is_tensor() else type_of_value(self._value)
        return self._type

    def element_type(self) -> int:
        """ONNX's code of the element type of a tensor."""
        text = self.data_type()
        return int(TensorElementType.from_onnx_name(text[text.rindex("(") + 1 :].rstrip(")")))

    def shape(self) -> list[int]:
        """Sizes of a tensor, dense or sparse."""
        if isinstance(self._value, SparseTensor):
            return self._value.dense_shape()
        return list(self._access.describe(self._tensor())[1])

    def tensor_size_in_bytes(self) -> int:
        """Bytes of a tensor's elements, sub-byte types packed."""
        element_type, shape = self._access.describe(self._tensor())
        return element_type.nbytes(int(np.prod(shape, dtype=np.int64)))

    def data_ptr(self) -> int:
        """Address of the first element.

        Raises:
            NotImplemented: the provider's arrays have no address.
        """
        return _address(self._tensor())

    # -- contents

    @property
    def value(self) -> Any:
        """The value as its provider holds it: an array, list, dict, SparseTensor or None."""
        return self._value

    @property
    def device(self) -> Device:
        """Where it is, in this package's own terms."""
        return self._access.device

    def value_on(self, device: Device) -> Any:
        """The value on a device; itself if it is there, a copy otherwise."""
        if self._access.device == device or not self._value_has_device():
            return self._value
        target = device_memory(device)
        if isinstance(self._value, list):
            return [copy_between(element, self._access, target) for element in self._value]
        return copy_between(self._value, self._access, target)

    def _value_has_device(self) -> bool:
        return not isinstance(self._value, (dict, SparseTensor)) and self._value is not None

    def numpy(self) -> HostArray:
        """A tensor as an array: on the host the same memory, else a copy.

        Raises:
            Fail: it is no dense tensor; ``value`` gives sequences and maps.
        """
        array: HostArray = self._access.to_host(self._tensor())
        return array.view()

    def as_sparse_tensor(self) -> SparseTensor:
        """The sparse tensor.

        Raises:
            Fail: it is none.
        """
        if not isinstance(self._value, SparseTensor):
            raise Fail(f"This OrtValue does not contain SparseTensor. Check data_type() value. It is {self.data_type()}")
        return self._value

    def update_inplace(self, data: HostArray) -> None:
        """Overwrite a tensor with an array of as many bytes; bytes of another type are read as this one's.

        Raises:
            Fail: another size, or the provider cannot overwrite.
        """
        element_type, shape = self._access.describe(self._tensor())
        dtype = element_type.numpy_dtype
        if data.nbytes != int(np.prod(shape, dtype=np.int64)) * dtype.itemsize:
            raise Fail(
                "The input size of numpy arrays does not match the size of the OrtValue. "
                f"Got {data.dtype}{list(data.shape)}, the value is {dtype}{list(shape)}"
            )
        same_type = data if dtype.hasobject else np.ascontiguousarray(data).reshape(-1).view(dtype)
        if not self._access.fill(self._value, same_type.reshape(shape), CPU_DEVICE):
            self._value = self._access.from_host(same_type.reshape(shape))

    def holds(self, array: Any) -> bool:
        """Whether an array of the host is the value, in the same memory."""
        value = self._value
        if not isinstance(value, np.ndarray) or not isinstance(array, np.ndarray) or self._access.device != CPU_DEVICE:
            return False
        if value.shape != array.shape or value.strides != array.strides or value.dtype != array.dtype:
            return False
        same = value is array or value.__array_interface__["data"] == array.__array_interface__["data"]
        return same and value.flags.writeable and value.flags.c_contiguous

    def overwrite(self, other: OrtValue) -> None:
        """Take the contents of a tensor of the same type and shape, over the host if the devices differ."""
        source, contents = other._access.device, other._value
        if source not in (self._access.device, CPU_DEVICE):
            source, contents = CPU_DEVICE, other._access.to_host(contents)
        if not self._access.fill(self._value, contents, source):
            self._value = copy_between(other._value, other._access, self._access)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> HostArray:
        array = self.numpy()
        if copy is False and not self._access.device.is_cpu:
            raise InvalidArgument(f"the value is on {self._access.device}: it cannot become an array without a copy")
        return np.array(array, dtype=dtype, copy=copy)

    def __dlpack__(self, *, stream: Any = None, **options: Any) -> Any:
        return self._tensor().__dlpack__(**options) if stream is None else self._tensor().__dlpack__(stream=stream, **options)

    def __dlpack_device__(self) -> tuple[int, int]:
        kind, index = self._tensor().__dlpack_device__()
        return (int(kind), int(index))

    def to_dlpack(self) -> Any:
        """DLPack capsule of a tensor."""
        return self.__dlpack__()

    @property
    def _ortvalue(self) -> OrtValue:
        """Itself: clients of ONNX Runtime's inner class ask for it."""
        return self

    def _get_c_value(self) -> OrtValue:
        return self

    def _tensor(self) -> Array:
        if not self.is_tensor():
            raise Fail(f"Only OrtValues that are Tensors are convertible to Numpy objects; this one is {self.data_type()}")
        return self._value

    def __repr__(self) -> str:
        shape = self.shape() if self.is_tensor() else ""
        return f"OrtValue({self.data_type()}{shape} on {self._access.device})"


class _Capsule:
    """A DLPack capsule as an object that NumPy takes; NumPy itself looks on which device the tensor is.

    Args:
        capsule: not used yet.
    """

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **_options: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)  # DLPack's kDLCPU


@public_class()
class OrtValueVector(list[OrtValue]):
    """A list of OrtValues, with the methods of ONNX Runtime's class of that name."""

    def push_back(self, value: OrtValue | Any, is_bool_tensor: bool = False) -> None:
        """Append a value, or one made of a DLPack object."""
        self.append(value if isinstance(value, OrtValue) else OrtValue.from_dlpack(value, is_bool_tensor))

    def reserve(self, count: int) -> None:
        """Nothing to do."""

    def shrink_to_fit(self) -> None:
        """Nothing to do."""

    def element_type_at(self, idx: int) -> int:
        """ONNX's code of a tensor's element type."""
        return self[idx].element_type()

    def dlpack_at(self, idx: int) -> Any:
        """DLPack capsule of a tensor."""
        return self[idx].to_dlpack()

    def bool_tensor_indices(self) -> list[int]:
        """Positions of boolean tensors."""
        return [index for index, value in enumerate(self) if value.data_type() == "tensor(bool)"]


@only_ort_errors
def copy_tensors(src: Sequence[OrtValue], dst: Sequence[OrtValue], stream: Any = None) -> None:
    """Overwrite tensors with others of the same types and shapes, on whatever devices.

    Raises:
        InvalidArgument: lists of different length, or tensors of different type or shape.
    """
    del stream
    if len(src) != len(dst):
        raise InvalidArgument(f"Invalid arguments provided to CopyTensors: {len(src)} sources, {len(dst)} destinations")
    for source, target in zip(src, dst, strict=True):
        if source.data_type() != target.data_type() or source.shape() != target.shape():
            raise InvalidArgument(
                f"cannot copy {source.data_type()}{source.shape()} into {target.data_type()}{target.shape()}: they must be alike"
            )
        target.update_inplace(source.numpy())


def _element_type(element_type: Any) -> TensorElementType:
    try:
        if isinstance(element_type, (int, np.integer)) and not isinstance(element_type, bool):
            return TensorElementType(int(element_type))
        return TensorElementType.from_numpy_dtype(element_type)
    except (TypeError, ValueError) as error:
        raise Fail(f"Not a valid numpy type or ONNX Tensor data type: {element_type!r}") from error


def _address(array: Any) -> int:
    if isinstance(array, np.ndarray):
        return int(array.ctypes.data)
    for interface in ("__cuda_array_interface__", "__array_interface__"):
        if hasattr(array, interface):
            return int(getattr(array, interface)["data"][0])
    for attribute in ("data_ptr", "int_ptr"):
        found = getattr(array, attribute, None)
        if found is not None:
            return int(found() if callable(found) else found)
    raise Fail(f"arrays of type {type(array).__name__} do not have an address that can be asked for")
