"""One direction of an LSTM or GRU layer, as ``layer``, over panels of 24-bit fixed-point weights."""

from __future__ import annotations

from ort_sdk_cpu.jit.task_code import task
from ort_sdk_cpu.rnn.arguments.layer_int24 import GruInt24, GruResetFirstInt24, LstmInt24

from .cells import GRU, GRU_RESET_FIRST, LSTM
from .layer import layer
from .panels import add_int24_products, int24_panel
from .steps import no_barrier, team_barrier

__all__ = ["gru", "gru_reset_first", "gru_reset_first_team", "gru_team", "lstm", "lstm_team"]


# Not RNN: its layers stay float32, see ``rnn.select.is_worth_int24``.
@task
def lstm(args: LstmInt24, thread: int, threads: int) -> None:
    """All steps of one direction of LSTM, by one thread."""
    layer(LSTM, int24_panel, add_int24_products, no_barrier, args, thread, threads)


@task
def lstm_team(args: LstmInt24, thread: int, threads: int) -> None:
    """The same by a team of threads."""
    layer(LSTM, int24_panel, add_int24_products, team_barrier, args, thread, threads)


# The same loops as over float32, with another micro-kernel: see ``layer.layer``.
@task
def gru(args: GruInt24, thread: int, threads: int) -> None:
    """All steps of one direction of a GRU that resets after the product, by one thread."""
    layer(GRU, int24_panel, add_int24_products, no_barrier, args, thread, threads)


@task
def gru_team(args: GruInt24, thread: int, threads: int) -> None:
    """The same by a team of threads."""
    layer(GRU, int24_panel, add_int24_products, team_barrier, args, thread, threads)


@task
def gru_reset_first(args: GruResetFirstInt24, thread: int, threads: int) -> None:
    """All steps of one direction of a GRU that resets before the product, by one thread."""
    layer(GRU_RESET_FIRST, int24_panel, add_int24_products, no_barrier, args, thread, threads)


@task
def gru_reset_first_team(args: GruResetFirstInt24, thread: int, threads: int) -> None:
    """The same by a team of threads."""
    layer(GRU_RESET_FIRST, int24_panel, add_int24_products, team_barrier, args, thread, threads)
