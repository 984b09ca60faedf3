"""Enumerations of session options, which every session needs: others are made when they are used."""

from __future__ import annotations

from enum import Enum, IntEnum

__all__ = ["ExecutionMode", "ExecutionOrder", "GraphOptimizationLevel", "NamedNumber", "OrtExecutionProviderDevicePolicy"]


class NamedNumber(IntEnum):
    """A number that prints as its class and name, as in ONNX Runtime."""

    __str__ = Enum.__str__
    __format__ = Enum.__format__


class GraphOptimizationLevel(NamedNumber):
    """How far the optimizer goes."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(NamedNumber):
    """Whether independent nodes may run at the same time."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(NamedNumber):
    """Which topological order is taken."""

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


class OrtExecutionProviderDevicePolicy(NamedNumber):
    """How devices are chosen when no provider is named."""

    DEFAULT = 0
    PREFER_CPU = 1
    PREFER_NPU = 2
    PREFER_GPU = 3
    MAX_PERFORMANCE = 4
    MAX_EFFICIENCY = 5
    MIN_OVERALL_POWER = 6
