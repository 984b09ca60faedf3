"""What a primitive does beside its own operation: post-ops on its result, scales and zero points."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ort_sdk.api.data_classes import dataclass

from .constants import USER_SCRATCHPAD
from .library import OneDnn, check, library
from .memory_descriptor import described
from .post_ops import Eltwise, PostOp, Sum

__all__ = ["PrimitiveAttributes"]


@dataclass(frozen=True, slots=True)
class PrimitiveAttributes:
    """``dnnl_primitive_attr_t``. Scales and zero points are given at execution; here is only which arguments have some."""

    post_ops: tuple[PostOp, ...] = ()
    """Applied in order."""
    scales: tuple[tuple[int, int], ...] = ()
    """(argument, mask): bit ``d`` of the mask is set if scales differ along axis ``d``; float32."""
    zero_points: tuple[tuple[int, int], ...] = ()
    """The same; int32."""

    @contextmanager
    def handle(self) -> Iterator[Any]:
        """The library's object, for as long as the block lasts. Workspace is the caller's to give."""
        onednn = library()
        functions = onednn.functions
        attributes = onednn.new_handle("creating attributes", functions.dnnl_primitive_attr_create)
        post_ops = onednn.new_handle("creating post-ops", functions.dnnl_post_ops_create)
        try:
            check(functions.dnnl_primitive_attr_set_scratchpad_mode(attributes, USER_SCRATCHPAD), "setting the scratchpad mode")
            for post_op in self.post_ops:
                _append(onednn, post_ops, post_op)
            check(functions.dnnl_primitive_attr_set_post_ops(attributes, post_ops), "setting post-ops")
            for argument, mask in self.scales:
                check(functions.dnnl_primitive_attr_set_scales_mask(attributes, argument, mask), "setting scales")
            for argument, mask in self.zero_points:
                check(functions.dnnl_primitive_attr_set_zero_points_mask(attributes, argument, mask), "setting zero points")
            yield attributes
        finally:
            functions.dnnl_post_ops_destroy(post_ops)
            functions.dnnl_primitive_attr_destroy(attributes)


def _append(onednn: OneDnn, post_ops: Any, post_op: PostOp) -> None:
    functions = onednn.functions
    if isinstance(post_op, Eltwise):
        status = functions.dnnl_post_ops_append_eltwise(post_ops, post_op.algorithm, post_op.alpha, post_op.beta)
    elif isinstance(post_op, Sum):
        status = functions.dnnl_post_ops_append_sum(post_ops, post_op.scale, 0, 0)
    else:
        status = functions.dnnl_post_ops_append_binary(post_ops, post_op.algorithm, described(post_op.operand).handle)
    check(status, f"adding {post_op}")
