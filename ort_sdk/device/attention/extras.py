"""What attention over a cache has beside queries, keys and values: lengths, rotation, sinks and a bound on scores."""

from __future__ import annotations

from ort_sdk.api.data_classes import dataclass
from ort_sdk.device.element_types import STORAGE
from ort_sdk.device.expressions.nodes import Strided
from ort_sdk.device.expressions.parameters import Parameters

__all__ = ["CacheLengths", "Extras", "Rotation"]

Defines = dict[str, str | int]


@dataclass(frozen=True, slots=True)
class CacheLengths:
    """How many tokens of each sequence of a batch are in a cache."""

    last: Strided
    """(batch,) int32: position of each sequence's last token."""
    new: int
    """Tokens of this call, which are the last ones."""
    is_first: bool
    """Whether nothing is past: new tokens start at 0, also of sequences that are padded behind."""

    def defines(self, parameters: Parameters) -> Defines:
        """``START(b)``: position of the first new token; ``TOTAL(b)``: tokens with the new ones."""
        name = parameters.memory(self.last.held, self.last.element_type)
        total = f"((i64){name}[b] + 1)"
        start = "0" if self.is_first else f"({total} - {parameters.index(self.new)})"
        return {"TOTAL(b)": total, "START(b)": start}


@dataclass(frozen=True, slots=True)
class Rotation:
    """How pairs of elements are rotated by their token's position."""

    cosines: Strided
    """(positions, pairs), dense."""
    sines: Strided
    interleaved: bool

    def defines(self, parameters: Parameters) -> tuple[Defines, dict[str, str]]:
        """(macros, names for the text); positions are those of ``START``."""
        rows, half = self.cosines.shape
        defines: Defines = {"HALF": half, "INTERLEAVED": int(self.interleaved), "ANGLE_ROWS": parameters.index(rows)}
        defines["ANGLE(b, i)"] = "(START(b) + (i))"
        names = {
            "cosines": parameters.memory(self.cosines.held, self.cosines.element_type),
            "sines": parameters.memory(self.sines.held, self.sines.element_type),
            "CT": STORAGE[self.cosines.element_type],
        }
        return defines, names


@dataclass(frozen=True, slots=True)
class Extras:
    """All of them; what is absent changes nothing."""

    lengths: CacheLengths | None = None
    is_limited: bool = False
    """Whether keys behind a sequence's last token are left out."""
    rotation: Rotation | None = None
    """Of the queries."""
    sink: Strided | float | None = None
    """(heads,) logits that take part in each softmax but have no value; a number for all of them."""
    softcap: float = 0.0
    """Scores become softcap * tanh(scores / softcap) before biases are added; 0 leaves them."""

    def defines(self, parameters: Parameters) -> tuple[Defines, dict[str, str]]:
        """(macros, names for the text)."""
        defines: Defines = {}
        names = {"cosines": "", "sines": "", "CT": ""}
        if self.lengths is not None:
            defines |= self.lengths.defines(parameters)
            if self.is_limited:
                defines["LIMIT"] = "TOTAL(b)"
        if self.rotation is not None:
            more, names = self.rotation.defines(parameters)
            defines |= more
        if isinstance(self.sink, Strided):
            name, storage = parameters.memory(self.sink.held, self.sink.element_type), STORAGE[self.sink.element_type]
            defines["SINK"] = f"get_{storage}({name}[h])"
        elif self.sink is not None:
            defines["SINK"] = f"{float(self.sink)}f"
        if self.softcap > 0:
            defines["SOFTCAP"] = f"{float(self.softcap)!r}f"
        return defines, names
