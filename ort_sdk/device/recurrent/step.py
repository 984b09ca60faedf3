"""Plans the launches of a recurrent layer's steps: the form by the device's class."""

from __future__ import annotations

from ort_sdk.api import TensorElementType
from ort_sdk.api.data_classes import dataclass
from ort_sdk.device.context import DeviceContext
from ort_sdk.device.expressions.elementwise import is_wide
from ort_sdk.device.expressions.nodes import Strided
from ort_sdk.device.expressions.parameters import Parameters
from ort_sdk.device.launches import KernelSource, Launch

from .texts import CELLS, GROUP_STEP, PACK_GATES, PANEL_STEP

__all__ = ["GATES", "Layer", "take_step"]

FLOAT = TensorElementType.FLOAT
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
MOST_ROWS = 4
"""Samples whose sums a lane has in registers together."""
MOST_LANES = 64
"""Lanes that divide a sum, where they do."""
_ACTIVATIONS = {"sigmoid": "(1.0f / (1.0f + exp(-({0}))))", "tanh": "tanh({0})"}


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """One direction of a layer."""

    kind: str
    """Operator."""
    activations: tuple[str, ...]
    """Names of F, G and H, as many as the operator has."""
    weights: Strided
    """(gates * hidden, hidden), row by row."""
    bias: Strided | None
    """(gates * hidden), that is added to the sums, next to each other; None where the inputs have it."""

    @property
    def units(self) -> int:
        """Size of the hidden state."""
        return self.weights.shape[1]


def take_step(
    context: DeviceContext, layer: Layer, inputs: Strided, states: Strided, cells: Strided | None, outputs: Strided
) -> Strided | None:
    """Queue a step.

    Args:
        context: of the device.
        layer: what is computed.
        inputs: (batch, gates * hidden) float32, row by row: the input's share of the gates.
        states: (batch, hidden), row by row.
        cells: likewise, dense; None where there are none.
        outputs: (batch, hidden), row by row: gets the states after the step. They may be in the memory of those before.

    Returns:
        The cells after the step.
    """
    batch, units, gates, device = states.shape[0], layer.units, GATES[layer.kind], context.device
    is_panels = context.computes_panels
    weights = _packed(context, layer) if is_panels else layer.weights
    after = None if cells is None else context.new((batch, units), FLOAT)
    arrays = [each for each in (inputs, states, cells, outputs, after, weights, layer.bias) if each is not None]
    parameters = Parameters(wide=is_wide(arrays))
    parameters.share({id(states.held), id(outputs.held)})
    macros: dict[str, str | int] = {
        "INPUTS": parameters.memory(inputs.held, FLOAT),
        "STATES": parameters.memory(states.held, FLOAT),
        "WEIGHTS": parameters.memory(weights.held, FLOAT),
        "OUTPUTS": parameters.memory(outputs.held, FLOAT, written=True),
    }
    numbers = {"UNITS": units, "BATCH": batch, "INPUT_OFFSET": inputs.offset, "STATE_OFFSET": states.offset}
    numbers |= {"OUTPUT_OFFSET": outputs.offset, "WEIGHT_OFFSET": weights.offset}
    if cells is not None and after is not None:
        macros["CELLS"] = parameters.memory(cells.held, FLOAT)
        macros["CELLS_AFTER"] = parameters.memory(after.held, FLOAT, written=True)
    if layer.bias is not None:
        macros["BIAS"] = parameters.memory(layer.bias.held, FLOAT)
        numbers["BIAS_OFFSET"] = layer.bias.offset
    rows = min(batch, MOST_ROWS)
    groups = -(-batch // rows)
    if is_panels:
        panels = -(-units // device.vector_width)
        numbers["PANELS"] = panels
        lanes, groups = 1, groups * panels
        macros["VW"] = device.vector_width
    else:
        lanes, groups = min(MOST_LANES, device.most_lanes), groups * units
    # offsets differ from step to step, and the text is to be the same
    macros |= {name: parameters.index(number, folds=False) for name, number in numbers.items()}
    macros |= {"ROWS": rows, "GATES": gates, "LANES": lanes, "PARAMETERS": parameters.text}
    macros |= {f"{letter}(x)": _ACTIVATIONS[name].format("x") for letter, name in zip("FGH", layer.activations, strict=False)}
    if parameters.is_wide:
        macros["INDEX64"] = 1
    source = KernelSource("recurrent_step", _text(layer, is_panels=is_panels), tuple(macros.items()))
    context.submit(Launch(source, (groups,), (lanes,), tuple(parameters.arguments), tuple(parameters.writes)))
    return after


def _text(layer: Layer, *, is_panels: bool) -> str:
    text = PANEL_STEP if is_panels else GROUP_STEP
    sums = "(i * GATES + (g)) * VW" if is_panels else "i * GATES + (g)"
    bias = "" if layer.bias is None else " + LOAD(bias + (g) * UNITS)"
    words = {
        "GATE(g)": "(INPUT(g) + SUM(g))",
        "INPUT(g)": "LOAD(input + (g) * UNITS)",
        "BEFORE": "before",
        "HIDDEN": "hidden",
        "CELL": "cell_before",
        "CELL_AFTER": "cell_after",
    }
    vector = words | {"NUMBER": "f32v", "LOAD(p)": "VLOAD(p)", "STORE(v, p)": "VSTORE((v), (p))"}
    vector["SUM(g)"] = f"(VLOAD(sums + {sums}){bias})"
    number = words | {"NUMBER": "f32", "LOAD(p)": "(p)[u]", "STORE(v, p)": "(p)[u] = (v)"}
    number["SUM(g)"] = f"(sums[{sums}{' + u' if is_panels else ''}]{bias})"
    for place, own in (("/*VECTOR*/", vector), ("/*NUMBER*/", number)):
        text = text.replace(place, "\n".join([*_defined(own), CELLS[layer.kind], *(f"#undef {_name(word)}" for word in own)]))
    return text


def _defined(words: dict[str, str]) -> list[str]:
    return [f"#define {word} {meaning}" for word, meaning in words.items()]


def _name(word: str) -> str:
    return word.partition("(")[0]


def _packed(context: DeviceContext, layer: Layer) -> Strided:
    """The weights in panels of a vector of units; those of a constant are kept with it."""
    weights, width, gates = layer.weights, context.device.vector_width, GATES[layer.kind]
    panels = -(-layer.units // width)
    shape = (panels, layer.units, gates * width)
    memory, key = weights.held, ("gates", shape, weights.offset)
    kept = memory.derived.get(key)
    if kept is not None:
        return Strided(kept, shape, FLOAT)
    if not memory.is_constant:
        return _pack(context, weights, shape, gates)
    with context.at_once():
        target = _pack(context, weights, shape, gates)
    memory.derived[key] = target.held
    return target


def _pack(context: DeviceContext, weights: Strided, shape: tuple[int, ...], gates: int) -> Strided:
    target = context.new(shape, FLOAT)
    parameters = Parameters(wide=is_wide([weights, target]))
    macros: dict[str, str | int] = {
        "R": parameters.memory(weights.held, FLOAT),
        "Y": parameters.memory(target.held, FLOAT, written=True),
        "UNITS": parameters.index(weights.shape[1], folds=False),
        "OFFSET": parameters.index(weights.offset, folds=False),
        "GATES": gates,
        "VW": shape[2] // gates,
    }
    macros["PARAMETERS"] = parameters.text
    if parameters.is_wide:
        macros["INDEX64"] = 1
    source = KernelSource("pack_gates", PACK_GATES, tuple(macros.items()))
    context.submit(Launch(source, (shape[0],), (1,), tuple(parameters.arguments), tuple(parameters.writes)))
    return target
