"""GEMM by a large constant and an activation that no epilogue has: two tasks in a program."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ort_sdk.api import KernelInfo, TensorElementType, tensor_type
from ort_sdk.api.step_expansion import ExpandingProgram
from ort_sdk_cpu.kernel.writer import MakeWriter
from ort_sdk_cpu.memory.result_pool import ResultAllocator

from .constant_b import ConstantBGemm
from .epilogue import Epilogue

__all__ = ["GemmAndActivation", "expands_to_steps"]

_PREFIX = "activation_"
_OWN = frozenset({"activation", "activation_alpha", "activation_beta", "activation_gamma"})


def expands_to_steps(info: KernelInfo, epilogue: Epilogue) -> bool:
    """Whether all that is left behind a FusedGemm's GEMM is an activation."""
    has_addend = info.has_input(2) and epilogue.bias is None
    return (
        info.op_type == "FusedGemm" and epilogue.finish is not None and not has_addend and bool(info.attribute("activation", ""))
    )


class GemmAndActivation(ConstantBGemm):
    """FusedGemm whose activation NumPy computes where steps are run one by one.

    Args:
        kernel: what is known of the node, like the others of ``ConstantBGemm``.
        make_writer: the shared set's.
        info: the node.
        transposed: whether B is (N, K).
        epilogue: what follows.
    """

    def __init__(self, kernel: Any, make_writer: MakeWriter, info: KernelInfo, *, transposed: bool, epilogue: Epilogue) -> None:
        super().__init__(kernel, make_writer, info, transposed=transposed, epilogue=epilogue)
        self._provider, self._attributes = info.execution_provider, info.attributes

    def expand(self, program: ExpandingProgram, inputs: Sequence[int]) -> list[int] | None:
        """Gemm, and the activation as a node of its own."""
        if self._epilogue.finish is None or self._provider is None:
            return None
        op_type, parameters = str(self._attributes["activation"]), self._parameters()
        kernel = self._provider.step_kernel(op_type, [tensor_type(TensorElementType.FLOAT)], parameters)
        attributes = {name: value for name, value in self._attributes.items() if name not in _OWN}
        gemm = program.launch("Gemm", self._without_activation(), inputs, attributes)
        return [program.launch(op_type, kernel, [gemm], parameters)]

    def _parameters(self) -> Mapping[str, Any]:
        names = _OWN & self._attributes.keys() - {"activation"}
        return {name.removeprefix(_PREFIX): self._attributes[name] for name in sorted(names)}

    def _without_activation(self) -> GemmAndActivation:
        made = copy.copy(self)
        made._epilogue, made._results = replace(self._epilogue, finish=None), ResultAllocator()
        return made
