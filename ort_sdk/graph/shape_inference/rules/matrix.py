"""Matrix products."""

from __future__ import annotations

from ort_sdk.api import Shape
from ort_sdk.graph.shape_inference.dimensions import broadcast
from ort_sdk.graph.shape_inference.node_call import NodeCall, shape_rule


def _matmul(left: Shape | None, right: Shape | None) -> Shape | None:
    if left is None or right is None:
        return None
    rows = left[-2:-1]
    columns = right[-1:] if len(right) > 1 else ()
    batch = broadcast([left[:-2], right[:-2]])
    return None if batch is None else (*batch, *rows, *columns)


def _transposed(shape: Shape | None) -> Shape | None:
    return None if shape is None or len(shape) < 2 else (*shape[:-2], shape[-1], shape[-2])


@shape_rule("MatMul", "MatMulInteger")
@shape_rule("MatMulInteger16", "MatMulIntegerToFloat", "DynamicQuantizeMatMul", domain="com.microsoft")
def matmul(call: NodeCall) -> list[Shape | None]:
    """NumPy's matmul of the first two inputs."""
    return [_matmul(call.shape(0), call.shape(1))]


@shape_rule("QLinearMatMul")
def qlinear_matmul(call: NodeCall) -> list[Shape | None]:
    """Of the first and fourth."""
    return [_matmul(call.shape(0), call.shape(3))]


@shape_rule("FusedMatMul", "TransposeMatMul", "FusedMatMulActivation", domain="com.microsoft")
def fused_matmul(call: NodeCall) -> list[Shape | None]:
    """With transposed operands."""
    if call.attribute("transBatchA", 0) or call.attribute("transBatchB", 0):
        return [None]
    left, right = call.shape(0), call.shape(1)
    return [
        _matmul(
            _transposed(left) if call.attribute("transA", 0) else left,
            _transposed(right) if call.attribute("transB", 0) else right,
        )
    ]


@shape_rule("Gemm")
@shape_rule("FusedGemm", "GemmFastGelu", "GemmFloat8", domain="com.microsoft")
def gemm(call: NodeCall) -> list[Shape | None]:
    """(M, N)."""
    left, right = call.shape(0), call.shape(1)
    rows = None if left is None else left[1 if call.attribute("transA", 0) else 0]
    columns = None if right is None else right[0 if call.attribute("transB", 0) else 1]
    return [(rows, columns)]


@shape_rule("MatMulNBits", "MatMulBnb4", domain="com.microsoft")
def matmul_n_bits(call: NodeCall) -> list[Shape | None]:
    """The last axis becomes ``N``."""
    left = call.shape(0)
    return [None if left is None else (*left[:-1], call.attribute("N"))]


@shape_rule("Einsum")
def einsum(call: NodeCall) -> list[Shape | None]:
    """Letters looked up in the operands; no ellipsis."""
    equation = call.attribute("equation").replace(" ", "")
    if "." in equation:
        return [None]
    left, arrow, right = equation.partition("->")
    sizes: dict[str, list[Shape]] = {}
    for letters, shape in zip(left.split(","), call.shapes, strict=True):
        if shape is None or len(shape) != len(letters):
            return [(None,) * len(right) if arrow else None]
        for letter, size in zip(letters, shape, strict=True):
            sizes.setdefault(letter, []).append((size,))
    if not arrow:
        right = "".join(sorted(letter for letter in sizes if left.count(letter) == 1))
    found = [broadcast(sizes[letter]) for letter in right]
    return [tuple(each[0] if each else None for each in found)]


@shape_rule("Det")
def determinant(call: NodeCall) -> list[Shape | None]:
    """Batch axes."""
    shape = call.shape(0)
    return [None if shape is None else shape[:-2]]
