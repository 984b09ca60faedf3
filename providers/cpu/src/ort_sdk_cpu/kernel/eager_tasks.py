"""Tasks called straight on a run's arrays, with as little between as can be: for shapes that were never seen before.

A family's module ``eager`` has a maker for each of its operators: from a node it makes ``call(*inputs)``, which returns the
node's outputs, or ``NotImplemented`` for arrays the task is not for. Types are the node's, so only what may change from run to
run is looked at. The module is imported when a node of the operator first meets such a shape.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any

from ort_sdk.api import HostArray, KernelInfo, TensorElementType
from ort_sdk_cpu.platform import libraries

from .bound import MakeWriter
from .eager import EAGER_MODULES
from .task_writer import MIN_ELEMENTS, is_worth_a_task

if TYPE_CHECKING:
    from ort_sdk_cpu.jit.task import TaskFunction

__all__ = ["EagerCall", "EagerTask", "eager_call", "eager_call_of", "is_vector"]

EagerCall = Callable[..., Any]
EagerMaker = Callable[[KernelInfo, MakeWriter], EagerCall | None]

_FLOATS = frozenset({TensorElementType.FLOAT})
_MAKERS: dict[tuple[str, str], tuple[EagerMaker, Sequence[int]]] = {}
"""(domain, operator) → its maker, and the inputs that need not be of float32."""


def eager_call(*op_types: str, domain: str = "", integer_inputs: Sequence[int] = ()) -> Callable[[EagerMaker], EagerMaker]:
    """Decorator of makers.

    Args:
        op_types: operators whose nodes it makes calls of.
        domain: theirs.
        integer_inputs: inputs that need not be of float32, such as masks and lengths.
    """

    def declare(maker: EagerMaker) -> EagerMaker:
        for op_type in op_types:
            _MAKERS[domain, op_type] = maker, integer_inputs
        return maker

    return declare


def eager_call_of(info: KernelInfo, make_writer: MakeWriter) -> EagerCall | None:
    """The node's task as a call on a run's arrays; None if it has none, or not for these types and outputs.

    Args:
        info: the node.
        make_writer: makes its writer.
    """
    key = (info.domain, info.op_type)
    module = EAGER_MODULES.get(key)
    if module is None or not libraries.numba().is_usable:
        return None
    importlib.import_module(module)
    maker, integer_inputs = _MAKERS[key]
    return maker(info, make_writer) if _types_beside(info, integer_inputs) == _FLOATS else None


def _types_beside(info: KernelInfo, integer_inputs: Sequence[int]) -> AbstractSet[TensorElementType | None]:
    """Element types of outputs, and of inputs but for some."""
    if not integer_inputs:
        return info.element_types()
    inputs = [argument for index, argument in enumerate(info.inputs) if index not in integer_inputs]
    return {argument.element_type for argument in (*inputs, *info.outputs) if argument is not None}


class EagerTask:
    """A task, which is loaded when it is first wanted.

    Args:
        module: see ``TaskFunction``.
        name: see there.
    """

    def __init__(self, module: str, name: str) -> None:
        self._names = (module, name)
        self._function: TaskFunction | None = None

    def __call__(self) -> TaskFunction:
        if self._function is None:
            from ort_sdk_cpu.jit.task import task_function

            self._function = task_function(*self._names)
        return self._function

    def pays(self, size: int) -> bool:
        """Whether it is worth loading for so many elements, or there already."""
        return size >= MIN_ELEMENTS or (size > 0 and (self._function is not None or self._is_kept))

    @functools.cached_property
    def _is_kept(self) -> bool:
        return is_worth_a_task(MIN_ELEMENTS - 1, *self._names)


def is_vector(array: HostArray | None, width: int) -> bool:
    """Whether an array, if there is one, is a contiguous vector of so many elements."""
    return array is None or (array.shape == (width,) and array.flags.c_contiguous)
