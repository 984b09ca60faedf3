"""The gradient of each operator's inputs from the gradient of its output."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ort_sdk.api import InvalidGraph
from ort_sdk.graph.node import Node

from .tape import Tape

__all__ = ["RULES"]

Rule = Callable[[Tape, Node, str], "list[str | None]"]
"""``rule(tape, node, output_gradient)``: one gradient per input; None where an input takes none."""


def _made(tape: Tape, node: Node) -> tuple[int, ...]:
    return tuple(np.broadcast_shapes(*(tape.shape(name) for name in node.inputs)))


def _add(tape: Tape, node: Node, gradient: str) -> list[str | None]:
    made = _made(tape, node)
    return [tape.unbroadcast(gradient, made, name) for name in node.inputs]


def _sub(tape: Tape, node: Node, gradient: str) -> list[str | None]:
    left, right = node.inputs
    made = _made(tape, node)
    return [tape.unbroadcast(gradient, made, left), tape.unbroadcast(tape.emit("Neg", gradient), made, right)]


def _mul(tape: Tape, node: Node, gradient: str) -> list[str | None]:
    left, right = node.inputs
    made = _made(tape, node)
    return [
        tape.unbroadcast(tape.emit("Mul", gradient, right), made, left),
        tape.unbroadcast(tape.emit("Mul", gradient, left), made, right),
    ]


def _div(tape: Tape, node: Node, gradient: str) -> list[str | None]:
    left, right = node.inputs
    made = _made(tape, node)
    per_left = tape.emit("Div", gradient, right)
    per_right = tape.emit("Neg", tape.emit("Div", tape.emit("Mul", per_left, left), right))
    return [tape.unbroadcast(per_left, made, left), tape.unbroadcast(per_right, made, right)]


def _pow(tape: Tape, node: Node, gradient: str) -> list[str | None]:
    base, exponent = node.inputs
    made = _made(tape, node)
    lowered = tape.emit("Pow", base, tape.emit("Sub", exponent, tape.like(exponent, 1)))
    per_base = tape.emit("Mul", tape.emit("Mul", gradient, exponent), lowered)
    per_exponent = tape.emit("Mul", tape.emit("Mul", gradient, tape.emit("Pow", base, exponent)), tape.emit("Log", base))
    return [tape.unbroadcast(per_base, made, base), tape.unbroadcast(per_exponent, made, exponent)]


def _matmul(tape: Tape, node: Node, gradient: str) -> list[str | None]:
    left, right = node.inputs
    left_shape, right_shape = tape.shape(left), tape.shape(right)
    if len(left_shape) < 2 or len(right_shape) < 2:
        raise InvalidGraph(
            f"{node.describe()}: differentiating a product with a vector is not supported; give it a dimension of 1"
        )
    batch = tuple(np.broadcast_shapes(left_shape[:-2], right_shape[:-2]))
    per_left = tape.emit("MatMul", gradient, _swapped(tape, right, len(right_shape)))
    per_right = tape.emit("MatMul", _swapped(tape, left, len(left_shape)), gradient)
    return [
        tape.unbroadcast(per_left, (*batch, *left_shape[-2:]), left),
        tape.unbroadcast(per_right, (*batch, *right_shape[-2:]), right),
    ]


def _swapped(tape: Tape, value: str, rank: int) -> str:
    return tape.emit("Transpose", value, perm=[*range(rank - 2), rank - 1, rank - 2])


def _gemm(tape: Tape, node: Node, gradient: str) -> list[str | None]:
    left, right, *rest = node.inputs
    alpha, beta = node.attributes.get("alpha", 1.0), node.attributes.get("beta", 1.0)
    left_transposed, right_transposed = bool(node.attributes.get("transA", 0)), bool(node.attributes.get("transB", 0))
    scaled = tape.emit("Mul", gradient, tape.like(left, alpha))
    right_back = right if right_transposed else _swapped(tape, right, 2)
    left_back = left if left_transposed else _swapped(tape, left, 2)
    per_left = tape.emit("MatMul", scaled, right_back)
    per_right = tape.emit("MatMul", left_back, scaled)
    found: list[str | None] = [
        _swapped(tape, per_left, 2) if left_transposed else per_left,
        _swapped(tape, per_right, 2) if right_transposed else per_right,
    ]
    if rest and rest[0]:
        made = tape.shape(node.outputs[0])
        found.append(tape.unbroadcast(tape.emit("Mul", gradient, tape.like(left, beta)), made, rest[0]))
    return found


def _relu(tape: Tape, node: Node, gradient: str) -> list[str | None]:
    positive = tape.emit("Greater", node.inputs[0], tape.like(node.inputs[0], 0))
    return [tape.emit("Where", positive, gradient, tape.like(node.inputs[0], 0))]


def _sigmoid(tape: Tape, node: Node, gradient: str) -> list[str | None]:
    output = node.outputs[0]
    slope = tape.emit("Mul", output, tape.emit("Sub", tape.like(output, 1), output))
    return [tape.emit("Mul", gradient, slope)]


def _tanh(tape: Tape, node: Node, gradient: str) -> list[str | None]:
    output = node.outputs[0]
    slope = tape.emit("Sub", tape.like(output, 1), tape.emit("Mul", output, output))
    return [tape.emit("Mul", gradient, slope)]


def _sqrt(tape: Tape, node: Node, gradient: str) -> list[str | None]:
    half = tape.emit("Mul", gradient, tape.like(node.outputs[0], 0.5))
    return [tape.emit("Div", half, node.outputs[0])]


def _softmax(tape: Tape, node: Node, gradient: str) -> list[str | None]:
    if node.since_version < 13:
        raise InvalidGraph(f"{node.describe()}: differentiating Softmax needs opset 13 or newer")
    output = node.outputs[0]
    weighted = tape.emit("Mul", gradient, output)
    total = tape.reduce_sum(weighted, [node.attributes.get("axis", -1)], keepdims=True)
    return [tape.emit("Sub", weighted, tape.emit("Mul", output, total))]


def _reduction(tape: Tape, node: Node, gradient: str, *, is_mean: bool) -> list[str | None]:
    source = node.inputs[0]
    shape = tape.shape(source)
    axes = node.attributes.get("axes")
    if len(node.inputs) > 1 and node.inputs[1]:
        constant = tape.graph.constant(node.inputs[1])
        if constant is None:
            raise InvalidGraph(f"{node.describe()}: differentiating a reduction needs constant axes")
        axes = constant.numpy().tolist()
    reduced = {axis % len(shape) for axis in axes} if axes else set(range(len(shape)))
    kept = [1 if axis in reduced else dimension for axis, dimension in enumerate(shape)]
    spread = tape.emit("Expand", tape.reshape(gradient, kept), tape.constant(np.asarray(shape, dtype=np.int64)))
    if is_mean:
        spread = tape.emit("Div", spread, tape.like(source, float(np.prod([shape[axis] for axis in reduced]))))
    return [spread, *([None] * (len(node.inputs) - 1))]


def _reshape(tape: Tape, node: Node, gradient: str) -> list[str | None]:
    return [tape.emit("Reshape", gradient, tape.emit("Shape", node.inputs[0])), *([None] * (len(node.inputs) - 1))]


def _transpose(tape: Tape, node: Node, gradient: str) -> list[str | None]:
    order = node.attributes.get("perm") or list(range(len(tape.shape(node.inputs[0]))))[::-1]
    return [tape.emit("Transpose", gradient, perm=[int(axis) for axis in np.argsort(order)])]


RULES: dict[str, Rule] = {
    "Add": _add,
    "Sum": _add,
    "Sub": _sub,
    "Mul": _mul,
    "Div": _div,
    "Pow": _pow,
    "MatMul": _matmul,
    "Gemm": _gemm,
    "Relu": _relu,
    "Sigmoid": _sigmoid,
    "Tanh": _tanh,
    "Sqrt": _sqrt,
    "Softmax": _softmax,
    "Reshape": _reshape,
    "Flatten": _reshape,
    "Squeeze": _reshape,
    "Unsqueeze": _reshape,
    "Transpose": _transpose,
    "Identity": lambda _tape, _node, gradient: [gradient],
    "Neg": lambda tape, _node, gradient: [tape.emit("Neg", gradient)],
    "Exp": lambda tape, node, gradient: [tape.emit("Mul", gradient, node.outputs[0])],
    "Log": lambda tape, node, gradient: [tape.emit("Div", gradient, node.inputs[0])],
    "Sin": lambda tape, node, gradient: [tape.emit("Mul", gradient, tape.emit("Cos", node.inputs[0]))],
    "Cos": lambda tape, node, gradient: [tape.emit("Neg", tape.emit("Mul", gradient, tape.emit("Sin", node.inputs[0])))],
    "Abs": lambda tape, node, gradient: [tape.emit("Mul", gradient, tape.emit("Sign", node.inputs[0]))],
    "ReduceSum": lambda tape, node, gradient: _reduction(tape, node, gradient, is_mean=False),
    "ReduceMean": lambda tape, node, gradient: _reduction(tape, node, gradient, is_mean=True),
}
