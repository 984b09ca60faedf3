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
    TensorElementType,
    operator_names,
)
from ort_sdk.plugins import PluginManager
from ort_sdk.testing.null_provider import NULL_DEVICE, NullArray, NullProvider


@pytest.fixture
def null():
    handle = PluginManager(discovery=False).register(NullProvider, name="null")
    execution_provider = handle.create_execution_provider(NULL_DEVICE, {}, {})
    return SimpleNamespace(
        handle=handle,
        registry=handle.get_kernel_registry(execution_provider),
        transfer=handle.get_data_transfer(execution_provider),
        allocator=handle.create_allocator(execution_provider, OrtMemoryInfo(NULL_DEVICE, "Null")),
        execution_provider=execution_provider,
    )


@pytest.mark.parametrize("domain", ["", "ai.onnx.ml", "com.microsoft"])
def test_there_is_a_kernel_for_every_operator(null, domain):
    names = operator_names(domain)
    assert len(names) > 10
    for name in names:
        assert len(null.registry.candidates(domain, name)) == 1


def test_a_kernel_gives_empty_outputs_of_the_declared_types(null):
    info = KernelInfo(
        "Split",
        18,
        outputs=(NodeArg("y", "tensor(int64)", (2, "n", None)), None, NodeArg("z", "seq(tensor(float))"), NodeArg("m", None)),
    )
    kernel = null.registry.candidates("", "Split")[0].create(info)
    y, absent, sequence, unknown = kernel.compute("anything")
    assert (y.shape, y.element_type) == ((2, 1, 1), TensorElementType.INT64)
    assert absent is None
    assert sequence == []
    assert (unknown.shape, unknown.dtype) == ((), np.float32)
    assert null.execution_provider.describe(y) == (TensorElementType.INT64, (2, 1, 1))
    assert kernel.compute()[0] is y
    assert kernel.bind([], [])() is None


def test_a_kernel_with_one_output_gives_it_bare(null):
    info = KernelInfo("Abs", 13, outputs=(NodeArg("y", "tensor(float)", (3,)),))
    assert isinstance(null.registry.candidates("", "Abs")[0].create(info).compute(None), NullArray)


def test_copies_move_shape_and_type(null):
    array = null.transfer.copy(np.ones((2, 3), np.int8), CPU_DEVICE, NULL_DEVICE)
    back = null.transfer.copy(array, NULL_DEVICE, CPU_DEVICE)
    assert (back.shape, back.dtype) == ((2, 3), np.int8)
    strings = null.transfer.copy(null.allocator.allocate((1,), TensorElementType.STRING), NULL_DEVICE, CPU_DEVICE)
    assert strings.tolist() == [""]
    with pytest.raises(InvalidArgument):
        null.transfer.copy(array, NULL_DEVICE, OrtDevice("cuda"))
