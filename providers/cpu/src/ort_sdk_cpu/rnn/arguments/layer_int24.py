"""Arguments of one direction of an LSTM or GRU layer over recurrent weights of 24 bits."""

from __future__ import annotations

from ort_sdk_cpu.jit.extents.sizes import VECTOR

from .layer import Gru, GruResetFirst, Lstm

__all__ = ["MODULE", "GruInt24", "GruResetFirstInt24", "LstmInt24"]

MODULE = "rnn.layer_int24"
_PACKED_BYTES = 48
"""Of 16 weights."""


def _unit_bytes(hidden: int) -> int:
    """Of a panel for each gate: scales, and weights."""
    return VECTOR + hidden * _PACKED_BYTES


class LstmInt24(Lstm, module=MODULE, tasks=("lstm", "lstm_team")):
    """As ``Lstm``."""

    def _unit_bytes(self) -> int:
        return _unit_bytes(self.hidden)


class GruInt24(Gru, module=MODULE, tasks=("gru", "gru_team")):
    """As ``Gru``."""

    def _unit_bytes(self) -> int:
        return _unit_bytes(self.hidden)


class GruResetFirstInt24(GruResetFirst, module=MODULE, tasks=("gru_reset_first", "gru_reset_first_team")):
    """As ``GruResetFirst``."""

    def _unit_bytes(self) -> int:
        return _unit_bytes(self.hidden)
