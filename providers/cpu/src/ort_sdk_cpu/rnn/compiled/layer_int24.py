"""Directions of LSTM and GRU layers, as ``recurrent``, over panels of whole numbers of 24 bits."""

from __future__ import annotations

from ort_sdk_cpu.jit.task import task

from .layer import GRU, GRU_RESET_FIRST, LSTM, direction, go_on, wait
from .panels import add_narrow_products, narrow_panel

__all__ = ["gru", "gru_reset_first", "gru_reset_first_team", "gru_team", "lstm", "lstm_team"]


@task
def lstm(record: int, part: int, parts: int) -> None:
    """All steps of one direction of LSTM, for one part."""
    direction(LSTM, narrow_panel, add_narrow_products, go_on, record, part, parts)


@task
def lstm_team(record: int, part: int, parts: int) -> None:
    """The same for several parts."""
    direction(LSTM, narrow_panel, add_narrow_products, wait, record, part, parts)


@task
def gru(record: int, part: int, parts: int) -> None:
    """All steps of one direction of GRU that resets after the product, for one part."""
    direction(GRU, narrow_panel, add_narrow_products, go_on, record, part, parts)


@task
def gru_team(record: int, part: int, parts: int) -> None:
    """The same for several parts."""
    direction(GRU, narrow_panel, add_narrow_products, wait, record, part, parts)


@task
def gru_reset_first(record: int, part: int, parts: int) -> None:
    """All steps of one direction of GRU that resets before the product, for one part."""
    direction(GRU_RESET_FIRST, narrow_panel, add_narrow_products, go_on, record, part, parts)


@task
def gru_reset_first_team(record: int, part: int, parts: int) -> None:
    """The same for several parts."""
    direction(GRU_RESET_FIRST, narrow_panel, add_narrow_products, wait, record, part, parts)
