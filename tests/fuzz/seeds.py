"""Models that mutants are made of."""

import functools
from pathlib import Path

from onnx import ModelProto

from ort_sdk.testing.cases import load_cases

MAX_BYTES = 20_000
_DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"


@functools.cache
def seed_models():
    """(name, bytes), small first: ONNX's node cases, the digits example, and ONNX's light models."""
    nodes = [(case.name, case.model_bytes()) for kind in ("node", "simple") for case in load_cases(kind)]
    return [(name, data) for name, data in nodes if len(data) <= MAX_BYTES] + [("digits", _DIGITS.read_bytes())]


@functools.cache
def control_flow_models():
    """Those with bodies, which are few and break in more ways."""
    return [(name, data) for name, data in seed_models() if _has_bodies(data)]


def _has_bodies(data):
    return any(attribute.HasField("g") for node in ModelProto.FromString(data).graph.node for attribute in node.attribute)
