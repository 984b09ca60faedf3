"""Transposed convolutions into few channels whose windows overlap: a convolution for each phase between their steps."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from ort_sdk.api import HostArray, Tensor, TensorElementType
from ort_sdk.api.data_classes import dataclass
from ort_sdk.graph import ArrayTensor, Graph, Node
from ort_sdk.graph.derived_tensor import DerivedTensor, private_array
from ort_sdk.graph.editing import add_constant, replace_nodes, unused_name
from ort_sdk.opset.sizes import tiled
from ort_sdk.optimizer.matching import constant_input, new_node, nodes_of
from ort_sdk.optimizer.transformer import TransformerContext

__all__ = ["ConvTransposeToDepthToSpace"]

MOST_OUTPUTS = 4
"""Channels up to which providers compute the transposed convolution slowly: vectors of output channels would be mostly empty."""
MOST_TAPS = 1.5
"""Taps of the convolution, zeros among them, over those of the transposed one."""
LEAST_PLACES = 64
"""Outputs of the convolution, one for each phase in each channel, below which its vectors would hardly be less empty."""
_TYPES = frozenset({TensorElementType.FLOAT, TensorElementType.FLOAT16, TensorElementType.BFLOAT16})


class ConvTransposeToDepthToSpace:
    """ConvTranspose into few channels, of many elements to a step and windows that overlap, as Conv and DepthToSpace.

    In 1-D, DepthToSpace is written as Reshape, Transpose and Reshape.
    """

    name = "ConvTransposeToDepthToSpace"

    def apply(self, graph: Graph, context: TransformerContext) -> bool:
        """Replace every such node."""
        changed = False
        for node in nodes_of(graph, "ConvTranspose"):
            weight, bias = constant_input(graph, node, 1), constant_input(graph, node, 2)
            if weight is None or weight.element_type not in _TYPES or len(weight.shape) not in {3, 4}:
                continue
            has_bias = len(node.inputs) > 2 and bool(node.inputs[2])
            phases = None if has_bias and bias is None else _phases(node, weight.shape[2:])
            if phases is None or not phases.are_worth_it(tuple(weight.shape)):
                continue
            opset, output, parts = context.opset_imports[""], node.outputs[0], unused_name(graph, f"{node.outputs[0]}/phases")
            convolution = new_node("Conv", node.inputs[:2], [parts], opset, name=node.name, **phases.attributes())
            joining = phases.joining(graph, node, parts, weight.shape[1], opset)
            if not all(context.is_as_preferred(new, [node], graph) for new in (convolution, *joining)):
                continue
            convolution.inputs[1] = add_constant(graph, f"{output}/weight", phases.weight_of(weight))
            if bias is not None:
                convolution.inputs.append(add_constant(graph, f"{output}/bias", phases.bias_of(bias)))
            replace_nodes(graph, [node], [convolution, *joining])
            changed = True
        return changed


@dataclass(frozen=True, slots=True)
class _Axis:
    """Geometry of the windows along one axis."""

    size: int
    """Of the transposed convolution's kernel."""
    stride: int
    begin: int
    """Padding before the first number."""
    numbers: int
    """Numbers there are more than the stride times the input's."""

    @property
    def reach(self) -> tuple[int, int]:
        """First and last input that the results of a step are made of, counted from the step."""
        phases = [divmod(phase + self.begin, self.stride) for phase in range(self.stride)]
        taps = [(step, -(-(self.size - first) // self.stride)) for step, first in phases]
        return min(step - count + 1 for step, count in taps), max(step for step, _ in taps)

    @property
    def window(self) -> int:
        """Of the convolution."""
        first, last = self.reach
        return last - first + 1

    @property
    def pads(self) -> tuple[int, int]:
        """Of the convolution."""
        first, last = self.reach
        return -first, self.numbers // self.stride + last

    def taps(self, phase: int) -> list[tuple[int, int]]:
        """For results of a phase: a tap of the convolution, and of the transposed one."""
        step, first = divmod(phase + self.begin, self.stride)
        return [(step - index - self.reach[0], tap) for index, tap in enumerate(range(first, self.size, self.stride))]


@dataclass(frozen=True, slots=True)
class _Phases:
    axes: tuple[_Axis, ...]

    @property
    def stride(self) -> int:
        return self.axes[0].stride

    @property
    def count(self) -> int:
        """How many phases there are: positions between the steps."""
        return math.prod(axis.stride for axis in self.axes)

    def are_worth_it(self, shape: tuple[int, ...]) -> bool:
        """Whether the transposed convolution has few outputs, and the other one many, but not many more taps."""
        inputs, outputs, *kernel = shape
        taps = self.count * math.prod(axis.window for axis in self.axes)
        is_wide = outputs <= MOST_OUTPUTS <= inputs and outputs * self.count >= LEAST_PLACES
        return is_wide and taps <= MOST_TAPS * math.prod(kernel)

    def attributes(self) -> dict[str, list[int]]:
        """Of the convolution."""
        begins, ends = zip(*(axis.pads for axis in self.axes), strict=True)
        return {"kernel_shape": [axis.window for axis in self.axes], "pads": [*begins, *ends]}

    def joining(self, graph: Graph, node: Node, parts: str, outputs: int, opset: int) -> list[Node]:
        """What puts the convolution's channels between the steps of the node's output."""
        output, name = node.outputs[0], node.name
        if len(self.axes) > 1:
            return [new_node("DepthToSpace", [parts], [output], opset, name=name, blocksize=self.stride)]
        split, transposed = (unused_name(graph, f"{output}/{kind}") for kind in ("split", "transposed"))
        shapes = [
            add_constant(graph, f"{output}/shape", ArrayTensor(np.array(shape, np.int64)))
            for shape in ((0, self.stride, outputs, -1), (0, outputs, -1))
        ]
        return [
            new_node("Reshape", [parts, shapes[0]], [split], opset, name=name),
            new_node("Transpose", [split], [transposed], opset, name=name, perm=[0, 2, 3, 1]),
            new_node("Reshape", [transposed, shapes[1]], [output], opset, name=name),
        ]

    def weight_of(self, weight: Tensor) -> Tensor:
        """(C, M, *kernel) as (phases * M, C, *window); computed when it is read."""
        inputs, outputs = weight.shape[:2]
        shape = (self.count * outputs, inputs, *(axis.window for axis in self.axes))

        def compute(*_sources: Tensor) -> HostArray:
            source = private_array(weight)
            result = np.zeros((self.count, outputs, *shape[1:]), source.dtype)
            for index, phases in enumerate(itertools.product(range(self.stride), repeat=len(self.axes))):
                taps = [axis.taps(phase) for axis, phase in zip(self.axes, phases, strict=True)]
                for pairs in itertools.product(*taps):
                    own, given = zip(*pairs, strict=True)
                    result[index, :, :, *own] = source[:, :, *given].T
            return result.reshape(shape)

        kind = " ".join(map(str, self.axes))
        return DerivedTensor(f"phases {kind}", weight.element_type, shape, [weight], compute)

    def bias_of(self, bias: Tensor) -> Tensor:
        """Once for each phase; computed when it is read."""
        count = self.count

        def compute(*_sources: Tensor) -> HostArray:
            return tiled(private_array(bias), (count,))

        return DerivedTensor(f"{count} times", bias.element_type, (count * bias.shape[0],), [bias], compute)


def _phases(node: Node, kernel: Sequence[int]) -> _Phases | None:
    """Geometry of the windows; None if no convolution and no whole steps give the result."""
    given, rank = node.attributes, len(kernel)
    auto_pad, strides = given.get("auto_pad", "NOTSET"), given.get("strides") or [1] * rank
    if given.get("output_shape") or auto_pad not in {"NOTSET", "VALID"} or given.get("group", 1) != 1:
        return None
    if len({*strides}) != 1 or strides[0] < 2 or any(step != 1 for step in given.get("dilations") or ()):
        return None
    pads = (given.get("pads") if auto_pad == "NOTSET" else None) or [0] * 2 * rank
    extra = given.get("output_padding") or [0] * rank
    axes = []
    for axis, size in enumerate(kernel):
        numbers = extra[axis] + size - pads[axis] - pads[axis + rank] - strides[axis]
        axes.append(_Axis(size, strides[axis], pads[axis], numbers))
    is_whole = all(axis.numbers % axis.stride == 0 and axis.size > axis.stride and min(axis.pads) >= 0 for axis in axes)
    return _Phases(tuple(axes)) if is_whole else None
