"""``ModelProto`` → Model."""

from __future__ import annotations

from typing import Any

from ort_sdk.api import InvalidArgument
from ort_sdk.formats.versions import OperatorResolver, check_ir_version, read_opset_imports
from ort_sdk.graph import Model
from ort_sdk.graph.constants import lift_constants
from ort_sdk.graph.operator_schemas import TABLE_SCHEMAS, OperatorSchemas

from .function_proto import check_calls, function_keys, read_functions
from .graph_proto import GraphReader, read_metadata, sort_graph
from .messages import NEWEST_IR_VERSION
from .tensor_proto import TensorReader
from .types import denotations

__all__ = ["convert_model"]


def convert_model(proto: Any, tensors: TensorReader, schemas: OperatorSchemas = TABLE_SCHEMAS) -> Model:
    """Convert a parsed model.

    Args:
        proto: ``ModelProto``.
        tensors: decodes its tensors.
        schemas: of its operators.

    Returns:
        The model, nodes in topological order.

    Raises:
        InvalidArgument: there is no graph.
        InvalidGraph: the graph breaks a rule of ONNX.
        Fail: IR or opset versions are not supported.
    """
    if not proto.HasField("graph"):
        raise InvalidArgument("No graph was found in the protobuf.")
    check_ir_version(proto.ir_version if proto.HasField("ir_version") else None, NEWEST_IR_VERSION)
    imports = read_opset_imports(proto, proto.ir_version)
    keys = function_keys(proto.functions)
    functions = read_functions(proto.functions, proto.ir_version, imports, keys, tensors, schemas)
    graph = GraphReader(proto.ir_version, OperatorResolver(imports, keys, schemas), tensors).read_graph(proto.graph)
    tensors.check_replacements_used()
    check_calls(functions, graph)
    sort_graph(graph)
    lift_constants(graph)
    return Model(
        graph=graph,
        opset_imports=imports,
        ir_version=proto.ir_version,
        functions=functions,
        producer_name=proto.producer_name,
        producer_version=proto.producer_version,
        domain=proto.domain,
        model_version=proto.model_version if proto.HasField("model_version") else None,
        doc_string=proto.doc_string,
        metadata=read_metadata(proto.metadata_props),
        input_denotations={value.name: words for value in proto.graph.input if any(words := denotations(value))},
        schemas=schemas,
    )
