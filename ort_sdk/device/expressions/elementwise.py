"""The element-wise kernel: computes expressions of one shape and writes them to memory."""

from __future__ import annotations

from collections.abc import Sequence

from ort_sdk.device.device_class import DeviceClass
from ort_sdk.device.dialects import Dialect
from ort_sdk.device.launches import KernelSource, Launch

from .index_space import broadcast_strides, decoded, merged_axes
from .nodes import Apply, Node, Strided, element_count, resolved
from .parameters import Parameters
from .writer import ExpressionWriter, leaves_of, reads_vectors, stored

__all__ = ["elementwise_launch", "is_wide", "stored_value"]


FEWER_LANES = 8
"""How many times fewer lanes a smaller group has."""


def is_wide(arrays: Sequence[Strided]) -> bool:
    """Whether offsets into some array need 64 bits."""
    limit = (1 << 31) - (1 << 16)
    for array in arrays:
        reach = abs(array.offset) + sum(abs(stride) * size for stride, size in zip(array.strides, array.shape, strict=True))
        if reach >= limit or element_count(array.shape) >= limit:
            return True
    return False


def elementwise_launch(targets: Sequence[tuple[Node, Strided]], device: DeviceClass, dialect: Dialect) -> Launch | None:
    """The launch that computes expressions into arrays of one shape; None where there are no elements.

    Args:
        targets: expressions, each with the array it is written to.
        device: plans the form of the kernel.
        dialect: whether it has arithmetic on vectors.
    """
    shape = targets[0][1].shape
    if 0 in shape:
        return None
    outputs = [target for _, target in targets]
    roots = [resolved(node) for node, _ in targets]
    leaves = leaves_of(roots)
    arrays = [*leaves, *outputs]
    sizes, strides = merged_axes(shape, [broadcast_strides(array, shape) for array in arrays])
    by_leaf = {id(leaf): steps for leaf, steps in zip(leaves, strides, strict=False)}
    parameters = Parameters(wide=is_wide(arrays))
    parameters.share(_read_and_written(leaves, outputs))
    writer = ExpressionWriter(_without_last_cast(roots), by_leaf, parameters)
    width = device.vector_width if dialect.has_vector_math and reads_vectors(roots) and sizes[-1] > 1 else 1
    while width > 1 and width > sizes[-1]:
        width //= 2
    return _Kernel(sizes, width, writer, parameters, roots, outputs, strides[len(leaves) :], device).launch()


def _without_last_cast(roots: Sequence[Node]) -> list[Node]:
    return [resolved(stored_value(root)) for root in roots]


def stored_value(root: Node) -> Node:
    """An expression without a cast to what it is stored as: storing rounds."""
    is_cast = isinstance(root, Apply) and root.function.name == "cast"
    if is_cast and isinstance(root, Apply) and root.element_type.name in {"FLOAT16", "BFLOAT16"}:
        operand = root.operands[0]
        if operand.element_type.name == "FLOAT":
            return operand
    return root


def _read_and_written(leaves: Sequence[Strided], outputs: Sequence[Strided]) -> set[int]:
    written = {id(output.memory) for output in outputs}
    return {id(leaf.memory) for leaf in leaves if id(leaf.memory) in written}


class _Kernel:
    def __init__(
        self,
        sizes: list[int],
        width: int,
        writer: ExpressionWriter,
        parameters: Parameters,
        roots: Sequence[Node],
        outputs: Sequence[Strided],
        strides: Sequence[Sequence[int]],
        device: DeviceClass,
    ) -> None:
        self._sizes, self._width, self._writer, self._parameters, self._device = sizes, width, writer, parameters, device
        self._roots, self._outputs = roots, outputs
        self._targets = []
        for output, own in zip(outputs, strides, strict=True):
            memory = parameters.memory(output.held, output.element_type, written=True)
            self._targets.append((memory, parameters.index(output.offset), [parameters.index(step) for step in own]))

    def launch(self) -> Launch:
        sizes, width, parameters = self._sizes, self._width, self._parameters
        blocks = -(-sizes[-1] // width)
        total = element_count(sizes[:-1]) * blocks
        # one group of about as many lanes as there is work, where there is little; each number of them is a kernel of its own
        lanes = self._device.lanes
        while lanes > 1 and lanes >= FEWER_LANES * total:
            lanes = max(1, lanes // FEWER_LANES)
        lines = [f"  index_t e = (index_t)GROUP(0) * {lanes} + LANE(0);"]
        names = [parameters.index(size) if axis else "" for axis, size in enumerate(sizes)]
        total_name = parameters.index(total)
        last = len(sizes) - 1
        lines.append(f"  if (e < {total_name}) {{")
        counts = names if width == 1 else [*names[:-1], parameters.index(blocks)]
        lines += [f"    {line}" for line in decoded("e", [f"i{axis}" for axis in range(len(sizes))], counts)]
        if width > 1:
            lines.append(f"    i{last} *= {width};")
        if width == 1:
            lines += self._body(vector=False)
        elif sizes[-1] % width == 0:
            lines += self._body(vector=True)
        else:
            size = names[last] or parameters.index(sizes[-1])
            lines += [f"    if (i{last} + {width} <= {size}) {{", *self._body(vector=True), "    } else {"]
            lines += [f"      for (; i{last} < {size}; i{last}++) {{", *self._body(vector=False), "      }", "    }"]
        lines.append("  }")
        head = f"KERNEL WORKGROUP({lanes}, 1, 1) void elementwise({parameters.text}) {{"
        defines: list[tuple[str, str | int]] = [("VW", width)] if width > 1 else []
        if parameters.is_wide:
            defines.append(("INDEX64", 1))
        source = KernelSource("elementwise", "\n".join([head, *lines, "}"]) + "\n", tuple(defines))
        groups = -(-total // lanes)
        return Launch(source, (groups,), (lanes,), tuple(parameters.arguments), tuple(parameters.writes))

    def _body(self, *, vector: bool) -> list[str]:
        indices = [f"i{axis}" for axis in range(len(self._sizes))]
        lines, names = self._writer.lines(indices, vector=vector)
        for root, output, (memory, offset, steps) in zip(self._roots, self._outputs, self._targets, strict=True):
            value = names[id(resolved(stored_value(root)))]
            terms = [
                name if step == "1" else f"{name} * {step}" for name, step in zip(indices, steps, strict=True) if step != "0"
            ]
            position = " + ".join(([] if offset == "0" else [offset]) + terms) or "0"
            if vector and steps[-1] != "1":
                lines += _scattered(memory, position, steps[-1], value, output)
            else:
                lines.append(stored(memory, position, value, output.element_type, vector=vector))
        return [f"    {line}" for line in lines]


def _scattered(memory: str, position: str, step: str, value: str, output: Strided) -> list[str]:
    kind = "i32" if output.element_type.name == "BOOL" else "f32"
    element = stored(memory, f"{position} + lane * {step}", f"{value}s[lane]", output.element_type)
    # in a scope of its own, as a value may be written to several arrays
    return [f"{{ {kind} {value}s[VW]; VSTORE({value}, {value}s); for (int lane = 0; lane < VW; lane++) {element} }}"]
