"""The outlines of the arrays of devices in one trace: drawn when a step has made them, so that the arrays can go."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from ort_sdk.api import Array, ExecutionProvider, InvalidArgument, TensorElementType, element_type_of
from ort_sdk.api.foreign_errors import raise_foreign
from ort_sdk.memory.provider_memory import bytes_of, described
from ort_sdk.plan import ABSENT, Step
from ort_sdk.run.program.device_outline import DeviceOutline
from ort_sdk.run.types import BindingProvider

__all__ = ["DeviceOutlines"]


class DeviceOutlines:
    """Outlines by value.

    Args:
        providers: provider name → what binding needs: arrays of others have no outlines, since their steps are not bound.
    """

    def __init__(self, providers: Mapping[str, BindingProvider] = MappingProxyType({})) -> None:
        self._providers = {name: each.execution_provider for name, each in providers.items()}
        self._of: dict[int, DeviceOutline] = {}

    def draw(self, step: Step, inputs: Sequence[int], outputs: Sequence[int], values: Sequence[Any]) -> None:
        """Draw the outlines of what a step just made.

        Args:
            step: it.
            inputs: the numbers of what it read.
            outputs: the numbers of what it made.
            values: by number.
        """
        for own, index in enumerate(outputs):
            value = values[index]
            if step.outputs[own] == ABSENT or isinstance(value, np.ndarray) or not hasattr(value, "shape"):
                continue
            element_type, shape = self._described(step, value)
            if element_type is TensorElementType.UNDEFINED:
                continue
            shared = self._shared(step, own, inputs, value, values)
            self._of[index] = DeviceOutline(shape, element_type, value.dtype, bytes_of(shape, element_type), shared)

    def of(self, index: int) -> DeviceOutline | None:
        """The outline of a value; None if it has none."""
        return self._of.get(index)

    def items(self) -> Iterable[tuple[int, DeviceOutline]]:
        """The number and the outline of each value that has one."""
        return self._of.items()

    def forget_from(self, index: int) -> None:
        """Forget the values of this number and above."""
        for number in [number for number in self._of if number >= index]:
            del self._of[number]

    def _described(self, step: Step, value: Array) -> tuple[TensorElementType, tuple[int, ...]]:
        """Element type and shape of what a provider's step made, or a copy; an undefined type if nobody here knows them."""
        provider = self._providers.get(step.provider)
        # what a step of the host hands on, as an If does, is of another provider
        if provider is not None and not provider.device.is_cpu:
            return described(provider, value)
        try:
            return TensorElementType.UNDEFINED if step.provider else element_type_of(value), tuple(value.shape)
        except (AttributeError, InvalidArgument, TypeError):  # of a library whose dtypes are not NumPy's, among others
            return TensorElementType.UNDEFINED, ()

    def _shared(self, step: Step, own: int, inputs: Sequence[int], value: Array, values: Sequence[Any]) -> frozenset[int]:
        """What an output may share memory with: inputs, and what those do."""
        sees = _sharing(self._providers.get(step.provider), step, own)
        shared: set[int] = set()
        for number, source in enumerate(inputs):
            if values[source] is not None and sees(number, values[source], value):
                outline = self._of.get(source)
                shared |= {source} if outline is None else {source, *outline.shares}
        return frozenset(shared)


def _sharing(provider: ExecutionProvider | None, step: Step, own: int) -> Callable[[int, Array, Array], bool]:
    """Says of an input, by its position, whether an output may share its memory."""
    declared = step.aliases
    if provider is None or type(provider).shares_memory is ExecutionProvider.shares_memory:
        return lambda number, _source, _target: declared is None or (number, own) in declared

    def are_seen_to_share(number: int, source: Array, target: Array) -> bool:
        if declared is not None and (number, own) in declared:
            return True
        if isinstance(source, np.ndarray):
            return declared is None
        try:
            return bool(provider.shares_memory(source, target))
        except Exception as error:  # noqa: BLE001 - a provider may raise anything
            raise_foreign(error, f"raised in shares_memory of {provider.name}")

    return are_seen_to_share
