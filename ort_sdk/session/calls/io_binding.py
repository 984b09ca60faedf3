"""``IOBinding``: inputs and outputs that stay where they are between runs."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from ort_sdk.api import CPU_DEVICE, Fail, InvalidArgument, OrtSdkError, TensorElementType, tensor_type
from ort_sdk.api import NotImplemented as OrtNotImplemented
from ort_sdk.api.foreign_errors import foreign_class, public_class
from ort_sdk.session.providers.device_memory import device_memory
from ort_sdk.session.values.node_arg import NodeArg
from ort_sdk.session.values.ort_device import OrtDevice, device_of
from ort_sdk.session.values.ort_value import OrtValue, OrtValueVector

from .bindings import Bindings, Target
from .feed_conversion import converter

__all__ = ["IOBinding"]


class BindableSession(Protocol):
    """What a binding needs of its ``InferenceSession``."""

    def get_inputs(self) -> list[NodeArg]: ...

    def get_overridable_initializers(self) -> list[NodeArg]: ...

    def run_bound(self, bindings: Bindings, run_options: Any) -> list[OrtValue]: ...


@public_class(but=("run_in",))
class IOBinding:
    """The inputs and outputs of later runs. Values on the device a provider wants are used as they are, without a copy.

    Args:
        session: the session it is for.
    """

    def __init__(self, session: BindableSession) -> None:
        self._session = session
        self._inputs: dict[str, OrtValue] = {}
        self._targets: dict[str, Target] = {}
        self._outputs = OrtValueVector()
        self._bindings: Bindings | None = None
        """What is bound, since the last run."""

    def bind_cpu_input(self, name: str, arr_on_cpu: Any) -> None:
        """Bind an input to a host array, which is aliased.

        Raises:
            Fail: no such input, or no array of the declared kind.
        """
        declared = self._declared_type(name)
        if isinstance(arr_on_cpu, np.ndarray) and arr_on_cpu.dtype.kind not in "UTSO":
            self._bind_input(name, OrtValue.ortvalue_from_numpy(arr_on_cpu))
        else:
            try:
                value = converter(declared, name)(arr_on_cpu)
            except OrtSdkError as error:
                raise Fail(f"Error when binding input: {error.text}") from error
            self._bind_input(name, OrtValue.wrap(value, device_memory(CPU_DEVICE), declared or ""))

    def bind_input(
        self, name: str, device_type: str, device_id: int, element_type: Any, shape: Sequence[int], buffer_ptr: int
    ) -> None:
        """Bind an input to host memory at an address, which the caller keeps alive.

        Raises:
            Fail: no such input.
            NotImplemented: memory of another device, which has no portable address; bind an OrtValue instead.
        """
        self._declared_type(name)
        self._bind_input(name, _at_address(OrtDevice.make(device_type, device_id), element_type, shape, buffer_ptr))

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """Bind an input to a value on any device.

        Raises:
            Fail: no such input.
        """
        self._declared_type(name)
        self._bind_input(name, _checked(ortvalue))

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
        if buffer_ptr is None:
            self._bind_output(name, device_of(device_type, device_id))
        elif element_type is None or shape is None:
            raise InvalidArgument("`element_type` and `shape` are to be provided if pre-allocated memory is provided")
        else:
            device = device_type if isinstance(device_type, OrtDevice) else OrtDevice.make(device_type, device_id)
            self._bind_output(name, _at_address(device, element_type, shape, buffer_ptr))

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Ask for an output in the memory of a value."""
        self._bind_output(name, _checked(ortvalue))

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
        self._bindings = None

    def clear_binding_outputs(self) -> None:
        """Forget all outputs, and the last run's values."""
        self._targets.clear()
        self._bindings = None
        self._outputs = OrtValueVector()

    def run_in(self, session: BindableSession, run_options: Any = None) -> None:
        """Run the session on what is bound.

        Raises:
            InvalidArgument: the session is another one.
            Fail: "Error in execution: …", whatever went wrong.
        """
        if session is not self._session:
            raise InvalidArgument("IOBinding must be used with the session that created it.")
        if not self._targets:
            raise Fail("Error in execution: At least one output should be requested.")
        if self._bindings is None:
            self._bindings = Bindings(dict(self._inputs), list(self._targets), list(self._targets.values()))
        try:
            self._outputs = OrtValueVector(session.run_bound(self._bindings, run_options))
        except OrtSdkError as error:
            raise foreign_class(error, Fail)(f"Error in execution: {error.text}") from error

    @property
    def _iobinding(self) -> IOBinding:
        """Itself: clients of ONNX Runtime's inner class ask for it."""
        return self

    def _bind_input(self, name: str, value: OrtValue) -> None:
        self._inputs[name] = value
        self._bindings = None

    def _bind_output(self, name: str, target: Target) -> None:
        self._targets[name] = target
        self._bindings = None

    def _declared_type(self, name: str) -> str | None:
        for argument in (*self._session.get_inputs(), *self._session.get_overridable_initializers()):
            if argument.name == name:
                return argument.type or None
        known = [argument.name for argument in self._session.get_inputs()]
        raise Fail(f"Failed to find NodeArg with name: {name} in the def list; the model's inputs are {known}")


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
    return OrtValue.wrap(array, device_memory(CPU_DEVICE), tensor_type(TensorElementType.from_numpy_dtype(dtype)))


def _host_copy(value: OrtValue) -> Any:
    if not value.is_tensor():
        return value.value_on(CPU_DEVICE)
    array = value.numpy()
    return array.copy() if value.device == CPU_DEVICE else array
