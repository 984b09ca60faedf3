"""What the values of operators' integer attributes may be: one table, looked at before anything computes with them.

A name has one rule for all operators (``COMMON``) unless an operator gives it another meaning (``SPECIAL``). An attribute
whose every value is safe is ``free``, with the reason. Kernels still compare attributes with the shapes of their inputs.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import InvalidGraph, TensorElementType, schema_versions
from ort_sdk.api.data_classes import dataclass
from ort_sdk.api.long_lists import NumberList

from .node import Node

__all__ = ["MAX_EXTENT", "Rule", "check_node_attributes", "rule_for"]

MAX_EXTENT = 2**31 - 1
"""Largest size, stride, dilation or count in an attribute: sums of products of two stay below 2**63 everywhere."""
MAX_PAIRS = 2**20
"""Most pairs of features of one head; tables of them are made with the kernel."""
MAX_AXES = 64
"""NumPy's and the array libraries' largest rank."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What an integer, or each of a list of integers, may be.

    Args:
        low: smallest value.
        high: largest value.
        allowed: the only values; None for all in range.
        power_of_two: whether values must be powers of two.
        free: why any value is right; empty where ``low`` and ``high`` bound it.
        problem: what an error says between the attribute's name and its value.
    """

    low: int = -(2**63)
    high: int = 2**63 - 1
    allowed: frozenset[int] | None = None
    power_of_two: bool = False
    free: str = ""
    problem: str = "is"

    @property
    def is_narrow(self) -> bool:
        """Whether not all in range are allowed."""
        return self.allowed is not None or self.power_of_two

    def accepts(self, value: int) -> bool:
        """Whether the value is allowed."""
        if self.allowed is not None:
            return value in self.allowed
        return self.low <= value <= self.high and not (self.power_of_two and value & (value - 1))

    def __str__(self) -> str:
        if self.allowed is not None:
            return f"one of {sorted(self.allowed)}"
        return f"{'a power of two ' if self.power_of_two else ''}from {self.low} to {self.high}"

    def fault(self, value: object) -> str:
        """What is wrong with a value, and what is allowed."""
        return f"{self.problem} {value}; it must be {self}"


def _free(reason: str) -> Rule:
    return Rule(free=reason)


def _one_of(*values: int) -> Rule:
    return Rule(allowed=frozenset(values))


POSITIVE = Rule(1, MAX_EXTENT)
NOT_NEGATIVE = Rule(0, MAX_EXTENT)
SIGNED = Rule(-MAX_EXTENT, MAX_EXTENT)
MINUS_ONE_OR_MORE = Rule(-1, MAX_EXTENT)
SIZE = Rule(0)
"""A size of a tensor, which ``opset.sizes`` checks together with the others."""
AXIS = Rule(-MAX_AXES, MAX_AXES)
BINARY = _one_of(0, 1)
ELEMENT_TYPE = Rule(allowed=frozenset(int(each) for each in TensorElementType), problem="does not specify a valid type:")
FLAG = _free("not 0 means yes")
LABEL = _free("a value that is copied or compared, never computed with")
TREE = _free("indices of nodes, which the tree's reader checks against one another")

COMMON: dict[str, Rule] = {
    **dict.fromkeys(("kernel_shape", "strides", "dilations", "dilation", "group", "offset_group", "pooled_shape"), POSITIVE),
    **dict.fromkeys(("blocksize", "size", "step", "K", "N", "Nq", "Nkv", "num_groups", "groups", "hidden_size", "p"), POSITIVE),
    **dict.fromkeys(("output_height", "output_width"), POSITIVE),
    **dict.fromkeys(("output_shape", "num_outputs", "signal_ndim", "sparse_block_size", "window", "max_map"), POSITIVE),
    **dict.fromkeys(("sample_size", "chunk_size", "v_head_size", "mincharnum", "max_distance"), POSITIVE),
    **dict.fromkeys(("ngram_size", "min_ngram_size", "max_ngram_size", "n_head_per_ngram"), POSITIVE),
    **dict.fromkeys(("embedding_size", "conv_window_size", "char_embedding_size", "targets", "n_targets"), POSITIVE),
    **dict.fromkeys(("compress_ratio", "index_topk", "token_budget", "state_capacity", "num_branches"), NOT_NEGATIVE),
    **dict.fromkeys(("pads", "output_padding", "block_size", "num_heads", "kv_num_heads", "q_num_heads"), NOT_NEGATIVE),
    **dict.fromkeys(("sampling_ratio", "batch_dims", "qkv_hidden_sizes"), NOT_NEGATIVE),
    **dict.fromkeys(("rotary_embedding_dim", "rotary_offset", "state_window", "k", "split"), NOT_NEGATIVE),
    **dict.fromkeys(("state_update_capacity", "no_repeat_ngram_size", "min_tokens_to_keep", "max_size"), NOT_NEGATIVE),
    **dict.fromkeys(("min_gram_length", "max_gram_length", "max_skip_count", "ngram_counts", "ngram_indexes"), NOT_NEGATIVE),
    **dict.fromkeys(("inputdimensions", "vectors_per_class", "n_supports"), NOT_NEGATIVE),
    **dict.fromkeys(("local_window_size", "left_window_size", "right_window_size", "vocab_size"), MINUS_ONE_OR_MORE),
    **dict.fromkeys(("axis", "axes", "perm", "batch_axis", "time_axis", "gather_axis", "quantize_axis", "dim"), AXIS),
    **dict.fromkeys(("scan_input_axes", "scan_output_axes", "activation_axis"), AXIS),
    **dict.fromkeys(("to", "dtype", "output_dtype", "output_datatype", "stash_type", "precision"), ELEMENT_TYPE),
    "num_scan_inputs": _free("compared with the inputs of the node and of its body"),
    "softmax_precision": ELEMENT_TYPE,
    "bits": _one_of(2, 4, 8),
    "mrope_section": Rule(0, MAX_PAIRS),
    **dict.fromkeys(("directions", "scan_input_directions", "scan_output_directions", "storage_order", "layout"), BINARY),
    "center_point_box": BINARY,
    "paddings": _free("negative ones cut; the kernel checks the sizes that result"),
    **dict.fromkeys(
        ("starts", "ends", "start", "end", "shape"), _free("clamped to, or compared with, the sizes of the input, in Python")
    ),
    **dict.fromkeys(
        (
            *("transA", "transB", "transBatchA", "transBatchB", "keepdims", "noop_with_empty_axes", "exclusive", "reverse"),
            *("is_test", "spatial", "training_mode", "broadcast", "periodic", "align_corners", "count_include_pad", "ceil_mode"),
            *("saturate", "select_last_index", "output_sequence", "linear_before_reset", "input_forget", "interleaved"),
            *("detect_negative", "detect_positive", "fmod", "inverse", "onesided", "is_causal", "unidirectional", "upper"),
            *("sorted", "largest", "allowzero", "antialias", "exclude_outside", "across_channels", "normalize_variance"),
            *("new_axis", "is_case_sensitive", "causal", "do_rotary", "rotary_interleaved", "smooth_softmax", "normalized"),
            *("channels_last", "early_stopping", "isinf_only", "isnan_only", "positive", "past_present_share_buffer"),
            *("is_packed_batching", "is_bidirectional", "mark", "custom", "normalize_routing_weights", "use_sparse_mixer"),
            *("zeros", "one_class", "qk_l2_norm", "is_inner_broadcast", "sliding_window_cache", "embed_mode", "main_context"),
            *("weight_prepacked", "weights_prepacked", "auxiliary_kv_shared", "nodes_missing_value_tracks_true", "reset_on_eos"),
            *("decoder_output_cross_qk", "output_qk"),
        ),
        FLAG,
    ),
    **dict.fromkeys(
        (
            *("default_int64", "cats_int64s", "keys_int64s", "values_int64s", "classlabels_ints", "classlabels_int64s"),
            *("int64_vocabulary", "imputed_value_int64s", "replaced_value_int64", "value_int", "value_ints", "pool_int64s"),
            *("pad_id", "pad_token_id", "eos_token_id", "decoder_start_token_id", "beginning_timestamp_token_id"),
            *("no_speech_token_id", "no_timestamps_token_id", "start_of_lm_token_id", "transcribe_token_id"),
            *("translate_token_id", "ignore_index", "opset"),
        ),
        LABEL,
    ),
    **dict.fromkeys(
        (
            *("leaf_targetids", "nodes_falseleafs", "nodes_falsenodeids", "nodes_featureids", "nodes_trueleafs", "tree_roots"),
            *("nodes_truenodeids", "class_ids", "class_nodeids", "class_treeids", "nodes_nodeids", "nodes_treeids"),
            *("target_ids", "target_nodeids", "target_treeids"),
        ),
        TREE,
    ),
    "qk_matmul_output_mode": _one_of(0, 1, 2, 3),
    **dict.fromkeys(("qk_output", "swiglu_fusion", "model_type"), _one_of(0, 1, 2)),
    **dict.fromkeys(("mask_index_type", "mrope_layout", "blk_quant_type", "quant_type", "activation"), BINARY),
    "accuracy_level": _one_of(0, 1, 2, 3, 4),
    "ndim": _one_of(1, 2, 3),
    **dict.fromkeys(
        (
            *("order_input", "order_output", "order_weight", "order_global_weight", "order_X", "order_Y", "order_A", "order_B"),
            *("bfp_type", "multi_class", "aggregate_function", "post_transform"),
        ),
        _free("a choice, of which the kernel knows the values"),
    ),
    **dict.fromkeys(
        ("expert_weight_bits", "fc1_expert_weight_bits", "fc2_expert_weight_bits", "fc3_expert_weight_bits"), _one_of(2, 4, 8)
    ),
    "kv_cache_bit_width": _one_of(0, 4, 8, 16, 32),
    "block_dim": AXIS,
    "seed": _free("any number starts a random sequence"),
    "maxsplit": _free("compared with counts only"),
    "consumed_inputs": _free("has no meaning since opset 6"),
}
"""Attribute → rule, whatever the operator."""

_CONVOLUTION: dict[str, Rule] = {"pads": SIGNED}
"""Negative pads cut the input, as in ONNX Runtime."""
_HEADS: dict[str, Rule] = {"num_heads": POSITIVE}
_GROUPED_HEADS: dict[str, Rule] = {"num_heads": POSITIVE, "kv_num_heads": POSITIVE}
_MOE: dict[str, Rule] = {"k": POSITIVE}
_WEIGHT_BLOCKS: dict[str, Rule] = {"block_size": Rule(16, 256, power_of_two=True)}
MICROSOFT = "com.microsoft"

SPECIAL: Mapping[tuple[str, str], dict[str, Rule]] = {
    **{("", op): _CONVOLUTION for op in ("Conv", "ConvInteger", "QLinearConv")},
    **{(MICROSOFT, op): _CONVOLUTION for op in ("FusedConv", "NhwcConv", "NhwcFusedConv", "QLinearConv")},
    **{
        (MICROSOFT, op): _HEADS
        for op in (
            *("Attention", "QAttention", "PackedAttention", "MultiHeadAttention", "PackedMultiHeadAttention", "DecoderAttention"),
            *("DecoderMaskedMultiHeadAttention", "DecoderMaskedSelfAttention", "GatedRelativePositionBias"),
            *("LongformerAttention", "QOrderedAttention", "QOrderedLongformerAttention"),
        )
    },
    **{
        (MICROSOFT, op): _GROUPED_HEADS
        for op in ("GroupQueryAttention", "SparseAttention", "PagedAttention", "SparsePagedAttention", "DynamicSparseAttention")
    },
    **{(domain, "LinearAttention"): {"q_num_heads": POSITIVE, "kv_num_heads": POSITIVE} for domain in ("", MICROSOFT)},
    **{(MICROSOFT, op): _MOE for op in ("MoE", "QMoE")},
    **{(MICROSOFT, op): _WEIGHT_BLOCKS for op in ("MatMulNBits", "MatMulNBitsMlp", "MatMulNBitsQkv")},
    (MICROSOFT, "MatMulBnb4"): {"block_size": POSITIVE},
    (MICROSOFT, "GatherBlockQuantized"): {"block_size": Rule(0, MAX_EXTENT, power_of_two=True)},
    ("", "Pad"): {"pads": _free("negative ones cut; the kernel checks the sizes that result")},
    ("", "Crop"): {"border": NOT_NEGATIVE, "scale": POSITIVE},
    ("", "EyeLike"): {"k": _free("a diagonal outside the matrix is none")},
    ("", "RandomNormal"): {"shape": SIZE},
    ("", "RandomUniform"): {"shape": SIZE},
    ("", "LpNormalization"): {"p": _one_of(1, 2)},
}
"""(domain, operator) → rules of its own."""

_PER_AXIS = ("kernel_shape", "strides", "dilations", "output_padding")
"""Attributes with one number for each spatial axis."""
_EXPLICIT = ("NOTSET", "")
"""Values of ``auto_pad`` that leave it to ``pads``."""
_LISTS = frozenset({list, tuple})
_NONE: Mapping[str, Rule] = {}
_COMMON_BOUNDED: Mapping[str, Rule] = {name: rule for name, rule in COMMON.items() if not rule.free}


def rule_for(op_type: str, domain: str, name: str) -> Rule | None:
    """Rule of an integer attribute; None if there is none."""
    return SPECIAL.get((domain, op_type), _NONE).get(name) or COMMON.get(name)


def check_node_attributes(node: Node) -> None:
    """Compare the integers among a node's attributes with the rules of its operator, and remember it in the node.

    An operator that the schema table lacks has no rules, nor have attributes that stand for those of a function's call.

    Raises:
        InvalidGraph: a value is none that the operator's specification allows, or lists for spatial axes differ in length.
    """
    node.has_checked_attributes = True
    attributes = node.attributes
    if not attributes:
        return
    rules = _bounded(node.op_type, node.domain)
    if not rules:
        return
    for name, value in attributes.items():
        rule = rules.get(name)
        if rule is not None:
            values = (value,) if type(value) is int else value if type(value) in _LISTS else _extremes(value, rule)
            low, high = rule.low, rule.high
            for each in values:
                if not low <= each <= high or (rule.is_narrow and not rule.accepts(each)):
                    found = each if isinstance(value, NumberList) else value
                    raise InvalidGraph(f"{node.describe()}: attribute '{name}' {rule.fault(found)}")
    if "kernel_shape" in attributes or "pads" in attributes or "strides" in attributes:
        _check_lengths(node)


def _extremes(value: Any, rule: Rule) -> Sequence[int]:
    """Of a long list the numbers that break a rule if any does; none of what is no list."""
    if not isinstance(value, NumberList):
        return ()
    array = value.array
    return np.unique(array).tolist() if rule.is_narrow else (array.min().item(), array.max().item())


@functools.cache
def _bounded(op_type: str, domain: str) -> Mapping[str, Rule]:
    """Rules of an operator that not every value fulfils."""
    if not schema_versions(op_type, domain):
        return _NONE
    special = SPECIAL.get((domain, op_type))
    return _COMMON_BOUNDED if special is None else {name: rule for name, rule in (COMMON | special).items() if not rule.free}


def _check_lengths(node: Node) -> None:
    rank, attributes = 0.0, node.attributes
    for name in _PER_AXIS:
        values = attributes.get(name)
        if values and isinstance(values, list | tuple) and len(values) != rank:
            if rank:
                raise _lengths_differ(node)
            rank = len(values)
    pads = attributes.get("pads")
    if not pads or not isinstance(pads, list | tuple) or len(pads) == 2 * rank:
        return
    if attributes.get("auto_pad", "NOTSET") in _EXPLICIT and (rank or len(pads) % 2):
        raise _lengths_differ(node)


def _lengths_differ(node: Node) -> InvalidGraph:
    attributes = node.attributes
    found = ", ".join(f"{name} {attributes[name]}" for name in (*_PER_AXIS, "pads") if attributes.get(name))
    return InvalidGraph(
        f"{node.describe()}: attributes {found} do not fit together; each needs one number per spatial axis, pads two"
    )
