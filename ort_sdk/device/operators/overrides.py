"""Operators that a device computes with kernels of its own, in the place of the shared set's functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ort_sdk.api import Compute, KernelInfo, KernelPredicate
from ort_sdk.device.attention.group_query import IN_PLACE, group_query_attention
from ort_sdk.device.boxes.suppression import non_max_suppression
from ort_sdk.device.namespace.device_namespace import DeviceNamespace, Override
from ort_sdk.device.products.overrides import PRODUCT_OVERRIDES
from ort_sdk.device.recurrent.overrides import RECURRENT_OVERRIDES
from ort_sdk.device.rows.operators import ROW_OVERRIDES
from ort_sdk.opset.definition import input_rule

__all__ = ["DECLINED", "LEFT_ON_DEVICE", "OVERRIDES", "OVERWRITING", "TAKEN_ON_DEVICE", "Override", "overridden"]

_GROUP_QUERY = ("com.microsoft", "GroupQueryAttention")
_SUPPRESSION = ("", "NonMaxSuppression")

OVERRIDES: Mapping[tuple[str, str], Override] = {
    **ROW_OVERRIDES,
    **PRODUCT_OVERRIDES,
    **RECURRENT_OVERRIDES,
    _GROUP_QUERY: group_query_attention,
    _SUPPRESSION: non_max_suppression,
}
"""(domain, op_type) → what makes its function."""

TAKEN_ON_DEVICE: Mapping[tuple[str, str], frozenset[int]] = {_GROUP_QUERY: frozenset({5}), _SUPPRESSION: frozenset({0, 1})}
"""(domain, op_type) → inputs that its function takes on the device, though the shared one reads them on the host."""

LEFT_ON_DEVICE: frozenset[tuple[str, str]] = frozenset({_SUPPRESSION})
"""(domain, op_type) of which the function leaves all outputs on the device, though the shared one leaves them on the host."""

OVERWRITING: Mapping[tuple[str, str], tuple[tuple[int, int], ...]] = {_GROUP_QUERY: IN_PLACE}
"""(domain, op_type) → pairs of an input and an output that may be in its memory: see ``OpKernel.in_place``."""


def _inverse_transform(info: KernelInfo) -> str | None:
    # ONNX's expected values have the rounding of NumPy's transforms in complex64, of some 1e-6; forward ones do not.
    return "inverse transforms are left to the host" if info.attribute("inverse", 0) else None


DECLINED: Mapping[tuple[str, str], KernelPredicate] = {("", "DFT"): _inverse_transform}
"""(domain, op_type) → predicate of nodes that devices leave to other providers, for operators that have none of their own."""


def overridden(info: KernelInfo, namespace: DeviceNamespace, shared: Compute) -> Compute:
    """A node's function: the device's own behind the operator's rule for shapes, or else the shared one.

    Args:
        info: the node.
        namespace: of the device.
        shared: the operator set's function.
    """
    taken = TAKEN_ON_DEVICE.get((info.domain, info.op_type))
    if taken:
        shared = _downloading(shared, taken, namespace)
    override = OVERRIDES.get((info.domain, info.op_type))
    compute = None if override is None else override(info, namespace, shared)
    if compute is None:
        return shared
    rule = input_rule(info)
    return compute if rule is None else _checked(compute, rule.check)


def _checked(compute: Compute, check: Callable[..., None]) -> Compute:
    def run(*inputs: Any) -> Any:
        check(inputs)
        return compute(*inputs)

    # what a kernel declares, beside computing
    for ability in ("bounded_input", "bounds"):
        if hasattr(compute, ability):
            setattr(run, ability, getattr(compute, ability))
    return run


def _downloading(shared: Compute, positions: frozenset[int], namespace: DeviceNamespace) -> Compute:
    """The shared function, with inputs that it reads on the host brought there."""

    def run(*inputs: Any) -> Any:
        given = list(inputs)
        for position in positions:
            given[position] = namespace.to_host(given[position])
        return shared(*given)

    return run
