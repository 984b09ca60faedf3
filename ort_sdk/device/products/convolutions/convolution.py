"""Convolutions as products of the weight with the windows, which are read where they are and not copied to columns."""

from __future__ import annotations

import math
from functools import partial

from ort_sdk.api import TensorElementType
from ort_sdk.device.context import DeviceContext
from ort_sdk.device.expressions.nodes import Deferred, Node, Strided, element_count
from ort_sdk.device.expressions.parameters import Parameters
from ort_sdk.device.launches import KernelSource, Launch
from ort_sdk.device.products.deferred import DeferredRows
from ort_sdk.device.products.epilogue import Epilogue
from ort_sdk.device.products.fastest import submit_fastest
from ort_sdk.device.products.operands import Matrices, index_defines, parameters_for
from ort_sdk.device.products.panels import PANEL, group_order, packed, row_blocks, stored_row, work_groups
from ort_sdk.device.products.plain import multiply_plainly
from ort_sdk.device.products.tiles import multiply_tiles, tile_forms
from ort_sdk.device.products.tuning_key import size_bucket
from ort_sdk.opset.nn.windows import Windows

from .windows import Columns, columns_of

__all__ = ["Convolution"]

FLOAT, INT32 = TensorElementType.FLOAT, TensorElementType.INT32
FEWEST_TILE_ROWS = 8
"""Outputs of a group that are worth a tile."""

_CONVOLUTION = """
KERNEL WORKGROUP(1, 1, 1) void convolve(PARAMETERS) {
  index_t group = GROUP(0);
  index_t block = BLOCK_OF(group), part = PANEL_OF(group), batch = group / (BLOCKS * PARTS);
  index_t last = (block + 1) * GROUP_ROWS < M ? (block + 1) * GROUP_ROWS : M;
  index_t last_panel = (part + 1) * GROUP_PANELS < PANELS ? (part + 1) * GROUP_PANELS : PANELS;
  GLOBAL_PTR(const f32) x = X + OFFSET + batch / GROUPS * SAMPLE_STEP + batch % GROUPS * GROUP_STEP;
  GLOBAL_PTR(const f32) weights = W + batch % GROUPS * WEIGHT_STEP;
  for (index_t panel = part * GROUP_PANELS; panel < last_panel; panel++) {
    /* the last panel is read together with some elements before it, which are computed there */
    index_t first = panel * PANEL, start = first + PANEL <= SPAN || SPAN < PANEL ? first : SPAN - PANEL;
    int begin = (int)(first - start), count = SPAN - first < PANEL ? (int)(SPAN - first) : PANEL;
    index_t column = first;
/*RUNS*/
    for (index_t row = block * GROUP_ROWS; row < last; row += ROWS) {
      f32 values[ROWS * PANEL + VW];
      {
        f32v sum[ROWS][PANEL / VW];
        UNROLL for (int i = 0; i < ROWS; i++) { UNROLL for (int j = 0; j < PANEL / VW; j++) sum[i][j] = splat_f32(0.0f); }
        GLOBAL_PTR(const f32) a = weights + row * K;
        for (index_t c = 0; c < CHANNELS; c++) {
          GLOBAL_PTR(const f32) plane = x + c * CHANNEL_STEP + start;
          for (int t = 0; t < TAPS; t++) {
            GLOBAL_PTR(const f32) b = plane + TABLE_OF_TAPS[t];
            f32v element[PANEL / VW];
            UNROLL for (int j = 0; j < PANEL / VW; j++) element[j] = VLOAD(b + j * VW);
            UNROLL for (int i = 0; i < ROWS; i++) {
              f32v weight = splat_f32(a[i]);
              UNROLL for (int j = 0; j < PANEL / VW; j++) sum[i][j] = fma(weight, element[j], sum[i][j]);
            }
            a += ROWS;
          }
        }
        UNROLL for (int i = 0; i < ROWS; i++) {
          UNROLL for (int j = 0; j < PANEL / VW; j++) VSTORE(sum[i][j], values + i * PANEL + j * VW);
        }
      }
      for (index_t i = 0; i < ROWS && row + i < M; i++) {
/*LINE*/
/*STORE*/
      }
    }
  }
}
"""
_RUNS = """
    /* runs of windows in the panel, between the gaps where rows end */
    int runs = 0, run_begin[PANEL], run_count[PANEL];
    index_t z = first / PLANE_STEP, y = first % PLANE_STEP / ROW_STEP, at = first % ROW_STEP;
    column = (z * HEIGHT + (y < HEIGHT ? y : HEIGHT)) * WIDTH + (y < HEIGHT ? at < WIDTH ? at : WIDTH : 0);
    int end = count;
    count = 0;
    for (int from = 0; from < end;) {
      int left = ROW_STEP - at < end - from ? (int)(ROW_STEP - at) : end - from;
      int valid = y >= HEIGHT || at >= WIDTH ? 0 : WIDTH - at < left ? (int)(WIDTH - at) : left;
      if (valid > 0) { run_begin[runs] = begin + from; run_count[runs] = valid; runs++; count += valid; }
      from += left;
      at = 0;
      y++;
      if (y * ROW_STEP >= PLANE_STEP) { y = 0; z++; }
    }
"""
_LINE = """
        f32 line[PANEL + 2 * VW];
        int to = 0;
        for (int r = 0; r < runs; r++) {
          for (int v = 0; v < run_count[r]; v += VW) VSTORE(VLOAD(values + i * PANEL + run_begin[r] + v), line + to + v);
          to += run_count[r];
        }
"""


class Convolution(DeferredRows):
    """(N, C, *spatial) with (M, C / groups, *kernel), as float32.

    Args:
        context: of the device.
        x: float32, float16 or bfloat16, with any strides; it has elements.
        weight: likewise.
        windows: of up to three spatial axes.
        groups: that the channels are divided into.
    """

    __slots__ = ("_groups", "_weight", "_windows", "_x")

    def __init__(self, context: DeviceContext, x: Strided, weight: Strided, windows: Windows, groups: int) -> None:
        shape = (x.shape[0], weight.shape[0], *windows.output_shape)
        super().__init__(context, shape, FLOAT, element_count(windows.output_shape), (x, weight))
        self._x, self._weight, self._windows, self._groups = x, weight, windows, groups

    def launch(self, value: Deferred, output: Strided, root: Node | None) -> None:
        context = self.context
        columns = columns_of(context, self._x, self._windows)
        weight = context.dense(self._weight)
        outputs, terms = weight.shape[0] // self._groups, element_count(weight.shape[1:])
        if context.computes_panels:
            matrix = weight.view((1, self._groups, terms, outputs), (0, outputs * terms, 1, terms), 0)
            launch = partial(_launch_panels, context, value, columns, matrix, output, root)
            forms = {f"panels of {rows} rows": partial(launch, rows) for rows in row_blocks(outputs)}
            sizes = (size_bucket(size) for size in (*matrix.shape, self._x.shape[0]))
            submit_fastest(context, ("convolution", *sizes, *columns.tuning_key), forms, output, [weight.held])
            return
        matrices = _matrices(context, weight, columns, self._x.shape[0], self._groups)
        if outputs < FEWEST_TILE_ROWS:
            multiply_plainly(context, value, matrices, output, root)
            return
        multiply = partial(multiply_tiles, context, value, matrices, output, root)
        forms = {form.name: partial(multiply, form) for form in tile_forms(context.device, matrices)}
        submit_fastest(context, (*matrices.tuning_key("convolution"), *columns.tuning_key), forms, output, [])


def _matrices(context: DeviceContext, weight: Strided, columns: Columns, batch: int, groups: int) -> Matrices:
    """The weight's rows and the windows' elements for each sample and group."""
    outputs, channels, terms = weight.shape[0] // groups, weight.shape[1], element_count(weight.shape[1:])
    a = weight.view((batch, groups, outputs, terms), (0, outputs * terms, terms, 1), 0)
    steps = (columns.sample_step, channels * columns.channel_step, 0, 0)
    b = columns.array.view((batch, groups, terms, element_count(columns.windows)), steps, columns.offset)

    def place(parameters: Parameters) -> str:
        table = parameters.memory(columns.tap_table(context).held, INT32)
        taps = len(columns.taps)
        channel = parameters.index(columns.channel_step)
        (_, height, width), (plane, row) = (tuple(map(parameters.index, each)) for each in (columns.windows, columns.steps))
        window = f"((column) / {width} / {height} * {plane} + (column) / {width} % {height} * {row} + (column) % {width})"
        return f"((term) / {taps} * {channel} + {table}[(term) % {taps}] + {window})"

    return Matrices(a, b, place=place)


def _launch_panels(
    context: DeviceContext, value: Deferred, columns: Columns, matrix: Strided, output: Strided, root: Node | None, rows: int
) -> None:
    """Queue the kernel for processors; ``matrix`` is the weight as (1, groups, terms, outputs of a group), ``rows`` at a time."""
    _, groups, terms, outputs = matrix.shape
    taps = len(columns.taps)
    weight, steps = packed(context, matrix, rows)
    table = columns.tap_table(context)
    parameters = parameters_for([columns.array, weight, output, *Epilogue.leaves(root)])
    macros: dict[str, str | int] = {
        "X": parameters.memory(columns.array.held, FLOAT),
        "W": parameters.memory(weight.held, FLOAT),
        "TABLE_OF_TAPS": parameters.memory(table.held, INT32),
    }
    epilogue = Epilogue(value, root, output, element_count(columns.windows), parameters)
    batch = output.shape[0] * groups
    blocks, panels = -(-outputs // rows), -(-columns.span // PANEL)
    operations = rows * PANEL * terms
    units = context.device.units
    per_group = work_groups(blocks, panels * batch, operations, units)
    group_panels = work_groups(panels, batch, operations * blocks, units) if per_group == blocks else 1
    numbers = {
        "BLOCKS": -(-blocks // per_group),
        "GROUP_ROWS": per_group * rows,
        "PARTS": -(-panels // group_panels),
        "GROUP_PANELS": group_panels,
        "PANELS": panels,
        "GROUPS": groups,
        "M": outputs,
        "K": terms,
        "CHANNELS": terms // taps,
        "SPAN": columns.span,
        "OFFSET": columns.offset,
        "SAMPLE_STEP": columns.sample_step,
        "GROUP_STEP": terms // taps * columns.channel_step,
        "CHANNEL_STEP": columns.channel_step,
        "WEIGHT_STEP": steps.inner,
    }
    if columns.has_gaps:
        numbers |= {"PLANE_STEP": columns.steps[0], "ROW_STEP": columns.steps[1]}
        numbers |= {"HEIGHT": columns.windows[1], "WIDTH": columns.windows[2]}
    macros |= {name: parameters.index(number, folds=False) for name, number in numbers.items()}
    macros |= {"ROWS": rows, "PANEL": PANEL, "VW": context.device.vector_width, "TAPS": taps}
    # a weight's element is read for each panel, an input's for each block of rows and tap
    macros |= group_order("PARTS", rows_first=outputs * taps <= columns.span)
    values = "line" if columns.has_gaps else "values + i * PANEL + begin"
    store = [*epilogue.row("batch * M + row + i"), *stored_row(epilogue, values, "column", "count")]
    text = _CONVOLUTION.replace("/*STORE*/", "\n".join(store))
    text = text.replace("/*RUNS*/", _RUNS if columns.has_gaps else "").replace("/*LINE*/", _LINE if columns.has_gaps else "")
    macros["PARAMETERS"] = parameters.text
    source = KernelSource("convolve", text, (*macros.items(), *index_defines(parameters)))
    count = math.prod((int(numbers["BLOCKS"]), int(numbers["PARTS"]), batch))
    context.submit(Launch(source, (count,), (1,), tuple(parameters.arguments), tuple(parameters.writes)))
