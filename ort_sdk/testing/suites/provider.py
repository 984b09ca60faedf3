"""Suite: discovery, names, hooks, cheap import, clean failure (behaviours P1 to P14)."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
from typing import Any, ClassVar

import pytest

from ort_sdk.api import CPU_DEVICE, PROVIDER_GROUP, Array, ExecutionProvider, OrtDevice, OrtSdkError, TensorElementType
from ort_sdk.plugins import plugin_manager
from ort_sdk.session.providers.opened import open_provider
from ort_sdk.testing.compare import assert_same_bytes

from .suite import ProviderSuite, sample

__all__ = ["DiscoverySuite"]


class DiscoverySuite(ProviderSuite):
    """Whether the host finds the provider, opens it, and gets true answers."""

    heavy_modules: ClassVar[tuple[str, ...]] = (
        *("cupy", "pyopencl", "cuda", "torch", "jax", "tensorflow", "numba", "scipy", "onnx", "onnxruntime", "PIL"),
        *("array_api_strict", "ml_dtypes", "google.protobuf"),
    )
    """Modules that finding the provider must not import: everybody would pay for them."""

    def test_it_is_loaded(self) -> None:
        """P1."""
        record = self.subject.handle.record
        assert record.state == "loaded", f"{record.label()} is {record.state}: {record.reason}"

    def test_its_names_are_well_formed(self) -> None:
        """P2."""
        name, short = self.subject.handle.name, self.subject.handle.entry_point_name
        assert name.endswith("ExecutionProvider"), f"provider name '{name}' must end with 'ExecutionProvider'"
        assert name.isidentifier(), f"provider name '{name}' must be one word"
        if self.plugin is None:
            assert short == short.lower(), f"entry point name '{short}' must be lower case"

    def test_it_has_devices(self) -> None:
        """P3."""
        devices = self.subject.handle.get_supported_devices()
        assert devices, "get_supported_devices gave none"
        assert all(isinstance(device, OrtDevice) for device in devices)
        assert len(set(devices)) == len(devices), f"devices are listed twice: {', '.join(map(str, devices))}"

    def test_it_opens_on_every_device(self) -> None:
        """P4."""
        handle = self.subject.handle
        for device in handle.get_supported_devices():
            execution_provider = handle.create_execution_provider(device, {}, {})
            assert isinstance(execution_provider, ExecutionProvider)
            assert execution_provider.name == handle.name
            assert execution_provider.device == device

    def test_its_registry_is_built_once(self) -> None:
        """P5."""
        handle, first = self.subject.handle, self.subject.execution_provider
        second = handle.create_execution_provider(self.device, self.provider_options, {})
        registry = handle.get_kernel_registry(first)
        assert registry is handle.get_kernel_registry(second), "get_kernel_registry built another registry for another session"
        assert registry is None or registry.provider_name == handle.name

    def test_it_describes_its_arrays(self) -> None:
        """P6."""
        element_type = TensorElementType.FLOAT if TensorElementType.FLOAT in self.stored_types else min(self.stored_types)
        for shape in ((), (0,), (2, 3)):
            array = self.to_device(sample(shape, element_type))
            assert self.subject.execution_provider.describe(array) == (element_type, shape)

    def test_its_run_scope_lets_errors_through(self) -> None:
        """P7."""
        with pytest.raises(KeyError, match="of the caller"), self.subject.execution_provider.run_scope():
            raise KeyError("of the caller")

    def test_its_run_scope_can_be_entered_again(self) -> None:
        """P7."""
        for _ in range(3):
            with self.subject.execution_provider.run_scope():
                pass

    def test_a_device_it_lacks_is_refused_by_name(self) -> None:
        """P8."""
        missing = 1 + max(device.index for device in self.subject.handle.get_supported_devices())
        with pytest.raises(OrtSdkError, match=self.subject.name):
            open_provider(self.subject.handle, {"device_id": str(missing)}, {})

    def test_no_other_provider_is_disturbed(self) -> None:
        """P9."""
        names = {handle.name for handle in plugin_manager().available_providers()}
        assert {self.subject.name, "CPUExecutionProvider"} <= names

    def test_finding_it_is_cheap(self) -> None:
        """P10."""
        entry_point = _entry_point(self.subject.handle.entry_point_name)
        code = (
            f"import json, sys, importlib; importlib.import_module({entry_point.module!r});"
            f"print(json.dumps([name for name in {list(self.heavy_modules)!r} if name in sys.modules]))"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)  # noqa: S603 - our own
        assert done.returncode == 0, done.stderr
        imported = json.loads(done.stdout.splitlines()[-1])
        assert not imported, f"importing {entry_point.module} imports {imported}: import them where a hook first needs them"

    def test_its_work_is_done_when_it_says_so(self) -> None:
        """P11."""
        execution_provider, transfer = self.subject.execution_provider, self.subject.data_transfer
        if not self.subject.is_asynchronous or transfer is None:
            pytest.skip(f"the runs of {self.subject.name} end when their work is done")
        wanted = sample((1 << 16,), min(self.stored_types))
        with execution_provider.run_scope():
            array = transfer.copy(wanted.copy(), CPU_DEVICE, self.device)
            event = execution_provider.record_event()
            execution_provider.order_after(event)
        event.wait()
        assert_same_bytes(self.read_back(array), wanted)
        event.wait()
        execution_provider.synchronize()
        with execution_provider.run_scope():
            execution_provider.record_event().wait()

    def test_it_knows_its_arrays_memory(self) -> None:
        """P12."""
        first, second = (self.to_device(sample((2, 3), min(self.stored_types))) for _ in range(2))
        for entirely in (False, True):
            assert self.subject.execution_provider.shares_memory(first, first, entirely=entirely)
            assert not self.subject.execution_provider.shares_memory(first, second, entirely=entirely)

    def test_it_takes_the_tensors_that_it_gives(self) -> None:
        """P13."""
        execution_provider = self.subject.execution_provider
        if not execution_provider.dlpack_device_type:
            pytest.skip(f"{self.subject.name} exchanges no DLPack tensors")
        wanted = sample((2, 3), min(self.stored_types))
        array = self.to_device(wanted)
        with execution_provider.run_scope():
            taken = execution_provider.from_dlpack(_Tensor(execution_provider, array))
        assert execution_provider.describe(taken) == execution_provider.describe(array)
        assert execution_provider.shares_memory(taken, array, entirely=True)
        del array
        assert_same_bytes(self.read_back(taken), wanted)

    def test_its_views_show_the_memory_of_their_arrays(self) -> None:
        """P14."""
        transfer, execution_provider = self.subject.data_transfer, self.subject.execution_provider
        if transfer is None or type(execution_provider).reshaped is ExecutionProvider.reshaped:
            pytest.skip(f"{self.subject.name} makes no views of arrays on a device")
        element_type = min(self.stored_types)
        wanted, later = sample((4, 6), element_type), sample((4, 6), element_type, seed=1)
        array = self.to_device(wanted)
        view = execution_provider.reshaped(array, (2, 12))
        assert view is not None, "reshaped gave nothing for an array of the allocator"
        assert execution_provider.describe(view) == (element_type, (2, 12))
        again = execution_provider.reshaped(view, (3, 8))
        rows = execution_provider.outer_range(array, 1, 3)
        if hasattr(transfer, "copy_into"):
            with execution_provider.run_scope():
                transfer.copy_into(later, CPU_DEVICE, array, self.device)
            wanted = later
        del array  # a view keeps the memory
        assert self.to_host(view).tobytes() == wanted.tobytes()
        if again is not None:
            assert self.to_host(again).tobytes() == wanted.tobytes()
        if rows is not None:
            assert execution_provider.describe(rows) == (element_type, (2, 6))
            assert self.to_host(rows).tobytes() == wanted[1:3].tobytes()


class _Tensor:
    """Another library's tensor, in the memory of an array."""

    def __init__(self, execution_provider: ExecutionProvider, array: Array) -> None:
        self._execution_provider, self._array = execution_provider, array

    def __dlpack_device__(self) -> tuple[int, int]:
        return (self._execution_provider.dlpack_device_type, self._execution_provider.device.index)

    def __dlpack__(self, *, stream: Any = None, **_options: Any) -> Any:
        return self._execution_provider.to_dlpack(self._array, stream, None)


def _entry_point(name: str) -> importlib.metadata.EntryPoint:
    for entry_point in importlib.metadata.entry_points(group=PROVIDER_GROUP):
        if entry_point.name == name:
            return entry_point
    pytest.skip("registered in-process: there is no entry point to import")
