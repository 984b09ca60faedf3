"""Support vector machines: scores by a compiled task, votes and probabilities by the shared set."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ort_sdk.api import HostArray, KernelInfo, TensorElementType
from ort_sdk.opset.ml.svm import Coupling, Kernel, Machine, svm_classifier, svm_regressor
from ort_sdk.opset.numpy_namespace import NumpyNamespace
from ort_sdk_cpu import libraries
from ort_sdk_cpu.addresses import address_of

from .direct_kernel import computed_by
from .direct_task import DirectCall
from .scratch import Scratch, scratch_of
from .task_writer import is_worth_a_task, threads_for

__all__: list[str] = []

DOMAIN = "ai.onnx.ml"
MODULE, NAME, COUPLING = "support_vectors", "machine_scores", "class_probabilities"
KINDS = "q" * 11 + "ff"
_LANES = 16
_CODES = {"LINEAR": 0, "POLY": 1, "RBF": 2, "SIGMOID": 3}
SHAPES = 16
"""Shapes of rows whose calls are kept."""
ROUND_WORK = 1 << 6
"""Elements of a few instructions each that a class's probability takes as long as."""
MOST_FACTORS = 8
"""A power's exponent up to which it is a product."""
WORK_PER_THREAD = 1 << 17
"""Products that take some times as long as waking a thread up."""


@computed_by("SVMClassifier", "SVMRegressor", domain=DOMAIN)
def support_vector_machine(info: KernelInfo) -> DirectCall | None:
    """Outputs of rows of float32."""
    if info.input_element_type(0) is not TensorElementType.FLOAT or not libraries.numba().is_usable:
        return None
    machine = (svm_classifier if info.op_type == "SVMClassifier" else svm_regressor)(info, NumpyNamespace())
    kernel = machine.kernel if isinstance(machine, Machine) else None
    if not isinstance(machine, Machine) or not isinstance(kernel, Kernel) or not _is_usual(kernel):
        return None
    couple = None if machine.coupling is None else _coupled_by_task(machine.coupling, scratch_of(info))
    return _call_of(machine, _Task(machine, kernel), scratch_of(info), couple)


class _Task:
    """A machine as its task reads it.

    Args:
        machine: of the node.
        kernel: its kernel. Scores of products are products with the support vectors' weighted sums.
    """

    def __init__(self, machine: Machine, kernel: Kernel) -> None:
        scores = machine.rho.size
        is_linear = kernel.kind == "LINEAR" and scores <= kernel.supports.shape[1]
        vectors = kernel.supports @ machine.weights if is_linear else kernel.supports
        factors = np.eye(scores) if is_linear else machine.weights.T
        self.features, self.scores = len(vectors), scores
        self.filled = -(-vectors.shape[1] // _LANES) * _LANES
        self._supports = np.zeros((self.features, self.filled), np.float32)
        self._weights = np.zeros((scores, self.filled), np.float32)
        self._supports[:, : vectors.shape[1]], self._weights[:, : vectors.shape[1]] = vectors, factors
        self.places = (address_of(self._supports), address_of(self._weights))
        gamma = -kernel.gamma if kernel.kind == "RBF" else kernel.gamma
        self.settings = (_CODES[kernel.kind], max(int(kernel.degree), 1), float(gamma), float(kernel.coef0))

    def work(self, x: HostArray) -> int:
        """Products for rows; 0 for other arrays."""
        fits = x.ndim == 2 and x.shape[1] == self.features
        return len(x) * self.filled * (self.features + self.scores) if fits else 0


class _Plan(NamedTuple):
    """What a call on rows of one shape is made of."""

    function: Callable[..., None]
    threads: int
    room: int
    """Bytes of working memory."""
    sizes: tuple[int, ...]


def _plan(task: _Task, x: HostArray) -> _Plan | None:
    work = task.work(x)
    if not is_worth_a_task(work, MODULE, NAME):
        return None
    from ort_sdk_cpu.machine_code import task_function

    threads = max(1, min(libraries.thread_count(), len(x), work // WORK_PER_THREAD))
    sizes = (len(x), task.features, task.filled, task.scores)
    return _Plan(task_function(MODULE, NAME, KINDS), threads, threads * task.filled * 4, sizes)


def _call_of(
    machine: Machine, task: _Task, scratch: Scratch, couple: Callable[[HostArray], HostArray] | None
) -> Callable[[HostArray], Any]:
    plans: dict[tuple[int, ...], _Plan] = {}

    def call(x: HostArray) -> Any:
        plan = plans.get(x.shape) or _plan(task, x)
        if plan is None or not x.flags.c_contiguous:
            return NotImplemented
        if len(plans) >= SHAPES:
            plans.clear()
        plans[x.shape] = plan
        found = np.empty((len(x), task.scores), np.float32)
        places = (address_of(x), address_of(found), *task.places, scratch.address(MODULE, plan.room))
        plan.function(plan.threads, *places, *plan.sizes, *task.settings)
        sums = found + machine.rho
        return machine.finish(sums) if couple is None else machine.finish(sums, couple(sums))

    return call


def _coupled_by_task(coupling: Coupling, scratch: Scratch) -> Callable[[HostArray], HostArray]:
    """Probabilities (N, classes) of pair scores (N, pairs), float32."""
    numbers = np.stack([coupling.slope, coupling.shift]).astype(np.float32)
    classes, pairs = coupling.classes, coupling.slope.size
    room = 8 * (classes * classes + 2 * classes) + 4 * -(-pairs // _LANES) * _LANES

    @functools.cache  # the code is loaded when it is needed
    def function() -> Callable[..., None]:
        from ort_sdk_cpu.machine_code import task_function

        return task_function(MODULE, COUPLING, "q" * 8)

    def couple(scores: HostArray) -> HostArray:
        out, threads = np.empty((len(scores), classes), np.float32), threads_for(len(scores) * classes * ROUND_WORK)
        x, work = scores.astype(np.float32), scratch.address(COUPLING, threads * room)
        function()(threads, *map(address_of, (x, numbers, out)), work, len(x), pairs, classes, room)
        return out

    return couple


def _is_usual(kernel: Kernel) -> bool:
    """Whether the task computes the kernel."""
    if kernel.kind == "POLY":
        return kernel.degree in range(1, MOST_FACTORS + 1)
    return kernel.kind != "RBF" or bool(kernel.gamma >= 0)
