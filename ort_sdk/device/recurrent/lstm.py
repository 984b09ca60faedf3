"""LSTM on a device: what the input adds is one product, and all steps are one kernel, which keeps the states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ort_sdk.api import Array, Compute, KernelInfo, TensorElementType
from ort_sdk.device.array import DeviceArray
from ort_sdk.device.context import DeviceContext
from ort_sdk.device.element_types import HALF_TYPES, STORAGE
from ort_sdk.device.expressions.elementwise import is_wide
from ort_sdk.device.expressions.nodes import Strided
from ort_sdk.device.expressions.parameters import Parameters
from ort_sdk.device.launches import Launch, filled_source
from ort_sdk.device.products.panels import packed

from .lstm_texts import LANES_TEXT, ROWS_TEXT

__all__ = ["MOST_UNITS", "lstm"]

FLOAT = TensorElementType.FLOAT
MOST_UNITS = 256
"""Of a layer whose steps one lane, or one group of lanes, computes as fast as all of a device do in kernels of their own."""
GROUP_PANEL = 32
"""Units of a panel for groups of lanes, which read neighbours together."""
ACTIVATIONS = ("sigmoid", "tanh", "tanh")
SEQUENCE_LENGTHS, PEEPHOLES = 4, 7
"""Inputs that the kernels do not take."""


def lstm(info: KernelInfo, namespace: Any, shared: Compute) -> Compute | None:
    """LSTM of float32, float16 and bfloat16 with ONNX's default activations, whose sequences have all the same length."""
    direction, own = info.attribute("direction", "forward"), info.input_element_type(0)
    functions = [name.lower() for name in info.attribute("activations", None) or ()]
    is_plain = not functions or functions == [*ACTIVATIONS] * (len(functions) // len(ACTIVATIONS))
    has_factors = any(info.attribute(name, None) for name in ("activation_alpha", "activation_beta", "clip", "input_forget"))
    if not is_plain or has_factors or own not in HALF_TYPES | {FLOAT} or info.has_input(SEQUENCE_LENGTHS):
        return None
    if info.has_input(PEEPHOLES) or direction not in {"forward", "reverse", "bidirectional"}:
        return None
    return _Lstm(info, namespace, shared)


class _Lstm:
    def __init__(self, info: KernelInfo, namespace: Any, shared: Compute) -> None:
        self._xp, self._shared = namespace, shared
        self._element_type = info.input_element_type(0) or FLOAT
        self._is_backwards = info.attribute("direction", "forward") == "reverse"
        self._batch_first, self._wants_sequence = bool(info.attribute("layout", 0)), info.wants_output(0)

    def __call__(
        self,
        x: DeviceArray,
        w: DeviceArray,
        r: DeviceArray,
        b: DeviceArray | None = None,
        sequence_lens: Array = None,
        initial_h: DeviceArray | None = None,
        initial_c: DeviceArray | None = None,
    ) -> Any:
        xp, units = self._xp, r.shape[2]
        if 0 in (*x.shape, units) or units > MOST_UNITS:
            return self._shared(x, w, r, b, sequence_lens, initial_h, initial_c)
        if self._batch_first:
            x = xp.permute_dims(x, (1, 0, 2))
            initial_h, initial_c = (each if each is None else xp.permute_dims(each, (1, 0, 2)) for each in (initial_h, initial_c))
        gates = self._gates(xp.astype(x, FLOAT), xp.astype(w, FLOAT), None if b is None else xp.astype(b, FLOAT))
        initial = [None if each is None else xp.astype(each, FLOAT).dense() for each in (initial_h, initial_c)]
        time, batch, directions = x.shape[0], x.shape[1], w.shape[0]
        context, kind = x.context, self._element_type
        sequence = context.new((time, directions, batch, units), kind) if self._wants_sequence else None
        last = [context.new((directions, batch, units), kind) for _ in range(2)]
        launch = _launch(context, gates, r.dense(), initial, sequence, last, is_backwards=self._is_backwards)
        context.submit(launch)
        outputs = [None if each is None else x.made(each) for each in (sequence, *last)]
        if not self._batch_first:
            return tuple(outputs)
        orders = ((2, 0, 1, 3), (1, 0, 2), (1, 0, 2))
        return tuple(y if y is None else xp.permute_dims(y, order) for y, order in zip(outputs, orders, strict=True))

    def _gates(self, x: DeviceArray, w: DeviceArray, b: DeviceArray | None) -> Strided:
        """What the input adds to the gates of all steps, (directions, time, batch, 4 * hidden)."""
        xp, (time, batch, size), (directions, columns, _) = self._xp, x.shape, w.shape
        gates = xp.matmul(xp.reshape(x, (1, time * batch, size)), xp.matrix_transpose(w))
        if b is not None:
            gates = gates + xp.expand_dims(b[:, :columns] + b[:, columns:], axis=1)
        made: Strided = xp.reshape(gates, (directions, time, batch, columns)).dense()
        return made


def _launch(
    context: DeviceContext,
    gates: Strided,
    recurrent: Strided,
    initial: Sequence[Strided | None],
    sequence: Strided | None,
    last: Sequence[Strided],
    *,
    is_backwards: bool,
) -> Launch:
    """The launch of all steps.

    Args:
        context: of the device.
        gates: float32 (directions, time, batch, 4 * hidden), dense.
        recurrent: (directions, 4 * hidden, hidden), dense.
        initial: hidden state and cell state, float32 (directions, batch, hidden), dense; None for zeros.
        sequence: (time, directions, batch, hidden) that gets the hidden states.
        last: hidden state and cell state that get the last ones.
        is_backwards: whether a single direction is backwards; the second of two always is.
    """
    directions, time, batch, columns = gates.shape
    units, device = columns // 4, context.device
    width = (device.vector_width if context.computes_panels else 1) if device.is_cpu else GROUP_PANEL
    step = units * units
    gates_first = recurrent.view((directions, 4, units, units), (4 * step, step, 1, units), recurrent.offset)
    weights, _ = packed(context, gates_first, width)
    written = [*([] if sequence is None else [sequence]), *last]
    parameters = Parameters(wide=is_wide([gates, weights, *written]))
    defines: dict[str, str | int] = {"H": units, "W": width, "PANELS": -(-units // width), "FIRST_BACKWARDS": int(is_backwards)}
    names = {
        "gates": parameters.memory(gates.held, FLOAT),
        "weights": parameters.memory(weights.held, FLOAT),
        "YT": STORAGE[last[0].element_type],
        **dict.fromkeys(("initial_hidden", "initial_cell", "sequence"), ""),
    }
    for name, given in zip(("initial_hidden", "initial_cell"), initial, strict=True):
        if given is not None:
            names[name] = parameters.memory(given.held, FLOAT)
            defines[name.upper()] = 1
    for name, target in zip(("last_hidden", "last_cell"), last, strict=True):
        names[name] = parameters.memory(target.held, target.element_type, written=True)
    if sequence is not None:
        names["sequence"] = parameters.memory(sequence.held, sequence.element_type, written=True)
        defines["WANTS_SEQUENCE"] = 1
    for name, number in (("time", time), ("batch", batch), ("directions", directions)):
        names[name] = parameters.index(number, folds=name != "time")
    lanes = 1
    if device.is_cpu:
        name, text = "lstm_rows", ROWS_TEXT
        if width > 1:
            defines["VW"] = width
    else:
        name, text = "lstm_lanes", LANES_TEXT
        lanes = min(device.lanes, 1 << (units - 1).bit_length())
        defines |= {"LANES": lanes, "OWN": -(-units // lanes)}
    if parameters.is_wide:
        defines["INDEX64"] = 1
    source = filled_source(name, text, {**names, "parameters": parameters.text}, defines)
    groups = (directions * batch,)
    return Launch(source, groups, (lanes,), tuple(parameters.arguments), tuple(parameters.writes))
