"""Products of any type: a lane computes one element."""

from __future__ import annotations

from ort_sdk.device.context import DeviceContext
from ort_sdk.device.element_types import COMPUTE
from ort_sdk.device.expressions.nodes import Deferred, Node, Strided
from ort_sdk.device.launches import KernelSource, Launch

from .epilogue import Epilogue
from .operands import Matrices, column_position, element_macros, index_defines, parameters_for

__all__ = ["multiply_plainly"]

_PLAIN = """
KERNEL WORKGROUP(LANES, 1, 1) void product(PARAMETERS) {
  index_t e = (index_t)GROUP(0) * LANES + LANE(0);
  if (e < ROWS * N) {
    index_t row = e / N, column = e % N, batch = row / M;
    GLOBAL_PTR(const TA) a = A + A_OFFSET + batch / INNER * A_OUTER + batch % INNER * A_INNER + row % M * A_ROW;
    GLOBAL_PTR(const TB) b = B + B_OFFSET + batch / INNER * B_OUTER + batch % INNER * B_INNER;
    NUMBER sum = 0;
    for (index_t q = 0; q < K; q++) sum += (NUMBER)(GET_A(a[q * A_TERM]) * GET_B(b[B_AT(q, column)]));
/*STORE*/
  }
}
"""


def multiply_plainly(context: DeviceContext, product: Deferred, matrices: Matrices, output: Strided, root: Node | None) -> None:
    """Queue a product of matrices of one type.

    Args:
        context: of the device.
        product: what is computed.
        matrices: with any strides.
        output: dense; written row by row.
        root: expression to be written instead of the product; None for itself.
    """
    a, b, m, n = matrices.a, matrices.b, matrices.m, matrices.n
    parameters = parameters_for([a, b, output, *Epilogue.leaves(root)])
    macros: dict[str, str | int] = {
        "A": parameters.memory(a.held, a.element_type),
        "B": parameters.memory(b.held, b.element_type),
    }
    epilogue = Epilogue(product, root, output, n, parameters)
    numbers = {"ROWS": matrices.batch * m, "M": m, "N": n, "K": matrices.k, "INNER": matrices.inner}
    for letter, array, axes in (("A", a, ("OUTER", "INNER", "ROW", "TERM")), ("B", b, ("OUTER", "INNER"))):
        numbers[f"{letter}_OFFSET"] = array.offset
        numbers |= {f"{letter}_{axis}": stride for axis, stride in zip(axes, array.strides, strict=False)}
        macros |= element_macros(letter, array)
    macros |= {name: parameters.index(number, folds=False) for name, number in numbers.items()}
    macros |= column_position(matrices, parameters)
    lanes = context.device.lanes
    macros |= {"LANES": lanes, "NUMBER": COMPUTE[product.element_type]}
    store = "\n".join([*epilogue.row("row"), *epilogue.element("column", "sum")])
    macros["PARAMETERS"] = parameters.text
    source = KernelSource("product", _PLAIN.replace("/*STORE*/", store), (*macros.items(), *index_defines(parameters)))
    groups = -(-matrices.batch * m * n // lanes)
    context.submit(Launch(source, (groups,), (lanes,), tuple(parameters.arguments), tuple(parameters.writes)))
