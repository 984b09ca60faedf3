"""Casts around nodes whose only kernels compute in float."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from ort_sdk.api import CPU_DEVICE, ExecutionProvider, KernelRegistry, NoKernelError
from ort_sdk.graph.type_inference import infer_types
from ort_sdk.loader import load_model
from ort_sdk.opset import add_opset
from ort_sdk.partition import ProviderBinding, partition
from tests.models_for_tests import model_bytes, value

node = helper.make_node


def _binding(register):
    registry = KernelRegistry("FloatExecutionProvider")
    register(registry)
    provider = ExecutionProvider(registry.provider_name, CPU_DEVICE)
    return ProviderBinding(registry.provider_name, provider, registry, lambda *_: None, lambda _nodes: [])


def _float_relu(registry):
    registry.kernel("Relu", 14, {"T": ["tensor(float)"]})(lambda _info: lambda x: np.maximum(x, 0))


def _with_casts(registry):
    _float_relu(registry)
    add_opset(registry, np, exclude={"Relu"})


def _assignment(register, element_type):
    model = load_model(
        model_bytes(
            [node("Neg", ["x"], ["n"]), node("Relu", ["n"], ["r"], name="clamp"), node("Add", ["r", "n"], ["y"])],
            [value("x", [2], element_type)],
            [value("y", [2], element_type)],
        )
    )
    infer_types(model.graph)
    return partition(model.graph, model.opset_imports, [_binding(register)], lambda _node, _graph: None)


@pytest.mark.parametrize("element_type", [TensorProto.FLOAT16, TensorProto.BFLOAT16])
def test_a_node_without_a_narrow_kernel_computes_in_float(element_type):
    graph = _assignment(_with_casts, element_type).graph
    assert [inner.op_type for inner in graph.nodes] == ["Neg", "Cast", "Relu", "Cast", "Add"]
    assert graph.nodes[1].attributes["to"] == TensorProto.FLOAT
    assert graph.nodes[3].attributes["to"] == element_type
    assert graph.node_arg(graph.nodes[2].inputs[0]).type == "tensor(float)"
    assert graph.nodes[3].outputs == ["r"]


def test_nothing_is_cast_where_a_kernel_fits():
    graph = _assignment(_with_casts, TensorProto.FLOAT).graph
    assert [inner.op_type for inner in graph.nodes] == ["Neg", "Relu", "Add"]


def test_no_float_kernel_is_still_an_error():
    with pytest.raises(NoKernelError, match=r"Relu\(14\).*'clamp'.*float16"):
        _assignment(lambda registry: add_opset(registry, np, exclude={"Relu"}), TensorProto.FLOAT16)


def test_other_types_are_not_cast():
    with pytest.raises(NoKernelError, match=r"Relu\(14\)"):
        _assignment(_with_casts, TensorProto.DOUBLE)
