"""``IOBinding``: inputs and outputs that stay where they are between runs."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ort_sdk.api import CPU_DEVICE, Fail, InvalidArgument, OrtSdkError, TensorElementType, tensor_type
from ort_sdk.api import NotImplemented as OrtNotImplemented
from ort_sdk.api import OrtDevice as Device
from ort_sdk.plan import Fetch

from .device_access import device_access
from .feed_types import converter
from .feeds import check_shape
from .ort_device import OrtDevice, device_of
from .ort_value import OrtValue, OrtValueVector

if TYPE_CHECKING:
    from .inference_session import InferenceSession

__all__ = ["IOBinding", "check_preallocated", "fill_preallocated"]

Target = Device | OrtValue
"""Where an output goes: a device on which the session makes it, or memory the caller gave."""


class IOBinding:
    """The inputs and outputs of later runs. Values on the device a provider wants are used as they are, without a copy.

    Args:
        session: the session it is for.
    """

    def __init__(self, session: InferenceSession) -> None:
        self._session = session
        self._inputs: dict[str, OrtValue] = {}
        self._targets: dict[str, Target] = {}
        self._outputs = OrtValueVector()

    def bind_cpu_input(self, name: str, arr_on_cpu: Any) -> None:
        """Bind an input to a host array, which is aliased.

        Raises:
            Fail: no such input, or no array of the declared kind.
        """
        declared = self._declared_type(name)
        host = device_access(CPU_DEVICE)
        if isinstance(arr_on_cpu, np.ndarray) and arr_on_cpu.dtype.kind not in "UTSO":
            self._inputs[name] = OrtValue.ortvalue_from_numpy(arr_on_cpu)
        else:
            self._inputs[name] = OrtValue.wrap(_in_binding(lambda: converter(declared, name)(arr_on_cpu)), host, declared or "")

    def bind_input(
        self, name: str, device_type: str, device_id: int, element_type: Any, shape: Sequence[int], buffer_ptr: int
    ) -> None:
        """Bind an input to host memory at an address, which the caller keeps alive.

        Raises:
            Fail: no such input.
            NotImplemented: memory of another device, which has no portable address; bind an OrtValue instead.
        """
        self._declared_type(name)
        self._inputs[name] = _at_address(OrtDevice.make(device_type, device_id), element_type, shape, buffer_ptr)

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """Bind an input to a value on any device.

        Raises:
            Fail: no such input.
        """
        self._declared_type(name)
        self._inputs[name] = _checked(ortvalue)

    def bind_output(
        self,
        name: str,
        device_type: str | OrtDevice = "cpu",
        device_id: int = 0,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Ask for an output on a device, or in host memory at an address.

        Raises:
            InvalidArgument: an address without type and shape.
            Fail: no such device.
        """
        device = device_type if isinstance(device_type, OrtDevice) else OrtDevice.make(device_type, device_id)
        if buffer_ptr is None:
            self._targets[name] = device_of(device)
        elif element_type is None or shape is None:
            raise InvalidArgument("`element_type` and `shape` are to be provided if pre-allocated memory is provided")
        else:
            self._targets[name] = _at_address(device, element_type, shape, buffer_ptr)

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Ask for an output in the memory of a value."""
        self._targets[name] = _checked(ortvalue)

    def synchronize_inputs(self) -> None:
        """Nothing to do: copies to a device are in order with its kernels."""

    def synchronize_outputs(self) -> None:
        """Nothing to do: the end of a run waits for its work."""

    def get_outputs(self) -> list[OrtValue]:
        """Outputs of the last run, in the order they were bound."""
        return list(self._outputs)

    def get_outputs_as_ortvaluevector(self) -> OrtValueVector:
        """The same as the vector the binding itself holds."""
        return self._outputs

    def copy_outputs_to_cpu(self) -> list[Any]:
        """Outputs of the last run as host arrays of the caller's own."""
        return [_host_copy(value) for value in self._outputs]

    def clear_binding_inputs(self) -> None:
        """Forget all inputs."""
        self._inputs.clear()

    def clear_binding_outputs(self) -> None:
        """Forget all outputs, and the last run's values."""
        self._targets.clear()
        self._outputs = OrtValueVector()

    def run_in(self, session: InferenceSession, run_options: Any = None) -> None:
        """Run the session on what is bound.

        Raises:
            InvalidArgument: the session is another one.
            Fail: "Error in execution: …", whatever went wrong.
        """
        if session is not self._session:
            raise InvalidArgument("IOBinding must be used with the session that created it.")
        if not self._targets:
            raise Fail("Error in execution: At least one output should be requested.")
        names = list(self._targets)
        self._outputs = OrtValueVector(
            _in_binding(
                lambda: self._session.run_bound(self._inputs, names, list(self._targets.values()), run_options),
                "Error in execution",
            )
        )

    @property
    def _iobinding(self) -> IOBinding:
        """Itself: clients of ONNX Runtime's inner class ask for it."""
        return self

    def _declared_type(self, name: str) -> str | None:
        for argument in (*self._session.get_inputs(), *self._session.get_overridable_initializers()):
            if argument.name == name:
                return argument.type or None
        known = [argument.name for argument in self._session.get_inputs()]
        raise Fail(f"Failed to find NodeArg with name: {name} in the def list; the model's inputs are {known}")


def _in_binding(work: Callable[[], Any], what: str = "Error when binding input") -> Any:
    """Do it; errors become ``Fail``, as ONNX Runtime's binding path has them."""
    try:
        return work()
    except OrtSdkError as error:
        raise Fail(f"{what}: {error.text}") from error


def _checked(value: Any) -> OrtValue:
    if not isinstance(value, OrtValue):
        raise TypeError(f"incompatible function arguments: takes an OrtValue, got {type(value).__name__}")
    return value


def _at_address(device: OrtDevice, element_type: Any, shape: Sequence[int], address: int) -> OrtValue:
    if device.device_type() != OrtDevice.cpu():
        raise OrtNotImplemented(
            f"memory of {device} at address {address:#x}: addresses have no meaning across providers; "
            "bind an OrtValue instead (OrtValue.ortvalue_from_numpy or ortvalue_from_shape_and_type with the device)"
        )
    sizes = tuple(int(size) for size in shape)
    dtype = TensorElementType(element_type).numpy_dtype if isinstance(element_type, int) else np.dtype(element_type)
    nbytes = int(np.prod(sizes, dtype=np.int64)) * dtype.itemsize
    memory = (ctypes.c_uint8 * nbytes).from_address(int(address))
    array = np.frombuffer(memoryview(memory), dtype=dtype).reshape(sizes) if nbytes else np.empty(sizes, dtype)
    return OrtValue.wrap(array, device_access(CPU_DEVICE), tensor_type(TensorElementType.from_numpy_dtype(dtype)))


def _host_copy(value: OrtValue) -> Any:
    if not value.is_tensor():
        return value.value_on(CPU_DEVICE)
    array = value.numpy()
    return array.copy() if value.device == CPU_DEVICE else array


def check_preallocated(target: OrtValue, fetch: Fetch) -> None:
    """Refuse given memory that cannot hold an output.

    Raises:
        InvalidArgument: another type, rank, or size where the model says one.
    """
    if fetch.type and target.data_type() != fetch.type:
        raise InvalidArgument(f"Unexpected output data type. Actual: ({target.data_type()}) , expected: ({fetch.type})")
    check_shape(fetch.name, tuple(target.shape()), fetch.shape, "output")


def fill_preallocated(target: OrtValue, made: OrtValue, name: str) -> None:
    """Put an output into given memory.

    Raises:
        InvalidArgument: the output has another type or shape.
    """
    if target.shape() != made.shape() or target.data_type() != made.data_type():
        raise InvalidArgument(
            f"The output OrtValue provided for output '{name}' is {target.data_type()}{target.shape()} but this run computed "
            f"{made.data_type()}{made.shape()}. Bind the output to a device instead, or memory of the shape each run makes."
        )
    target.overwrite(made)
