"""A registry of kernels for a device: the shared operators over its arrays, each bound by capturing what it launches."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection
from typing import Any

from ort_sdk.api import KernelCreateInfo, KernelInfo, KernelRegistry, OrtMemType
from ort_sdk.device.context import DeviceContext
from ort_sdk.device.namespace.device_namespace import DeviceNamespace
from ort_sdk.opset import add_opset

from .kernel import DeviceKernel
from .overrides import DECLINED, LEFT_ON_DEVICE, OVERWRITING, TAKEN_ON_DEVICE, overridden

__all__ = ["device_registry"]


def device_registry(provider_name: str, context: DeviceContext, *, exclude: Collection[str] = ()) -> KernelRegistry:
    """The operator set on a device.

    Args:
        provider_name: of the execution provider.
        context: of the device.
        exclude: op types that are left to other providers.
    """
    registry = KernelRegistry(provider_name)
    namespace = DeviceNamespace(context)
    wrapped = _Wrapping(registry, namespace)
    add_opset(wrapped, namespace, exclude=exclude)  # type: ignore[arg-type]
    return registry


class _Wrapping:
    """Takes the operator set's sources and hands them on with kernels that can be captured."""

    def __init__(self, registry: KernelRegistry, namespace: DeviceNamespace) -> None:
        self._registry, self._namespace = registry, namespace

    def add_source(self, source: Any, operators: Any) -> None:
        # the registry keeps what it is given, which therefore must not refer to it
        namespace = self._namespace

        def captured(domain: str, op_type: str) -> list[KernelCreateInfo]:
            rows = [_on_device(row) for row in source(domain, op_type)]
            return [KernelCreateInfo(row.kernel_def, _factory(row, namespace)) for row in rows]

        self._registry.add_source(captured, operators)


def _factory(row: KernelCreateInfo, namespace: DeviceNamespace) -> Callable[[KernelInfo], DeviceKernel]:
    takes_host, host_outputs = row.kernel_def.input_on_host, bool(row.kernel_def.output_memory_types)

    def factory(info: KernelInfo) -> DeviceKernel:
        kernel = row.create(info)
        shared: Any = getattr(kernel, "compute", kernel)
        compute = overridden(info, namespace, shared)
        made = DeviceKernel(compute, namespace.context, kernel, takes_host, host_outputs=host_outputs)
        made.in_place = OVERWRITING.get((info.domain, info.op_type), ())
        return made

    return factory


def _on_device(row: KernelCreateInfo) -> KernelCreateInfo:
    """A kernel's definition, with the values on the device that the device's own function has there, and what it declines."""
    definition = row.kernel_def
    operator = (definition.domain, definition.op_type)
    taken, declined = TAKEN_ON_DEVICE.get(operator), DECLINED.get(operator)
    if taken:
        places = {**definition.input_memory_types, **dict.fromkeys(taken, OrtMemType.DEFAULT)}
        definition = dataclasses.replace(definition, input_memory_types=places)
    if operator in LEFT_ON_DEVICE:
        definition = dataclasses.replace(definition, output_memory_types={})
    if declined is not None:
        definition = dataclasses.replace(definition, when=declined)
    return KernelCreateInfo(definition, row.create)
