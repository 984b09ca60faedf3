"""Slots of the tables of an ORT-format file, and the codes of its enumerations.

A slot is a field's index in the table's list of offsets. Slots that ONNX Runtime no longer writes are left out.
"""

from __future__ import annotations

from enum import IntEnum

__all__ = [
    "EMPTY_NODE_INDEX",
    "ArgumentSlot",
    "AttributeKind",
    "AttributeSlot",
    "DimensionKind",
    "DimensionSlot",
    "DimensionValueSlot",
    "GraphSlot",
    "MapSlot",
    "ModelSlot",
    "NodeEdgeSlot",
    "NodeSlot",
    "OperatorSlot",
    "OpsetSlot",
    "OptimizationSlot",
    "OptimizationsSlot",
    "OptimizedNodesSlot",
    "OptimizerSlot",
    "ResolverSlot",
    "SequenceSlot",
    "SessionSlot",
    "ShapeSlot",
    "SparseSlot",
    "StringPairSlot",
    "TensorSlot",
    "TensorTypeSlot",
    "TypeInfoSlot",
    "TypeKind",
    "TypeStringSlot",
    "ValueInfoSlot",
]


class SessionSlot(IntEnum):
    """``InferenceSession``, the root."""

    ORT_VERSION = 0
    MODEL = 1
    KERNEL_TYPE_STR_RESOLVER = 3


class ModelSlot(IntEnum):
    """``Model``."""

    IR_VERSION = 0
    OPSET_IMPORT = 1
    PRODUCER_NAME = 2
    PRODUCER_VERSION = 3
    DOMAIN = 4
    MODEL_VERSION = 5
    DOC_STRING = 6
    GRAPH = 7
    GRAPH_DOC_STRING = 8
    METADATA_PROPS = 9


class OpsetSlot(IntEnum):
    """``OperatorSetId``."""

    DOMAIN = 0
    VERSION = 1


class StringPairSlot(IntEnum):
    """``StringStringEntry``."""

    KEY = 0
    VALUE = 1


class GraphSlot(IntEnum):
    """``Graph``."""

    INITIALIZERS = 0
    NODE_ARGS = 1
    NODES = 2
    MAX_NODE_INDEX = 3
    NODE_EDGES = 4
    INPUTS = 5
    OUTPUTS = 6
    SPARSE_INITIALIZERS = 7
    RUNTIME_OPTIMIZATIONS = 8


class TensorSlot(IntEnum):
    """``Tensor``."""

    NAME = 0
    DOC_STRING = 1
    DIMS = 2
    DATA_TYPE = 3
    RAW_DATA = 4
    STRING_DATA = 5
    EXTERNAL_DATA_OFFSET = 6


class SparseSlot(IntEnum):
    """``SparseTensor``."""

    VALUES = 0
    INDICES = 1
    DIMS = 2


class NodeSlot(IntEnum):
    """``Node``."""

    NAME = 0
    DOC_STRING = 1
    DOMAIN = 2
    SINCE_VERSION = 3
    INDEX = 4
    OP_TYPE = 5
    TYPE = 6
    EXECUTION_PROVIDER_TYPE = 7
    INPUTS = 8
    OUTPUTS = 9
    ATTRIBUTES = 10
    INPUT_ARG_COUNTS = 11
    IMPLICIT_INPUTS = 12


class NodeEdgeSlot(IntEnum):
    """``NodeEdge``."""

    NODE_INDEX = 0
    INPUT_EDGES = 1
    OUTPUT_EDGES = 2


class ValueInfoSlot(IntEnum):
    """``ValueInfo``."""

    NAME = 0
    DOC_STRING = 1
    TYPE = 2


class TypeInfoSlot(IntEnum):
    """``TypeInfo``."""

    DENOTATION = 0
    VALUE_TYPE = 1
    VALUE = 2


class TensorTypeSlot(IntEnum):
    """``TensorTypeAndShape``."""

    ELEM_TYPE = 0
    SHAPE = 1


class ShapeSlot(IntEnum):
    """``Shape``."""

    DIM = 0


class DimensionSlot(IntEnum):
    """``Dimension``."""

    VALUE = 0
    DENOTATION = 1


class DimensionValueSlot(IntEnum):
    """``DimensionValue``."""

    DIM_TYPE = 0
    DIM_VALUE = 1
    DIM_PARAM = 2


class SequenceSlot(IntEnum):
    """``SequenceType``."""

    ELEM_TYPE = 0


class MapSlot(IntEnum):
    """``MapType``."""

    KEY_TYPE = 0
    VALUE_TYPE = 1


class AttributeSlot(IntEnum):
    """``Attribute``."""

    NAME = 0
    DOC_STRING = 1
    TYPE = 2
    F = 3
    I = 4
    S = 5
    T = 6
    G = 7
    FLOATS = 8
    INTS = 9
    STRINGS = 10
    TENSORS = 11
    GRAPHS = 12


class OptimizationsSlot(IntEnum):
    """``RuntimeOptimizations``."""

    OPTIMIZERS = 0


class OptimizerSlot(IntEnum):
    """``RuntimeOptimizationRecordContainerEntry``."""

    NAME = 0
    RECORDS = 1


class OptimizationSlot(IntEnum):
    """``RuntimeOptimizationRecord``."""

    ACTION_ID = 0
    NODES = 1
    PRODUCED_OP_IDS = 3


class OptimizedNodesSlot(IntEnum):
    """``NodesToOptimizeIndices``."""

    NODE_INDICES = 0
    NUM_INPUTS = 1
    NUM_OUTPUTS = 2
    HAS_VARIADIC_INPUT = 3
    HAS_VARIADIC_OUTPUT = 4
    NUM_VARIADIC_INPUTS = 5
    NUM_VARIADIC_OUTPUTS = 6


class ResolverSlot(IntEnum):
    """``KernelTypeStrResolver``."""

    OPERATORS = 0


class OperatorSlot(IntEnum):
    """``OpIdKernelTypeStrArgsEntry``."""

    OP_ID = 0
    TYPE_STRINGS = 1


class TypeStringSlot(IntEnum):
    """``KernelTypeStrArgsEntry``."""

    NAME = 0
    ARGUMENTS = 1


class ArgumentSlot(IntEnum):
    """``ArgTypeAndIndex``."""

    KIND = 0
    INDEX = 1


class TypeKind(IntEnum):
    """Union ``TypeInfoValue``."""

    NONE = 0
    TENSOR = 1
    SEQUENCE = 2
    MAP = 3


class DimensionKind(IntEnum):
    """``DimensionValueType``."""

    UNKNOWN = 0
    VALUE = 1
    PARAM = 2


class AttributeKind(IntEnum):
    """The kinds of ``AttributeType`` that a file can hold."""

    FLOAT = 1
    INT = 2
    STRING = 3
    TENSOR = 4
    GRAPH = 5
    FLOATS = 6
    INTS = 7
    STRINGS = 8
    TENSORS = 9


EMPTY_NODE_INDEX = 2**32 - 1
"""Entry of ``NodesToOptimizeIndices`` without a node."""
