"""Small models, built for tests."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from ort_sdk.formats.onnx.writer.to_proto import graph_to_proto


def value(name, shape=None, element_type=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, element_type, shape)


def model_bytes(nodes, inputs, outputs, initializers=None, opset=17, domains=(), functions=()):
    """A serialized model; ``initializers`` maps names to arrays."""
    tensors = [numpy_helper.from_array(np.asarray(array), name) for name, array in (initializers or {}).items()]
    graph = helper.make_graph(nodes, "graph", inputs, outputs, tensors)
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    model = helper.make_model(graph, opset_imports=imports, functions=list(functions))
    model.ir_version = 10
    return model.SerializeToString()


def optimized_graph(session):
    """What a session runs: its graph after all rewrites, with its constants, as bytes."""
    return graph_to_proto(session._state.model.graph).SerializeToString(deterministic=True)
