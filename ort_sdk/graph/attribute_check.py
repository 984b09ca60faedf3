"""Whether a node's attributes are those its operator's schema declares, with values it allows."""

from __future__ import annotations

from typing import Any

from ort_sdk.api import InvalidGraph, OperatorSchema

from .attribute_rules import check_node_attributes
from .graph import Graph
from .node import AttributeReference, Node, TypeString
from .tensor import SparseTensor

__all__ = ["check_attributes"]

INTERNAL_PREFIX = "__"
"""Starts attributes that tools add for themselves; onnx lets them pass too."""

_NAMES = {
    1: "FLOAT",
    2: "INT",
    3: "STRING",
    4: "TENSOR",
    5: "GRAPH",
    6: "FLOATS",
    7: "INTS",
    8: "STRINGS",
    9: "TENSORS",
    10: "GRAPHS",
    11: "SPARSE_TENSOR",
    12: "SPARSE_TENSORS",
    13: "TYPE_PROTO",
    14: "TYPE_PROTOS",
}
_CODES = {float: 1, int: 2, str: 3, Graph: 5, SparseTensor: 11, TypeString: 13}
_TENSOR = 4
_CODES_OF_LISTS = {1: 6, 2: 7, 3: 8, 4: 9, 5: 10, 11: 12, 13: 14}


def check_attributes(node: Node, schema: OperatorSchema, *, may_refer: bool = False) -> None:
    """Compare a node's attributes with its schema.

    Args:
        node: its attributes are looked at, not its inputs.
        schema: of its operator.
        may_refer: whether an attribute may stand for one of the call of a function that the node is in.

    Raises:
        InvalidGraph: a required one is missing, one is unknown to the operator, has another type or a value that the operator
            does not allow, or refers to a function where there is none.
    """
    if not schema.declares_attributes:
        return
    missing = [name for name in schema.required_attributes if name not in node.attributes]
    if missing:
        raise InvalidGraph(f"{node.describe()} lacks the required attributes {missing}")
    for name, value in node.attributes.items():
        expected = schema.attribute_types.get(name)
        if expected is None:
            # Constant nodes are initializers before anybody looks at them in ONNX Runtime, and onnxsim marks them with its own.
            if not name.startswith(INTERNAL_PREFIX) and node.op_type != "Constant":
                raise InvalidGraph(
                    f"Unrecognized attribute: {name} for operator {node.op_type} in {node.describe()}; "
                    f"it has {sorted(schema.attribute_types)}"
                )
        elif isinstance(value, AttributeReference):
            if not may_refer:
                raise InvalidGraph(
                    f"attribute '{name}' of {node.describe()} refers to the attribute '{value.name}' of a function and is in none"
                )
        elif not _fits(value, expected):
            raise InvalidGraph(
                f"Mismatched attribute type in '{node.name} : {name}' of {node.describe()}. "
                f"Expected: {_NAMES[expected]}, actual: {_NAMES[_code(value)]}"
            )
    check_node_attributes(node)


def _fits(value: Any, expected: int) -> bool:
    if isinstance(value, list) and not value:
        return expected in _CODES_OF_LISTS.values()
    return _code(value) == expected


def _code(value: Any) -> int:
    if isinstance(value, list):
        return _CODES_OF_LISTS[_code(value[0])] if value else _CODES_OF_LISTS[2]
    return _CODES.get(type(value), _TENSOR)
