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
from ort_sdk.session.providers.readiness import Ready

from .dlpack import DLPACK_CPU, array_of, capsule_of, device_of_array
from .ort_device import OrtDevice, device_of
from .sparse_tensor import SparseTensor
from .type_strings import given_element_type, type_of_value

if TYPE_CHECKING:
    from .memory_info import OrtMemoryInfo

__all__ = ["OrtValue", "OrtValueVector", "copy_tensors", "host_copies"]


@public_class(but=("wrap", "value", "device", "has_value", "holds", "is_tensor", "overwrite", "replace", "value_on", "wait"))
class OrtValue:
    """A value and the device it is on. Host tensors are NumPy arrays, aliased and never copied.

    A run may end before a device is done with it. Whatever reads or writes the value on the host waits for that by itself.

    Args:
        ortvalue: the OrtValue to stand for; use the ``ortvalue_…`` makers for anything else.
        numpy_obj: accepted for ONNX Runtime's sake.

    Raises:
        ValueError: ``ortvalue`` is none.
    """

    __slots__ = ("__weakref__", "_access", "_type", "_value", "is_shared", "ready")

    is_shared: bool
    """Whether others know where its memory on a device is, and may use it without asking: runs on it wait at their end."""
    ready: Ready | None
    """When its device is done with it; None if it is."""

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
        self.ready: Ready | None = ortvalue.ready
        self.is_shared = ortvalue.is_shared = True

    @staticmethod
    def wrap(
        value: Any, access: DeviceAccess, type_string: str = "", ready: Ready | None = None, *, is_shared: bool = False
    ) -> OrtValue:
        """An OrtValue around a value in a device's memory.

        Args:
            value: the provider's own array, a list for a sequence, a dict for a map, None for an absent optional.
            access: the device, kept alive by the value.
            type_string: ONNX type, if known.
            ready: when the device is done with it; None if it is.
            is_shared: see the attribute.
        """
        made = _new(OrtValue)
        made._value = value
        made._access = access
        made._type = type_string
        made.ready = ready
        made.is_shared = is_shared
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
        element_type = given_element_type(onnx_element_type)
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
        kind = given_element_type(element_type)
        return OrtValue.wrap(access.allocate(sizes, kind), access, tensor_type(kind))

    @staticmethod
    def ort_value_from_sparse_tensor(sparse_tensor: SparseTensor) -> OrtValue:
        """A value around a sparse tensor."""
        return OrtValue.wrap(sparse_tensor, device_memory(CPU_DEVICE), sparse_tensor.data_type())

    @staticmethod
    def from_dlpack(data: Any, is_bool_tensor: bool = False, /) -> OrtValue:
        """A tensor around another library's tensor, sharing its memory.

        Args:
            data: object with ``__dlpack__``, on the host or a device whose provider takes DLPack tensors; or the capsule that
                such a method gives, which is used up, of a tensor on the host.
            is_bool_tensor: whether bytes are booleans, on the host.

        Raises:
            InvalidArgument: its elements have gaps or another order than row by row: shape and address would not determine where
                they are.
            NotImplemented: no installed provider takes tensors of its device.
        """
        array, access = array_of(data)
        if access.provider is None and is_bool_tensor and array.dtype == np.uint8:
            array = array.view(np.bool_)
        return OrtValue.wrap(array, access, is_shared=True)

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
        """Address of the first element. Waits until the device is done with it; so do the ends of later runs that write there.

        Raises:
            Fail: the provider's arrays have no address.
        """
        address = _address(self._tensor())
        self.is_shared = True
        self.wait()
        return address

    # -- contents

    @property
    def value(self) -> Any:
        """The value as its provider holds it: an array, list, dict, SparseTensor or None. ``wait`` before others read it."""
        return self._value

    def wait(self) -> None:
        """Wait until the work of all runs that it was bound to, or is a result of, is done on its device.

        Raises:
            OrtSdkError: what that work raised.
        """
        ready = self.ready
        if ready is not None:
            ready.wait()
            self.ready = None

    @property
    def device(self) -> Device:
        """Where it is, in this package's own terms."""
        return self._access.device

    def synchronize(self) -> None:
        """Wait as ``wait`` does, and for all that its own provider queued on it or anything else.

        Raises:
            OrtSdkError: what that work raised.
        """
        self.wait()
        provider = self._access.provider
        if provider is not None:
            provider.synchronize()

    def value_on(self, device: Device) -> Any:
        """The value on a device; itself if it is there, a copy otherwise."""
        if self._access.device == device or not self._value_has_device():
            return self._value
        self.wait()
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
        tensor = self._tensor()
        self.wait()
        array: HostArray = self._access.to_host(tensor)
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
        self.wait()
        same_type = data if dtype.hasobject else np.ascontiguousarray(data).reshape(-1).view(dtype)
        if not self._access.fill(self._value, same_type.reshape(shape), CPU_DEVICE):
            self._value = self._access.from_host(same_type.reshape(shape))

    def holds(self, array: Any) -> bool:
        """Whether an array of the value's device is the value, in the same memory."""
        value = self._value
        if self._access.provider is not None:
            return self._access.is_same(value, array)
        if not isinstance(value, np.ndarray) or not isinstance(array, np.ndarray):
            return False
        if value.shape != array.shape or value.strides != array.strides or value.dtype != array.dtype:
            return False
        same = value is array or value.__array_interface__["data"] == array.__array_interface__["data"]
        return same and value.flags.writeable and value.flags.c_contiguous

    def replace(self, array: Array) -> None:
        """Take another array of the same type and shape on the device, where the memory cannot be overwritten."""
        self._value = array

    def overwrite(self, other: OrtValue) -> None:
        """Take the contents of a tensor of the same type and shape, over the host if the devices differ."""
        self.wait()
        other.wait()
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
        tensor = self._tensor()
        if self._access.provider is not None and options.get("dl_device") == DLPACK_CPU:
            return self.numpy().__dlpack__(**options)
        self.is_shared = True
        return capsule_of(tensor, self._access, stream, self.ready, options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return device_of_array(self._tensor(), self._access)

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
        target.overwrite(source)


_new = OrtValue.__new__


def host_copies(values: Sequence[OrtValue]) -> list[Any]:
    """Values on the host, in memory of the caller's own; those of one device are copied together."""
    copies: list[Any] = [None] * len(values)
    on_devices: dict[int, list[int]] = {}
    for position, value in enumerate(values):
        if value.is_tensor() and value._access.provider is not None:
            value.wait()
            on_devices.setdefault(id(value._access), []).append(position)
        else:
            copies[position] = value.numpy().copy() if value.is_tensor() else value.value_on(CPU_DEVICE)
    for positions in on_devices.values():
        copied = values[positions[0]]._access.all_to_host([values[position].value for position in positions])
        for position, array in zip(positions, copied, strict=True):
            copies[position] = array
    return copies


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
