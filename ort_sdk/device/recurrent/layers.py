"""RNN, GRU and LSTM whose steps are a launch each; the others' are launches of the shared operators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ort_sdk.api import Compute, HostArray, KernelInfo, TensorElementType
from ort_sdk.device.array import DeviceArray
from ort_sdk.device.expressions.nodes import Strided
from ort_sdk.opset.nn.recurrent import DIRECTIONS
from ort_sdk.opset.nn.recurrent_activations import named_activations

from .step import Layer, take_step

if TYPE_CHECKING:
    from ort_sdk.device.namespace.device_namespace import DeviceNamespace

__all__ = ["recurrent"]

FLOAT = TensorElementType.FLOAT
_DEFAULTS = {"RNN": ("Tanh",), "GRU": ("Sigmoid", "Tanh"), "LSTM": ("Sigmoid", "Tanh", "Tanh")}
_TAKEN = frozenset({"sigmoid", "tanh"})


def recurrent(info: KernelInfo, namespace: DeviceNamespace, shared: Compute) -> Compute | None:
    """Layers of float32 with the usual activations, without peepholes, whose gates need one product of the states."""
    kind, direction = info.op_type, info.attribute("direction", "forward")
    is_plain = not info.attribute("clip", None) and not info.attribute("input_forget", 0) and not info.has_input(7)
    resets_after = kind != "GRU" or bool(info.attribute("linear_before_reset", 0))
    if info.input_element_type(0) is not FLOAT or not is_plain or not resets_after or direction not in DIRECTIONS:
        return None
    backwards = DIRECTIONS[direction]
    names = [tuple(each.name for each in row) for row in named_activations(info, _DEFAULTS[kind], len(backwards))]
    if not all(_TAKEN.issuperset(row) for row in names):
        return None
    return _Recurrent(info, namespace, shared, backwards, names)


class _Recurrent:
    def __init__(
        self,
        info: KernelInfo,
        namespace: DeviceNamespace,
        shared: Compute,
        backwards: tuple[bool, ...],
        activations: list[tuple[str, ...]],
    ) -> None:
        self._kind, self._xp, self._shared = info.op_type, namespace, shared
        self._backwards, self._activations = backwards, activations
        self._batch_first, self._wants_sequence = bool(info.attribute("layout", 0)), info.wants_output(0)

    def __call__(
        self,
        x: DeviceArray,
        w: DeviceArray,
        r: DeviceArray,
        b: DeviceArray | None = None,
        sequence_lens: HostArray | None = None,
        initial_h: DeviceArray | None = None,
        initial_c: DeviceArray | None = None,
    ) -> Any:
        steps = x.shape[1 if self._batch_first else 0]
        is_whole = sequence_lens is None or bool((sequence_lens == steps).all())
        if not is_whole or 0 in (*x.shape, *r.shape):
            return self._shared(x, w, r, b, sequence_lens, initial_h, initial_c)
        xp, axis = self._xp, 1 if self._batch_first else 0
        if self._batch_first:
            x = xp.permute_dims(x, (1, 0, 2))
        batch, units, directions = x.shape[1], r.shape[2], len(self._backwards)
        y = xp.context.new((steps, directions, batch, units), FLOAT)
        hidden: list[DeviceArray] = []
        cells: list[Strided | None] = []
        for index, is_backwards in enumerate(self._backwards):
            layer = self._layer(r, b, index)
            state, cell = (self._initial(given, index, (batch, units)) for given in (initial_h, initial_c))
            last_cell = None if self._kind != "LSTM" else cell
            gates = self._gates(x, w, b, index, has_bias=layer.bias is not None)
            for step in reversed(range(steps)) if is_backwards else range(steps):
                own = y.view((batch, units), (units, 1), (step * directions + index) * batch * units)
                share = gates.view((batch, gates.shape[2]), (gates.shape[2], 1), step * batch * gates.shape[2])
                last_cell = take_step(xp.context, layer, share, state, last_cell, own)
                state = own
            hidden.append(x.made(state))
            cells.append(last_cell)
        sequence = x.made(y)
        if self._batch_first:
            sequence = xp.permute_dims(sequence, (2, 0, 1, 3))
        outputs = (sequence if self._wants_sequence else None, xp.stack(hidden, axis=axis))
        return (
            outputs
            if self._kind != "LSTM"
            else (*outputs, xp.stack([x.made(each) for each in cells if each is not None], axis=axis))
        )

    def _layer(self, r: DeviceArray, b: DeviceArray | None, index: int) -> Layer:
        context, (_, rows, units) = self._xp.context, r.shape
        weights = context.dense(r.node).view((rows, units), (units, 1), index * rows * units)
        bias = None
        if b is not None and self._kind == "GRU":
            bias = context.dense(b.node).view((rows,), (1,), (2 * index + 1) * rows)
        return Layer(self._kind, self._activations[index], weights, bias)

    def _gates(self, x: DeviceArray, w: DeviceArray, b: DeviceArray | None, index: int, *, has_bias: bool) -> Strided:
        """The input's share of the gates for all steps, (steps, batch, gates * hidden), with what bias the sums do not get."""
        xp, rows = self._xp, w.shape[1]
        gates = xp.matmul(x, xp.matrix_transpose(w[index, ...]))
        if b is not None:
            gates = gates + (b[index, :rows] if has_bias else b[index, :rows] + b[index, rows:])
        return xp.context.dense(gates.node)

    def _initial(self, given: DeviceArray | None, index: int, shape: tuple[int, int]) -> Strided:
        xp = self._xp
        if given is None:
            return xp.context.dense(xp.zeros(shape, dtype=xp.float32).node)
        return xp.context.dense((given[:, index, :] if self._batch_first else given[index, ...]).node)
