"""Support vector machines: scores by a compiled task, votes and probabilities by the shared set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
    (features, vectors), scores = kernel.supports.shape, machine.rho.size
    filled = -(-vectors // _LANES) * _LANES
    supports = np.zeros((features, filled), np.float32)
    weights = np.zeros((scores, filled), np.float32)
    supports[:, :vectors], weights[:, :vectors] = kernel.supports, machine.weights.T
    gamma = -kernel.gamma if kernel.kind == "RBF" else kernel.gamma
    settings = (_CODES[kernel.kind], max(int(kernel.degree), 1), float(gamma), float(kernel.coef0))
    scratch = scratch_of(info)
    couple = None if machine.coupling is None else _coupled_by_task(machine.coupling, scratch)

    def call(x: HostArray) -> Any:
        work = len(x) * filled * (features + scores) if x.ndim == 2 and x.shape[1] == features else 0
        if not x.flags.c_contiguous or not is_worth_a_task(work, MODULE, NAME):
            return NotImplemented
        from ort_sdk_cpu.machine_code import task_function

        found = np.empty((len(x), scores), np.float32)
        threads = max(1, min(libraries.thread_count(), len(x), work // WORK_PER_THREAD))
        places = (*map(address_of, (x, found, supports, weights)), scratch.address(MODULE, threads * filled * 4))
        task_function(MODULE, NAME, KINDS)(threads, *places, len(x), features, filled, scores, *settings)
        sums = found + machine.rho
        return machine.finish(sums) if couple is None else machine.finish(sums, couple(sums))

    return call


def _coupled_by_task(coupling: Coupling, scratch: Scratch) -> Callable[[HostArray], HostArray]:
    """Probabilities (N, classes) of pair scores (N, pairs), float32."""
    numbers = np.stack([coupling.slope, coupling.shift]).astype(np.float32)
    classes, pairs = coupling.classes, coupling.slope.size
    room = 8 * (classes * classes + 2 * classes) + 4 * -(-pairs // _LANES) * _LANES

    def couple(scores: HostArray) -> HostArray:
        from ort_sdk_cpu.machine_code import task_function

        out, threads = np.empty((len(scores), classes), np.float32), threads_for(len(scores) * classes * ROUND_WORK)
        x, work = scores.astype(np.float32), scratch.address(COUPLING, threads * room)
        task_function(MODULE, COUPLING, "q" * 8)(threads, *map(address_of, (x, numbers, out)), work, len(x), pairs, classes, room)
        return out

    return couple


def _is_usual(kernel: Kernel) -> bool:
    """Whether the task computes the kernel."""
    if kernel.kind == "POLY":
        return kernel.degree in range(1, MOST_FACTORS + 1)
    return kernel.kind != "RBF" or bool(kernel.gamma >= 0)
