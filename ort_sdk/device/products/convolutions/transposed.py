"""Transposed convolutions: a product of the weight with the input, whose elements are summed where the windows overlap."""

from __future__ import annotations

from ort_sdk.api import TensorElementType
from ort_sdk.device.arithmetic import cast_node
from ort_sdk.device.context import DeviceContext
from ort_sdk.device.expressions.nodes import Deferred, Node, Strided, element_count
from ort_sdk.device.launches import KernelSource, Launch
from ort_sdk.device.products.deferred import DeferredRows
from ort_sdk.device.products.epilogue import Epilogue
from ort_sdk.device.products.operands import Matrices, index_defines, parameters_for
from ort_sdk.device.products.product import Product
from ort_sdk.opset.nn.windows import Windows

from .windows import three_axes

__all__ = ["TransposedConvolution"]

FLOAT = TensorElementType.FLOAT

_SUM_WINDOWS = """
KERNEL WORKGROUP(LANES, 1, 1) void sum_windows(PARAMETERS) {
  index_t e = (index_t)GROUP(0) * LANES + LANE(0);
  if (e < ROWS * (OUT_0 * OUT_1 * OUT_2)) {
    index_t row = e / (OUT_0 * OUT_1 * OUT_2), column = e % (OUT_0 * OUT_1 * OUT_2);
    index_t z = column / OUT_2 / OUT_1 + PAD_0, y = column / OUT_2 % OUT_1 + PAD_1, x = column % OUT_2 + PAD_2;
    GLOBAL_PTR(const f32) taps = X + row * (TAPS_0 * TAPS_1 * TAPS_2) * (IN_0 * IN_1 * IN_2);
    f32 sum = 0.0f;
    for (int t0 = 0; t0 < TAPS_0; t0++) {
      index_t iz = z - t0 * DILATION_0;
      if (iz < 0 || iz % STRIDE_0 != 0 || iz / STRIDE_0 >= IN_0) continue;
      for (int t1 = 0; t1 < TAPS_1; t1++) {
        index_t iy = y - t1 * DILATION_1;
        if (iy < 0 || iy % STRIDE_1 != 0 || iy / STRIDE_1 >= IN_1) continue;
        for (int t2 = 0; t2 < TAPS_2; t2++) {
          index_t ix = x - t2 * DILATION_2;
          if (ix < 0 || ix % STRIDE_2 != 0 || ix / STRIDE_2 >= IN_2) continue;
          sum += taps[((t0 * TAPS_1 + t1) * TAPS_2 + t2) * (IN_0 * IN_1 * IN_2)
                      + (iz / STRIDE_0 * IN_1 + iy / STRIDE_1) * IN_2 + ix / STRIDE_2];
        }
      }
    }
/*STORE*/
  }
}
"""


class TransposedConvolution(DeferredRows):
    """(N, C, *input) with (C, M / groups, *kernel) to (N, M, *output), as float32.

    Args:
        context: of the device.
        x: float32, float16 or bfloat16, with any strides; it has elements.
        weight: likewise.
        windows: of the convolution that is transposed: its output is our input. Up to three axes.
        groups: that the channels are divided into.
    """

    __slots__ = ("_groups", "_weight", "_windows", "_x")

    def __init__(self, context: DeviceContext, x: Strided, weight: Strided, windows: Windows, groups: int) -> None:
        shape = (x.shape[0], weight.shape[1] * groups, *windows.input_shape)
        super().__init__(context, shape, FLOAT, element_count(windows.input_shape), (x, weight))
        self._x, self._weight, self._windows, self._groups = x, weight, windows, groups

    def launch(self, value: Deferred, output: Strided, root: Node | None) -> None:
        context, windows = self.context, self._windows
        taps = context.materialise(self._taps())
        parameters = parameters_for([taps, output, *Epilogue.leaves(root)])
        macros: dict[str, str | int] = {"X": parameters.memory(taps.held, FLOAT)}
        columns = element_count(windows.input_shape)
        epilogue = Epilogue(value, root, output, columns, parameters)
        rows = element_count(self.shape[:2])
        by_axis = {
            "OUT": three_axes(windows.input_shape, 1),
            "IN": three_axes(windows.output_shape, 1),
            "TAPS": three_axes(windows.kernel_shape, 1),
            "STRIDE": three_axes(windows.strides, 1),
            "DILATION": three_axes(windows.dilations, 1),
            "PAD": three_axes(windows.pads_begin, 0),
        }
        for name, values in by_axis.items():
            macros |= {f"{name}_{axis}": parameters.index(number) for axis, number in enumerate(values)}
        lanes = context.device.lanes
        macros |= {"LANES": lanes, "ROWS": parameters.index(rows)}
        store = "\n".join([*epilogue.row("row"), *epilogue.element("column", "sum")])
        macros["PARAMETERS"] = parameters.text
        source = KernelSource(
            "sum_windows", _SUM_WINDOWS.replace("/*STORE*/", store), (*macros.items(), *index_defines(parameters))
        )
        groups = -(-rows * columns // lanes)
        context.submit(Launch(source, (groups,), (lanes,), tuple(parameters.arguments), tuple(parameters.writes)))

    def _taps(self) -> Product:
        """What each input element gives to each tap: (N, groups, M / groups * kernel elements, input elements)."""
        context, groups = self.context, self._groups
        x, weight = context.dense(self._x), context.dense(self._weight)
        batch, channels = x.shape[0], x.shape[1] // groups
        terms, pixels = element_count(weight.shape[1:]), element_count(x.shape[2:])
        a = weight.view((batch, groups, terms, channels), (0, channels * terms, 1, terms), 0)
        b = x.view((batch, groups, channels, pixels), (groups * channels * pixels, channels * pixels, pixels, 1), 0)
        if a.element_type is not FLOAT:
            a = context.materialise(cast_node(context, a, FLOAT))
        return Product(context, Matrices(a, b), (batch, groups, terms, pixels), FLOAT)
