"""``SessionOptions`` and ``RunOptions``, as in ONNX Runtime."""

from __future__ import annotations

import copy
import operator
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ort_sdk.api import CPU_DEVICE, Fail, InvalidArgument, Tensor
from ort_sdk.api import NotImplemented as OrtNotImplemented
from ort_sdk.api.foreign_errors import public_class
from ort_sdk.api.stopping import StopFlag
from ort_sdk.config_keys import EXECUTION_MODE, INTER_OP_NUM_THREADS, INTRA_OP_NUM_THREADS, LOG_SEVERITY_LEVEL
from ort_sdk.formats.files.external_file import normal_location
from ort_sdk.graph.tensor import ArrayTensor
from ort_sdk.session.option_enums import ExecutionMode, ExecutionOrder, GraphOptimizationLevel, OrtExecutionProviderDevicePolicy
from ort_sdk.session.values.ort_value import OrtValue

from .fields import ConfigEntries, Options, flag, member, number, text

__all__ = ["RunOptions", "SessionOptions"]

if TYPE_CHECKING:
    from ort_sdk.session.values.ep_devices import OrtEpDevice

    SelectionDelegate = Callable[[Sequence[OrtEpDevice], dict[str, str], dict[str, str], int], Sequence[OrtEpDevice]]


@public_class(but=("snapshot", "entries_for_providers"))
class SessionOptions(Options):
    """How a session is made. May be used for any number of sessions; each takes a copy."""

    __slots__ = (
        "_config",
        "_denotation_overrides",
        "_external_files",
        "_external_initializers",
        "_initializers",
        "_is_load_cancelled",
        "_name_overrides",
        "_policy",
        "_providers",
    )

    enable_cpu_mem_arena = flag(True, "Accepted; host memory is NumPy's.")
    enable_mem_pattern = flag(True, "Accepted; programs lay out memory by signature.")
    enable_mem_reuse = flag(True, "Accepted.")
    enable_profiling = flag(False, "Whether runs are profiled from the start.")
    execution_mode = member(ExecutionMode.ORT_SEQUENTIAL, "Accepted and passed to providers; nodes run one after the other.")
    execution_order = member(ExecutionOrder.DEFAULT, "Accepted; the order is the model's topological order.")
    graph_optimization_level = member(GraphOptimizationLevel.ORT_ENABLE_ALL, "How far the optimizer goes.")
    inter_op_num_threads = number(0, "Threads of ``run_async``; below 1 leaves the choice to the session.")
    intra_op_num_threads = number(0, "Threads inside a kernel, with the caller's; below 1: the provider's (CPU: physical cores).")
    log_severity_level = number(-1, "0 verbose, 1 info, 2 warning, 3 error, 4 fatal; -1 takes the default.")
    log_verbosity_level = number(0, "Accepted.")
    logid = text("", "Name of the session in the log.")
    optimized_model_filepath = text("", "File the optimized model is written to; empty for none.")
    profile_file_prefix = text("onnxruntime_profile_", "Start of the profile's file name; date and time follow.")
    use_deterministic_compute = flag(False, "Accepted.")
    use_per_session_threads = flag(True, "Accepted.")

    def __init__(self) -> None:
        super().__init__()
        self._config = ConfigEntries("SessionOptions")
        self._initializers: dict[str, OrtValue] = {}
        self._external_initializers: dict[str, OrtValue] = {}
        self._external_files: dict[str, Any] = {}
        self._name_overrides: dict[str, int] = {}
        self._denotation_overrides: dict[str, int] = {}
        self._providers: list[tuple[str, dict[str, str]]] = []
        self._policy: OrtExecutionProviderDevicePolicy | SelectionDelegate | None = None
        self._is_load_cancelled = False

    def snapshot(self) -> SessionOptions:
        """A copy that later changes of this object do not reach; weights and buffers are shared."""
        duplicate = SessionOptions()
        for name in ("_values", *SessionOptions.__slots__):
            setattr(duplicate, name, copy.copy(getattr(self, name)))
        return duplicate

    def _without_contents(self) -> SessionOptions:
        """A copy without weights and buffers."""
        duplicate = self.snapshot()
        duplicate._initializers, duplicate._external_initializers, duplicate._external_files = {}, {}, {}
        return duplicate

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Set a config entry. Unknown keys are kept and ignored.

        Raises:
            Fail: an empty key, or more than 1024 (key) or 8192 (value) characters.
        """
        self._config.add(key, value)

    def get_session_config_entry(self, key: str) -> str:
        """A config entry.

        Raises:
            Fail: none was set.
        """
        return self._config.read(key)

    def entries_for_providers(self) -> dict[str, str]:
        """Config entries as providers get them: those set, and options under the names that ONNX Runtime has for them."""
        mode = "parallel" if self.execution_mode is ExecutionMode.ORT_PARALLEL else "sequential"
        typed = {
            EXECUTION_MODE: mode,
            INTER_OP_NUM_THREADS: str(max(self.inter_op_num_threads, 0)),
            INTRA_OP_NUM_THREADS: str(max(self.intra_op_num_threads, 0)),
            LOG_SEVERITY_LEVEL: str(self.log_severity_level),
        }
        return typed | self._config

    def add_initializer(self, name: str, value: OrtValue) -> None:
        """Use this value instead of the model's initializer of that name. Shared by sessions, not copied.

        Raises:
            Fail: ``value`` is no OrtValue with a tensor.
        """
        self._initializers[name] = _tensor_value(name, value)

    def add_external_initializers(self, names: Sequence[str], values: Sequence[OrtValue]) -> None:
        """Use these values instead of external initializers of the model, by name.

        Raises:
            Fail: lists of different length, or no tensors.
        """
        if len(names) != len(values):
            raise Fail(
                f"Expecting names and ort_values lists to have equal length, got {len(names)} names and {len(values)} values"
            )
        self._external_initializers.update((name, _tensor_value(name, value)) for name, value in zip(names, values, strict=True))

    def add_external_initializers_from_files_in_memory(
        self, names: Sequence[str], buffers: Sequence[Any], lengths: Sequence[int], /
    ) -> None:
        """Use these buffers instead of external data files. They are kept, not copied.

        Args:
            names: file names as the model's external data says them.
            buffers: bytes-like objects.
            lengths: bytes of each buffer that count.

        Raises:
            TypeError: an entry is no buffer.
            Fail: sequences of different length, or a length beyond its buffer.
        """
        if not len(names) == len(buffers) == len(lengths):
            raise Fail(
                "add_external_initializers_from_files_in_memory: expecting 'names', 'buffers' and 'lengths' to have "
                f"equal length, got {len(names)}, {len(buffers)} and {len(lengths)}"
            )
        for name, buffer, length in zip(names, buffers, lengths, strict=True):
            view = memoryview(buffer).cast("B")
            if not 0 <= length <= view.nbytes:
                raise Fail(f"external file '{name}' in memory: length {length} does not fit its buffer of {view.nbytes} bytes")
            self._add_external_file(name, view[:length])

    def add_external_file(self, location: str, content: str | os.PathLike[str] | Any) -> None:
        """Use a file or a buffer instead of an external data file of the model.

        Args:
            location: as the model's external data says it.
            content: path of a file, anywhere, which is mapped; or a bytes-like object, which is kept and not copied.

        Raises:
            TypeError: neither a path nor a contiguous buffer.
            Fail: the location was given before.
        """
        entry = content if isinstance(content, str | os.PathLike) else memoryview(content).cast("B")
        self._add_external_file(location, entry)

    def _add_external_file(self, location: str, content: Any) -> None:
        key = normal_location(location)
        if key in self._external_files:
            raise Fail(f"An entry for this name has already been added: external file '{location}' in memory")
        self._external_files[key] = content

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """Give a symbolic dimension of the inputs (``batch``) a fixed size."""
        self._name_overrides[name] = operator.index(size)

    def add_free_dimension_override_by_denotation(self, denotation: str, size: int) -> None:
        """Give all free dimensions of the inputs with a denotation (``DATA_BATCH``) a fixed size."""
        self._denotation_overrides[denotation] = operator.index(size)

    def register_custom_ops_library(self, path: str) -> None:
        """Not possible: kernels come from provider plugins.

        Raises:
            NotImplemented: always.
        """
        raise OrtNotImplemented(
            f"register_custom_ops_library({path!r}): libraries of ONNX Runtime's C API cannot be loaded. "
            "Write the operators as kernels of a provider plugin (KernelRegistry.kernel) and name that provider"
        )

    def add_provider(self, name: str, options: Mapping[str, str]) -> None:
        """Add a provider, in order of preference."""
        self._providers.append((str(name), {str(key): str(value) for key, value in options.items()}))

    def add_provider_for_devices(self, devices: Sequence[OrtEpDevice], options: Mapping[str, str]) -> None:
        """Add the provider of these devices.

        Raises:
            InvalidArgument: no device, or devices of different providers.
        """
        names = {device.ep_name for device in devices}
        if len(names) != 1:
            raise InvalidArgument(
                f"add_provider_for_devices takes devices of one execution provider, got {sorted(names) or 'none'}"
            )
        name = names.pop()
        # One provider of a session works on one device; the first is the caller's preference.
        self.add_provider(name, {"device_id": str(devices[0].ort_device.index), **options})
        for key, value in options.items():
            self._config.add(f"ep.{name.lower()}.{key}", str(value))

    def set_provider_selection_policy(self, policy: OrtExecutionProviderDevicePolicy) -> None:
        """Choose providers by a policy when the session names none."""
        if not isinstance(policy, OrtExecutionProviderDevicePolicy):
            raise TypeError(f"incompatible function arguments: takes an OrtExecutionProviderDevicePolicy, got {policy!r}")
        self._policy = policy

    def set_provider_selection_policy_delegate(self, delegate: SelectionDelegate) -> None:
        """Choose providers by a function ``(devices, model_metadata, runtime_metadata, max_selections) -> devices``."""
        if not callable(delegate):
            raise TypeError(f"incompatible function arguments: takes a callable, got {delegate!r}")
        self._policy = delegate

    def has_providers(self) -> bool:
        """Whether providers, devices or a policy were set here."""
        return bool(self._providers) or self._policy is not None

    def set_load_cancellation_flag(self, value: bool) -> None:
        """Ask sessions made with these options to stop loading."""
        self._is_load_cancelled = bool(value)

    def set_ep_context_data_read_func(self, read_func: Any, max_data_size: int) -> None:
        """Not possible: no provider writes EPContext nodes.

        Raises:
            NotImplemented: always.
        """
        raise OrtNotImplemented("set_ep_context_data_read_func: EPContext models are not supported; load the original model")

    def clear_ep_context_data_read_func(self) -> None:
        """Nothing is set, so nothing is cleared."""

    def replaced_initializers(self) -> dict[str, Tensor]:
        """Initializers given by ``add_initializer``."""
        return {name: _as_tensor(value) for name, value in self._initializers.items()}

    def replaced_external_initializers(self) -> dict[str, Tensor]:
        """Initializers given by ``add_external_initializers``."""
        return {name: _as_tensor(value) for name, value in self._external_initializers.items()}


@public_class()
class RunOptions(Options):
    """Options of one run. Setting ``terminate`` from another thread stops runs that use the object between two nodes."""

    __slots__ = ("_config", "_stop")

    log_severity_level = number(-1, "0 verbose, 1 info, 2 warning, 3 error, 4 fatal; -1 takes the session's.")
    log_verbosity_level = number(0, "Accepted.")
    logid = text("", "Name of the run in the log.")
    only_execute_path_to_fetches = flag(False, "Accepted.")
    terminate = flag(False, "Whether runs that use these options shall stop.")

    def __init__(self) -> None:
        super().__init__()
        self._config = ConfigEntries("RunOptions")
        self._stop = StopFlag()

    def _on_set(self, name: str, value: Any) -> None:
        if name == "terminate":
            self._stop.is_set = value

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Set a config entry. Unknown keys are kept and ignored.

        Raises:
            Fail: an empty key, or more than 1024 (key) or 8192 (value) characters.
        """
        self._config.add(key, value)

    def get_run_config_entry(self, key: str) -> str:
        """A config entry.

        Raises:
            Fail: none was set.
        """
        return self._config.read(key)

    def add_active_adapter(self, adapter: Any) -> None:
        """Not possible yet.

        Raises:
            NotImplemented: always.
        """
        raise OrtNotImplemented(
            f"add_active_adapter({adapter!r}): LoRA adapters are not supported; feed their parameters as inputs of the run"
        )


def _tensor_value(name: str, value: Any) -> OrtValue:
    if not isinstance(value, OrtValue) or not value.is_tensor():
        raise Fail(
            f"initializer '{name}': the provided Python object must be an OrtValue with a tensor, got {type(value).__name__}"
        )
    return value


def _as_tensor(value: OrtValue) -> Tensor:
    return ArrayTensor(value.value_on(CPU_DEVICE))
