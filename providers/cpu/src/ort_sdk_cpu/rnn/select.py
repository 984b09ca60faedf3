"""Which algorithm computes a recurrent layer, and how many threads share it: the one place with all thresholds of the family.

Kernels report the algorithm that they used last. Thresholds without figures balance the two costs that they name.
"""

from __future__ import annotations

import enum
from collections.abc import Callable

from ort_sdk.api.data_classes import dataclass
from ort_sdk_cpu.platform import libraries
from ort_sdk_cpu.platform.cpu_features import InstructionSet, instruction_set

__all__ = [
    "MIN_WORK",
    "LayerSizes",
    "RecurrentAlgorithm",
    "RecurrentProblem",
    "is_worth_int24",
    "select",
]


class RecurrentAlgorithm(enum.StrEnum):
    """How a recurrent layer is computed."""

    PANELS = "panels"
    """A task per direction over panels of float32 (``compiled.layer``)."""
    PANELS_INT24 = "panels_int24"
    """The same over recurrent weights as 24-bit fixed point (``compiled.layer_int24``)."""
    PANELS_INT8 = "panels_int8"
    """The same over int8 weights, with quantized inputs and states (``compiled.layer_int8``)."""
    NUMPY_STEPS = "numpy_steps"
    """Step by step by NumPy, on buffers that are kept (``numpy_steps``)."""
    OPSET = "opset"
    """The shared set's: for sequences without steps, and activations of small layers."""


# Below, NumPy's steps take less time than loading the task once.
MIN_WORK = 1 << 14
"""Recurrent weights times steps from which a task is worth loading, or compiling."""
MIN_INT24_BYTES = 3 << 20
"""Of a direction's recurrent weights as float32 from which reading them takes longer than unpacking 24 bits: more than the
second-level cache of a core holds (1 to 2 MiB)."""
INT24_GROUP = 4
"""Weights that are packed together."""
MAX_INPUT_ROWS = 8
"""Rows of inputs up to which the task multiplies them by their weights, which it reads in place: a GEMM would pack the weights
first, which pays from some rows on."""
# A barrier is met after each step: with 256 units a thread's half of LSTM's weights is 512 KiB, which takes longer to read
# than the barrier to meet. Below, directions are independent, and need no barrier.
TEAM_UNITS = 256
"""Hidden units from which a step of one sample is worth several threads, which meet after it."""
MIN_TEAM_UNITS = 32
"""Hidden units below which there is nothing to share, however many samples there are: two vectors."""
MIN_CONCURRENT_WORK = 1 << 17
"""Multiplications of a direction with recurrent weights from which it is worth waking a thread for it."""


@dataclass(frozen=True, slots=True)
class RecurrentProblem:
    """What the choice depends on."""

    steps: int
    directions: int
    weights: int
    """Recurrent ones of a direction."""
    is_compiled: bool
    """Whether all is float32 (but for lengths), shapes are those of the operator, and tasks can be used here."""
    is_packed: bool = False
    """Whether the host has packed the weights: only tasks read them as they are."""
    is_int24: bool = False
    """Whether they are packed as 24 bits."""
    has_own_activations: bool = True
    """Whether activations are the operator's own; NumPy's steps have no others."""


def select(problem: RecurrentProblem, is_loaded: Callable[[], bool]) -> RecurrentAlgorithm:
    """The algorithm of a layer.

    Args:
        problem: of the node.
        is_loaded: whether its task costs nothing to have.
    """
    # Packed weights are panels: unpacking them for NumPy would take longer than loading a task.
    is_large = problem.is_packed or problem.steps * problem.directions * problem.weights >= MIN_WORK
    if problem.steps and problem.is_compiled and (is_large or is_loaded()):
        return RecurrentAlgorithm.PANELS_INT24 if problem.is_int24 else RecurrentAlgorithm.PANELS
    return RecurrentAlgorithm.NUMPY_STEPS if problem.steps and problem.has_own_activations else RecurrentAlgorithm.OPSET


def is_worth_int24(shape: tuple[int, ...], gates_together: tuple[int, ...]) -> bool:
    """Whether recurrent weights are to be packed as 24 bits, if their spread allows it (see ``packing_int24``).

    Args:
        shape: (directions, gates * hidden, hidden).
        gates_together: gates of a panel, for all panels in turn; an RNN has one, and stays float32.
    """
    _, rows, hidden = shape
    is_large = rows * hidden * 4 >= MIN_INT24_BYTES and sum(gates_together) > 1
    return is_large and hidden % INT24_GROUP == 0 and instruction_set() >= InstructionSet.AVX512


@dataclass(frozen=True, slots=True)
class LayerSizes:
    """Sizes of one direction."""

    steps: int
    batch: int
    inputs: int
    hidden: int
    gates: int
    """4 for LSTM, 3 for GRU, 1 for RNN."""
    directions: int = 1
    """Of the layer."""
    is_quantized: bool = False
    """Whether weights are int8, of which four are multiplied at a time."""

    @property
    def _work_units(self) -> int:
        """Hidden units of a layer of float32 whose steps take as long."""
        return self.hidden // 2 if self.is_quantized else self.hidden

    @property
    def multiplies_inputs(self) -> bool:
        """Whether the task itself multiplies inputs by their weights; else a GEMM does before it."""
        return self.steps * self.batch <= MAX_INPUT_ROWS

    @property
    def is_of_team(self) -> bool:
        """Whether several threads share each step, and meet after it."""
        if libraries.thread_count() < 2 or not libraries.has_openmp():
            return False
        # Samples make a step longer as units do, but the barrier stays one: few units are worth a team with many samples.
        is_large = self.batch * self._work_units**2 >= TEAM_UNITS**2 and self.hidden >= MIN_TEAM_UNITS
        return self._work_units >= TEAM_UNITS or (is_large and libraries.thread_count() > self.directions)

    @property
    def are_concurrent(self) -> bool:
        """Whether each direction has a thread of its own, which waits for nobody."""
        if self.directions < 2 or self.is_of_team or libraries.thread_count() < 2 or not libraries.has_openmp():
            return False
        return self.steps * self.batch * self.gates * self._work_units**2 >= MIN_CONCURRENT_WORK
