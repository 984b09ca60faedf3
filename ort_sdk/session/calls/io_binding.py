"""``IOBinding``: inputs and outputs that stay where they are between runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from ort_sdk.api import CPU_DEVICE, Fail, InvalidArgument, OrtSdkError, tensor_type
from ort_sdk.api import NotImplemented as OrtNotImplemented
from ort_sdk.api.foreign_errors import foreign_class, public_class
from ort_sdk.session.providers.device_memory import DeviceAccess, device_memory
from ort_sdk.session.values.node_arg import NodeArg
from ort_sdk.session.values.ort_device import OrtDevice, device_of
from ort_sdk.session.values.ort_value import OrtValue, OrtValueVector, host_copies
from ort_sdk.session.values.type_strings import given_element_type

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
        """Bind an input to memory at an address, which the caller keeps alive, and fills before the run.

        Args:
            name: of the input.
            device_type: name of the device the address is of, ``cpu``.
            device_id: which one of several.
            element_type: NumPy type or ONNX's code.
            shape: sizes; the memory is dense, row by row.
            buffer_ptr: of the first element, as ``data_ptr`` of a tensor gives it.

        Raises:
            Fail: no such input.
            InvalidArgument: a shape, type or address that memory cannot have.
            NotImplemented: the device's provider makes no arrays of memory at an address; bind an OrtValue instead.
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
        """Ask for an output on a device, or in memory there at an address, which the caller keeps alive.

        A run waits at its end until results are in memory at an address, unless its options have the entry
        ``disable_synchronize_execution_providers``; ``synchronize_outputs`` waits then.

        Args:
            name: of the output.
            device_type: name of the device, or the device.
            device_id: which one of several.
            element_type: of memory at an address: NumPy type or ONNX's code.
            shape: of memory at an address: sizes; it is dense, row by row.
            buffer_ptr: address of the first element; None for new memory in each run.

        Raises:
            InvalidArgument: an address without type and shape, or ones that memory cannot have.
            Fail: no such device.
            NotImplemented: the device's provider makes no arrays of memory at an address; bind an OrtValue instead.
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
        """Wait until devices are done with all that was queued on bound inputs, by earlier runs or copies.

        Raises:
            OrtSdkError: what that work raised.
        """
        for value in self._inputs.values():
            value.synchronize()

    def synchronize_outputs(self) -> None:
        """Wait until the outputs of the last run are there.

        Raises:
            OrtSdkError: what the run's queued work raised.
        """
        for value in self._outputs:
            value.wait()

    def get_outputs(self) -> list[OrtValue]:
        """Outputs of the last run, in the order they were bound."""
        return list(self._outputs)

    def get_outputs_as_ortvaluevector(self) -> OrtValueVector:
        """The same as the vector the binding itself holds."""
        return self._outputs

    def copy_outputs_to_cpu(self) -> list[Any]:
        """Outputs of the last run as host arrays of the caller's own."""
        return host_copies(self._outputs)

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
    kind = given_element_type(element_type)
    sizes = tuple(int(size) for size in shape)
    if any(size < 0 for size in sizes):
        raise InvalidArgument(f"memory at an address cannot have the shape {list(sizes)}: sizes are not negative")
    if kind.numpy_dtype.hasobject:
        raise InvalidArgument(f"memory at an address holds numbers, not {kind.name}; bind an array or an OrtValue")
    if isinstance(address, bool) or not isinstance(address, (int, np.integer)):
        raise TypeError(f"incompatible function arguments: an address is an int, got {address!r}")
    access = _memory_of(device)
    multiple = 1 if access.provider is None else kind.numpy_dtype.itemsize
    if 0 not in sizes and (address <= 0 or address % multiple):
        raise InvalidArgument(
            f"{kind.name}{list(sizes)} cannot be in memory of {device} at address {int(address):#x}: that must be a positive "
            f"multiple of {multiple}"
        )
    return OrtValue.wrap(access.wrap(int(address), sizes, kind), access, tensor_type(kind), is_shared=True)


def _memory_of(device: OrtDevice) -> DeviceAccess:
    """Access to a device's memory.

    Raises:
        NotImplemented: no installed provider has it.
    """
    try:
        return device_memory(device_of(device))
    except Fail as error:
        raise OrtNotImplemented(f"memory at an address of {device}: {error.text}; bind an OrtValue instead") from error
