"""Small random models over many operators: constants, shared values, detours and dead ends included."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT = TensorProto.FLOAT
SHAPES = [(2, 3), (3,), (1, 3), (2, 1), (2, 3, 4), (1, 2, 4, 4), ()]


@dataclass
class RandomGraph:
    """A graph under construction; ``known`` maps every float value to its shape when the model is run."""

    rng: np.random.Generator
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    inputs: dict[str, tuple[int, ...]] = field(default_factory=dict)
    known: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def pick(self, condition: Callable[[tuple[int, ...]], bool] = lambda _shape: True) -> str | None:
        names = [name for name, shape in self.known.items() if condition(shape)]
        # Newer values are likelier, so that chains grow.
        return None if not names else names[-1 - int(len(names) * self.rng.random() ** 2)]

    def constant(self, array: np.ndarray) -> str:
        name = f"k{len(self.constants)}"
        self.constants[name] = array
        return name

    def add(self, op_type: str, inputs: list[str], shape: tuple[int, ...], **attributes: object) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, inputs, [name], name=f"{op_type}_{name}", **attributes))
        self.known[name] = shape
        return name


def _unary(graph: RandomGraph) -> None:
    name = graph.pick()
    graph.add(
        str(graph.rng.choice(["Relu", "Identity", "Tanh", "Abs", "Neg", "Dropout", "Sigmoid", "Clip"])), [name], graph.known[name]
    )


def _cast(graph: RandomGraph) -> None:
    name = graph.pick()
    between = f"w{len(graph.nodes)}"
    target = int(graph.rng.choice([TensorProto.DOUBLE, TensorProto.FLOAT, TensorProto.FLOAT16]))
    graph.nodes.append(helper.make_node("Cast", [name], [between], to=target))
    graph.add("Cast", [between], graph.known[name], to=FLOAT)


def _neutral(graph: RandomGraph) -> None:
    name = graph.pick()
    op_type, value = [("Add", 0), ("Sub", 0), ("Mul", 1), ("Div", 1), ("Mul", 0), ("Add", 1)][graph.rng.integers(6)]
    array = np.full([(), (1,), (1, 1, 1, 1, 1)][graph.rng.integers(3)], value, np.float32)
    shape = np.broadcast_shapes(graph.known[name], array.shape)
    inputs = [name, graph.constant(array)]
    graph.add(op_type, inputs if op_type in {"Sub", "Div"} or graph.rng.random() < 0.5 else inputs[::-1], shape)


def _binary(graph: RandomGraph) -> None:
    left = graph.pick()

    def fits(shape: tuple[int, ...]) -> bool:
        try:
            return len(np.broadcast_shapes(graph.known[left], shape)) <= 4
        except ValueError:
            return False

    right = graph.pick(fits) or left
    shape = np.broadcast_shapes(graph.known[left], graph.known[right])
    graph.add(str(graph.rng.choice(["Add", "Sub", "Mul", "Max"])), [left, right], shape)


def _reshape(graph: RandomGraph) -> None:
    name = graph.pick(lambda shape: len(shape) > 1)
    shape = graph.known[name]
    wanted = [[-1], [0, -1], list(shape), [*shape, 1], [shape[0], -1], [1, -1]][graph.rng.integers(6)]
    actual = np.zeros(shape).reshape([shape[axis] if size == 0 else size for axis, size in enumerate(wanted)]).shape
    graph.add("Reshape", [name, graph.constant(np.array(wanted, np.int64))], actual)


def _transpose(graph: RandomGraph) -> None:
    name = graph.pick(lambda shape: len(shape) > 1) or "x0"
    shape = graph.known[name]
    perm = graph.rng.permutation(len(shape)).tolist()
    graph.add("Transpose", [name], tuple(shape[axis] for axis in perm), perm=perm)


def _unsqueeze(graph: RandomGraph) -> None:
    name = graph.pick(lambda shape: len(shape) < 4)
    shape = graph.known[name]
    axis = int(graph.rng.integers(-len(shape) - 1, len(shape) + 1))
    axes = graph.constant(np.array([axis]))
    longer = np.expand_dims(np.zeros(shape), axis).shape
    new = graph.add("Unsqueeze", [name, axes], longer)
    if graph.rng.random() < 0.6:
        graph.add("Squeeze", [new, axes], shape)


def _slice(graph: RandomGraph) -> None:
    name = graph.pick(lambda shape: len(shape) > 0 and 0 not in shape)
    shape = graph.known[name]
    axis = int(graph.rng.integers(len(shape)))
    start, end = [(0, 2**62), (0, shape[axis]), (0, 1), (-1, 2**62)][graph.rng.integers(4)]
    inputs = [graph.constant(np.array([number])) for number in (start, end, axis)]
    size = len(range(shape[axis])[start:end])
    graph.add("Slice", [name, *inputs], (*shape[:axis], size, *shape[axis + 1 :]))


def _concat(graph: RandomGraph) -> None:
    name = graph.pick(lambda shape: len(shape) > 0)
    shape = graph.known[name]
    axis = int(graph.rng.integers(len(shape)))
    whole = graph.add("Concat", [name, name], (*shape[:axis], 2 * shape[axis], *shape[axis + 1 :]), axis=axis)
    start = int(graph.rng.integers(2)) * shape[axis]
    inputs = [graph.constant(np.array([number])) for number in (start, start + shape[axis], axis)]
    graph.add("Slice", [whole, *inputs], shape)


def _expand(graph: RandomGraph) -> None:
    name = graph.pick(lambda shape: 0 < len(shape) < 4)
    shape = graph.known[name]
    wanted = [list(shape), [1] * len(shape), [2, *shape]][graph.rng.integers(3)]
    if len(wanted) <= 4:
        graph.add("Expand", [name, graph.constant(np.array(wanted))], np.broadcast_shapes(shape, tuple(wanted)))


def _shape_of(graph: RandomGraph) -> None:
    """A reshape whose target is computed from the shape of a value."""
    name = graph.pick(lambda shape: len(shape) > 1 and 0 not in shape)
    shape = graph.known[name]
    number = len(graph.nodes)
    names = [f"s{number}", f"g{number}", f"c{number}"]
    graph.nodes.append(helper.make_node("Shape", [name], [names[0]]))
    graph.nodes.append(helper.make_node("Gather", [names[0], graph.constant(np.array([0]))], [names[1]]))
    graph.nodes.append(helper.make_node("Concat", [names[1], graph.constant(np.array([-1]))], [names[2]], axis=0))
    graph.add("Reshape", [name, names[2]], (shape[0], int(np.prod(shape[1:]))))


def _matmul(graph: RandomGraph) -> None:
    name = graph.pick(lambda shape: len(shape) > 1 and shape[-1] > 0)
    shape = graph.known[name]
    weight = graph.constant(graph.rng.standard_normal((shape[-1], 3)).astype(np.float32) * np.float32(0.3))
    out = graph.add("MatMul", [name, weight], (*shape[:-1], 3))
    if graph.rng.random() < 0.7:
        bias = graph.rng.standard_normal([(3,), (), (1, 3)][graph.rng.integers(3)])
        graph.add("Add", [out, graph.constant(np.asarray(bias, np.float32))], (*shape[:-1], 3))


def _conv(graph: RandomGraph) -> None:
    name = graph.pick(lambda shape: len(shape) == 4 and shape[2] > 2 and shape[3] > 2)
    if name is None:
        return
    batch, channels, height, width = graph.known[name]

    def normal(*shape: int) -> str:
        return graph.constant(graph.rng.standard_normal(shape).astype(np.float32) * np.float32(0.3))

    out, size = name, (height, width)
    if graph.rng.random() < 0.3:
        out = graph.add(
            "Pad", [out, graph.constant(np.array([0, 0, 1, 0, 0, 0, 0, 1]))], (batch, channels, height + 1, width + 1)
        )
        size = (height + 1, width + 1)
    shape = (batch, 2, size[0], size[1])
    out = graph.add("Conv", [out, normal(2, channels, 3, 3)], shape, pads=[1, 1, 1, 1])
    if graph.rng.random() < 0.6:
        variance = graph.constant(np.array([0.5, 1.5], np.float32))
        out = graph.add("BatchNormalization", [out, normal(2), normal(2), normal(2), variance], shape)
    if graph.rng.random() < 0.5:
        out = graph.add(str(graph.rng.choice(["Mul", "Add"])), [out, normal(2, 1, 1)], shape)


def _reduce(graph: RandomGraph) -> None:
    name = graph.pick(lambda shape: len(shape) > 0 and 0 not in shape)
    shape = graph.known[name]
    keep = int(graph.rng.integers(2))
    graph.add("ReduceMean", [name], np.mean(np.zeros(shape), axis=-1, keepdims=bool(keep)).shape, axes=[-1], keepdims=keep)


def _of_constants(graph: RandomGraph) -> None:
    array = graph.rng.standard_normal(SHAPES[graph.rng.integers(5)]).astype(np.float32)
    folded = graph.add("Exp", [graph.constant(array)], array.shape)
    graph.add("Sqrt", [folded], array.shape)


MOVES = (
    *(_unary, _cast, _neutral, _binary, _reshape, _transpose, _unsqueeze, _slice, _concat, _expand, _shape_of, _matmul, _conv),
    *(_reduce, _of_constants),
)


def random_model(seed: int, *, every_value: bool = False) -> tuple[bytes, dict[str, np.ndarray], dict[str, tuple[int, ...]]]:
    """A model, feeds for it, and the shapes its float values have then.

    Args:
        seed: of the generator.
        every_value: give out every value; otherwise a few, and leave some unread.
    """
    rng = np.random.default_rng(seed)
    graph = RandomGraph(rng)
    for index in range(3):
        shape = SHAPES[(seed + 2 * index) % len(SHAPES)] if index else (1, 2, 4, 4)
        graph.inputs[f"x{index}"] = graph.known[f"x{index}"] = shape
    for _ in range(14):
        MOVES[rng.integers(len(MOVES))](graph)
    made = [name for name in graph.known if name not in graph.inputs]
    outputs = made if every_value else sorted({made[-1], *rng.choice(made, 2).tolist()})
    proto = helper.make_graph(
        graph.nodes,
        f"random_{seed}",
        [_input(name, shape, rng) for name, shape in graph.inputs.items()],
        [helper.make_tensor_value_info(name, FLOAT, None) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in graph.constants.items()],
    )
    model = helper.make_model(proto, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    feeds = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in graph.inputs.items()}
    return model.SerializeToString(), feeds, graph.known


def _input(name: str, shape: tuple[int, ...], rng: np.random.Generator) -> onnx.ValueInfoProto:
    """An input whose first dimension may be a symbol."""
    is_symbolic = bool(shape) and rng.random() < 0.4
    return helper.make_tensor_value_info(name, FLOAT, [f"{name}_n", *shape[1:]] if is_symbolic else shape)
