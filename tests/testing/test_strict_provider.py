from types import SimpleNamespace

import numpy as np
import pytest

from ort_sdk.api import (
    CPU_DEVICE,
    InvalidArgument,
    KernelInfo,
    NodeArg,
    OrtDevice,
    OrtMemoryInfo,
    RuntimeException,
    TensorElementType,
    find_schema,
)
from ort_sdk.plugins import PluginManager
from ort_sdk.testing.strict.memory import POISON, peek
from ort_sdk.testing.strict.provider import StrictProvider

FIRST, SECOND = OrtDevice("strict", 0), OrtDevice("strict", 1)
FLOAT = "tensor(float)"


@pytest.fixture
def provider():
    return StrictProvider()


@pytest.fixture
def strict(provider):
    """One device through the plugin door: handle, execution provider, registry and transfer."""
    handle = PluginManager(discovery=False).register(provider, name="strict")
    execution_provider = handle.create_execution_provider(FIRST, {}, {})
    return SimpleNamespace(
        handle=handle,
        execution_provider=execution_provider,
        registry=handle.get_kernel_registry(execution_provider),
        transfer=handle.get_data_transfer(execution_provider),
        allocator=handle.create_allocator(execution_provider, OrtMemoryInfo(FIRST, "Strict")),
    )


def kernel(strict, op_type, inputs, outputs=(FLOAT,), **attributes):
    schema = find_schema(op_type, 22)
    info = KernelInfo(
        op_type=op_type,
        since_version=schema.since_version,
        name="node",
        attributes=attributes,
        inputs=tuple(NodeArg(f"x{index}", text) for index, text in enumerate(inputs)),
        outputs=tuple(NodeArg(f"y{index}", text) for index, text in enumerate(outputs)),
        execution_provider=strict.execution_provider,
        opset_version=22,
    )
    candidates = strict.registry.candidates("", op_type)
    found = next(row for row in candidates if row.kernel_def.matches_version(info.since_version))
    assert found.kernel_def.when(info) is None
    return found.create(info)


def to_device(strict, array, device=FIRST):
    return strict.transfer.copy(np.asarray(array), CPU_DEVICE, device)


def test_it_is_a_provider_with_two_devices(strict):
    assert strict.handle.name == "StrictExecutionProvider"
    assert strict.handle.devices == (FIRST, SECOND)
    assert ("", "Relu") in strict.registry.operators()
    assert not {"If", "Loop", "Scan"} & {op_type for _, op_type in strict.registry.operators()}


def test_work_is_done_when_it_is_waited_for_and_not_before(strict):
    relu = kernel(strict, "Relu", [FLOAT])
    x = to_device(strict, np.float32([-1, 2]))
    with strict.execution_provider.run_scope():
        y = relu.compute(x)
        assert y.cell.storage is None
        assert not y.work.is_finished
        z = relu.compute(y)
        assert y.shape == (2,)
        assert not z.work.is_finished
    assert z.work.is_finished
    np.testing.assert_array_equal(strict.transfer.copy(z, FIRST, CPU_DEVICE), [0, 2])


def test_an_output_never_aliases_an_input(strict):
    flatten = kernel(strict, "Relu", [FLOAT])
    x = to_device(strict, np.float32([1, 2]))
    with strict.execution_provider.run_scope():
        y = flatten.compute(x)
    assert not np.shares_memory(x.cell.storage, y.cell.storage)


def test_a_launch_outside_a_run_raises(strict):
    relu = kernel(strict, "Relu", [FLOAT])
    with pytest.raises(RuntimeException, match=r"Relu.*outside the provider's run_scope"):
        relu.compute(to_device(strict, np.float32([1])))


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda strict: np.ones(1, np.float32), InvalidArgument, "a copy to the device is missing"),
        (lambda strict: to_device(strict, np.float32([1]), SECOND), InvalidArgument, "between the devices is missing"),
        (lambda strict: [np.ones(1)], InvalidArgument, "got list"),
    ],
)
def test_a_missed_copy_raises_and_names_node_and_input(strict, make, error, text):
    relu = kernel(strict, "Relu", [FLOAT])
    with strict.execution_provider.run_scope(), pytest.raises(error, match=rf"node 'node', input 0.*{text}"):
        relu.compute(make(strict))


def test_a_released_input_raises(strict):
    relu = kernel(strict, "Relu", [FLOAT])
    x = to_device(strict, np.float32([1]))
    with strict.execution_provider.run_scope():
        strict.allocator.release(x)
        with pytest.raises(RuntimeException, match="released before"):
            relu.compute(x)


def test_a_release_after_the_launch_does_no_harm(strict):
    relu = kernel(strict, "Relu", [FLOAT])
    x = to_device(strict, np.float32([3]))
    with strict.execution_provider.run_scope():
        y = relu.compute(x)
        strict.allocator.release(x)
        del x
    np.testing.assert_array_equal(peek(y), [3])


def test_an_error_of_late_work_is_raised_at_the_exit_of_its_run_and_says_where(strict):
    def broken(*_):
        raise ValueError("bad shape")

    relu = kernel(strict, "Relu", [FLOAT])
    relu._kernel = broken
    x = to_device(strict, np.float32([3]))
    with pytest.raises(ValueError, match="bad shape") as raised, strict.execution_provider.run_scope():
        relu.compute(x)
    assert "node 'node'" in raised.value.__notes__[0]
    with strict.execution_provider.run_scope():
        pass


def test_an_error_of_late_work_reaches_the_reader_of_the_shape(strict):
    relu = kernel(strict, "Relu", [FLOAT])
    relu._kernel = lambda *_: 1 / 0
    x = to_device(strict, np.float32([3]))
    with pytest.raises(ZeroDivisionError), strict.execution_provider.run_scope():
        assert relu.compute(x).shape


def slot(array=None):
    return SimpleNamespace(array=array, is_fixed=True)


def test_a_bound_kernel_writes_into_its_slots(strict):
    relu = kernel(strict, "Relu", [FLOAT])
    source = slot(to_device(strict, np.float32([-1, 2])))
    target = slot(strict.allocator.allocate((2,), TensorElementType.FLOAT))
    memory = target.array
    launch = relu.bind([source], [target])
    with strict.execution_provider.run_scope():
        launch()
        assert set(memory.cell.storage.view(np.uint8).tolist()) == {POISON}
        source.array = to_device(strict, np.float32([5, -5]))
    np.testing.assert_array_equal(peek(memory), [0, 2])
    with strict.execution_provider.run_scope():
        launch()
    assert target.array is memory
    np.testing.assert_array_equal(peek(memory), [5, 0])


def test_a_bound_kernel_fills_an_empty_slot_with_a_new_array(strict):
    relu = kernel(strict, "Relu", [FLOAT])
    target = slot()
    with strict.execution_provider.run_scope():
        relu.bind([slot(to_device(strict, np.float32([7])))], [target])()
    np.testing.assert_array_equal(peek(target.array), [7])


def test_binding_an_output_to_an_inputs_memory_raises(strict):
    relu = kernel(strict, "Relu", [FLOAT])
    shared = slot(to_device(strict, np.float32([7])))
    with strict.execution_provider.run_scope(), pytest.raises(RuntimeException, match="memory of input 0"):
        relu.bind([shared], [shared])()


def test_a_wrong_plan_of_memory_raises(strict):
    relu = kernel(strict, "Relu", [FLOAT])
    target = slot(strict.allocator.allocate((3,), TensorElementType.FLOAT))
    source = slot(to_device(strict, np.float32([7])))
    with (
        pytest.raises(RuntimeException, match=r"float32\[1\] into memory for float32\[3\]"),
        strict.execution_provider.run_scope(),
    ):
        relu.bind([source], [target])()


def test_inputs_on_the_host_are_taken_at_launch(strict):
    reshape = kernel(strict, "Reshape", [FLOAT, "tensor(int64)"])
    x = to_device(strict, np.arange(6, dtype=np.float32))
    shape = np.array([2, 3])
    with strict.execution_provider.run_scope():
        y = reshape.compute(x, shape)
        shape[:] = 0
    assert peek(y).shape == (2, 3)
    assert not hasattr(reshape, "bind")
    with strict.execution_provider.run_scope(), pytest.raises(InvalidArgument, match="input 1: is read on the host"):
        reshape.compute(x, to_device(strict, np.array([2, 3])))


def test_values_that_are_no_tensors_are_declined(strict):
    info = KernelInfo("Identity", 21, inputs=(NodeArg("x", "seq(tensor(float))"),), outputs=(NodeArg("y", None),))
    for row in strict.registry.candidates("", "Identity"):
        assert "holds tensors only" in row.kernel_def.when(info)
