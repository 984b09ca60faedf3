"""Products of a few rows for graphics processors: the lanes of a group divide the terms of each sum."""

from __future__ import annotations

from ort_sdk.device.context import DeviceContext
from ort_sdk.device.expressions.nodes import Deferred, Node, Strided
from ort_sdk.device.launches import KernelSource, Launch

from .epilogue import Epilogue
from .operands import Matrices, column_position, element_macros, index_defines, parameters_for

__all__ = ["MOST_ROWS", "PREFERRED_ROWS", "multiply_vectors"]

PREFERRED_ROWS = 4
"""Rows up to which reading the columns is what takes time."""
MOST_ROWS = 8
"""Rows whose sums there are registers and local memory for."""

_BY_TERMS = """
/* a group computes a column; lanes next to each other read terms next to each other */
KERNEL WORKGROUP(LX, LY, 1) void product(PARAMETERS) {
  LOCAL(f32, scratch, LX);
  index_t column = GROUP(0) % N, batch = GROUP(0) / N;
  GLOBAL_PTR(const TA) a = A + A_OFFSET + batch / INNER * A_OUTER + batch % INNER * A_INNER;
  GLOBAL_PTR(const TB) b = B + B_OFFSET + batch / INNER * B_OUTER + batch % INNER * B_INNER;
  int lane = LANE(0);
  f32 sum[M];
  UNROLL for (int i = 0; i < M; i++) sum[i] = 0.0f;
  for (index_t q = lane; q < K; q += LX) {
    f32 y = (f32)GET_B(b[B_AT(q, column)]);
    UNROLL for (int i = 0; i < M; i++) sum[i] = fma((f32)GET_A(a[i * A_ROW + q * A_TERM]), y, sum[i]);
  }
  UNROLL for (int i = 0; i < M; i++) {
    f32 total = f32_group_sum(sum[i], scratch, lane, LX);
    if (lane == 0) {
/*STORE*/
    }
  }
}
"""
_BY_COLUMNS = """
/* lanes next to each other compute columns next to each other; those along the other axis divide the terms */
KERNEL WORKGROUP(LX, LY, 1) void product(PARAMETERS) {
  LOCAL(f32, sums, M * LX * LY);
  index_t column = GROUP(0) % COLUMN_GROUPS * LX + LANE(0), batch = GROUP(0) / COLUMN_GROUPS;
  GLOBAL_PTR(const TA) a = A + A_OFFSET + batch / INNER * A_OUTER + batch % INNER * A_INNER;
  GLOBAL_PTR(const TB) b = B + B_OFFSET + batch / INNER * B_OUTER + batch % INNER * B_INNER;
  int lx = LANE(0), ly = LANE(1);
  f32 sum[M];
  UNROLL for (int i = 0; i < M; i++) sum[i] = 0.0f;
  if (column < N) {
    for (index_t q = ly; q < K; q += LY) {
      f32 y = (f32)GET_B(b[B_AT(q, column)]);
      UNROLL for (int i = 0; i < M; i++) sum[i] = fma((f32)GET_A(a[i * A_ROW + q * A_TERM]), y, sum[i]);
    }
  }
  UNROLL for (int i = 0; i < M; i++) sums[(i * LY + ly) * LX + lx] = sum[i];
  BARRIER();
  for (int i = ly; i < M; i += LY) {
    f32 total = 0.0f;
    for (int l = 0; l < LY; l++) total += sums[(i * LY + l) * LX + lx];
    if (column < N) {
/*STORE*/
    }
  }
}
"""


def multiply_vectors(context: DeviceContext, product: Deferred, matrices: Matrices, output: Strided, root: Node | None) -> None:
    """Queue a product of up to ``MOST_ROWS`` rows, of matrices of any type that float32 holds.

    Args:
        context: of the device.
        product: what is computed.
        matrices: with any strides.
        output: dense; written row by row.
        root: expression to be written instead of the product; None for itself.
    """
    a, b, m, n = matrices.a, matrices.b, matrices.m, matrices.n
    by_terms = b.strides[2] == 1 and b.strides[3] != 1
    most = context.device.most_lanes
    lanes = (min(128, most), 1) if by_terms else (min(32, most), max(1, min(8, most // 32)))
    parameters = parameters_for([a, b, output, *Epilogue.leaves(root)])
    macros: dict[str, str | int] = {"LX": lanes[0], "LY": lanes[1], "M": m}
    macros["A"], macros["B"] = parameters.memory(a.held, a.element_type), parameters.memory(b.held, b.element_type)
    epilogue = Epilogue(product, root, output, n, parameters)
    column_groups = n if by_terms else -(-n // lanes[0])
    numbers = {"N": n, "K": matrices.k, "INNER": matrices.inner, "COLUMN_GROUPS": column_groups}
    for letter, array in (("A", a), ("B", b)):
        steps = zip(("OFFSET", "OUTER", "INNER"), (array.offset, *array.strides[:2]), strict=True)
        numbers |= {f"{letter}_{name}": step for name, step in steps}
        macros |= element_macros(letter, array)
    macros |= {name: parameters.index(number, folds=False) for name, number in numbers.items()}
    macros |= {"A_ROW": parameters.index(a.strides[2]), "A_TERM": parameters.index(a.strides[3])}
    macros |= column_position(matrices, parameters)
    store = "\n".join([*epilogue.row("batch * M + i"), *epilogue.element("column", "total")])
    macros["PARAMETERS"] = parameters.text
    text = (_BY_TERMS if by_terms else _BY_COLUMNS).replace("/*STORE*/", store)
    source = KernelSource("product", text, (*macros.items(), *index_defines(parameters)))
    groups = (column_groups * matrices.batch, 1)
    context.submit(Launch(source, groups, lanes, tuple(parameters.arguments), tuple(parameters.writes)))
