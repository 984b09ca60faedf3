"""Which algorithm computes an attention: the one place that chooses, with all thresholds of the family.

``select_over_cache`` decides where keys and values are a cache, or given for the run; ``select_fixed`` where a program fixes all
shapes; ``select_eager`` where shapes were never seen before. Kernels report the member that they used last.

Thresholds without figures balance the two costs that they name.
"""

from __future__ import annotations

import enum
from collections.abc import Callable

from ort_sdk.api.data_classes import dataclass

__all__ = [
    "MOST_DECODE_QUERIES",
    "AttentionAlgorithm",
    "AttentionProblem",
    "attends_few",
    "goes_over_cache_eagerly",
    "is_for_cached_tasks",
    "select_eager",
    "select_fixed",
    "select_over_cache",
]


class AttentionAlgorithm(enum.StrEnum):
    """How an attention is computed."""

    DECODE = "decode"
    """Flash-Decoding: threads share the keys of few queries, and fill the cache meanwhile (``compiled.decode``)."""
    DECODE_F16 = "decode_f16"
    """The same over a cache of float16 (``compiled.decode_f16``)."""
    FLASH = "flash"
    """FlashAttention-2: one pass over the keys for each block of queries (``compiled.flash``)."""
    APPEND_AND_FLASH = "append_and_flash"
    """The same after the cache was filled."""
    GEMM_BLOCKS = "gemm_blocks"
    """Two GEMMs and a softmax by NumPy, for blocks of scores (``multi_head``)."""
    OPSET = "opset"
    """The shared set's: for element types, shapes and attributes that no other has."""


# Flash attention is best for blocks of 32 queries. With up to 16, one of its two vectors of queries is a copy of the other.
# Decoding does a query at a time, but threads share the keys, of which there are many where queries are few.
MOST_DECODE_QUERIES = 16
"""Queries of a head of keys that are attended at once, without a block of their own: of flash's block of 32 queries at least half
would be copies, whose multiplications are for nothing."""
LANES = 16
"""Decoding reads rows of keys and values by whole vectors."""
MIN_KEYS_PER_QUERY = 16
"""Keys for each query from which sharing keys among threads is worth more than flash's tiles."""
# The next three are about loading a task, which has to be read from the cache folder once per process, or takes seconds to
# compile: models with small attentions only do not pay that.
MIN_CACHED_WORK = 1 << 18
"""Elements of queries times elements of keys from which the tasks for few queries are worth loading in a program."""
MIN_FIXED_WORK = 1 << 15
"""Elements of queries times keys from which flash's task is worth loading in a program, whose NumPy calls write to memory that is
there."""
MIN_EAGER_WORK = 1 << 12
"""The same without a program, where NumPy allocates all it writes."""


@dataclass(frozen=True, slots=True)
class AttentionProblem:
    """What the choice depends on."""

    batch: int
    heads: int
    queries: int
    """Of a head."""
    keys: int
    """Of a head; 0 where each run has another number."""
    head_size: int
    value_size: int
    group: int = 1
    """Heads of queries that share one of keys."""
    appends: bool = False
    """Whether new keys and values are put into a cache."""
    is_float16_cache: bool = False
    is_compiled: bool = True
    """Whether all else is float32, and tasks can be used here."""

    @property
    def query_elements(self) -> int:
        """Of all queries."""
        return self.batch * self.heads * self.queries * self.head_size

    @property
    def key_elements(self) -> int:
        """Of all keys."""
        return self.batch * self.heads // self.group * self.keys * self.head_size


def attends_few(queries: int, head_size: int, value_size: int) -> bool:
    """Whether so many queries of a head of keys are few: they are attended as the cache is filled."""
    return queries <= MOST_DECODE_QUERIES and not head_size % LANES and not value_size % LANES


def select_over_cache(problem: AttentionProblem) -> AttentionAlgorithm:
    """The algorithm for keys and values that are a cache, or given for the run."""
    if attends_few(problem.group * problem.queries, problem.head_size, problem.value_size):
        return AttentionAlgorithm.DECODE_F16 if problem.is_float16_cache else AttentionAlgorithm.DECODE
    return AttentionAlgorithm.APPEND_AND_FLASH if problem.appends else AttentionAlgorithm.FLASH


def is_for_cached_tasks(problem: AttentionProblem) -> bool:
    """Whether few queries meet so many keys in a program that ``select_over_cache`` chooses."""
    # Without groups: MultiHeadAttention has as many heads of keys as of queries.
    has_many_keys = problem.keys >= MIN_KEYS_PER_QUERY * problem.queries
    has_work = problem.query_elements * problem.key_elements >= MIN_CACHED_WORK
    return problem.is_compiled and problem.queries <= MOST_DECODE_QUERIES and has_many_keys and has_work


def select_fixed(problem: AttentionProblem, is_loaded: Callable[[], bool]) -> AttentionAlgorithm:
    """The algorithm of a program, for keys that are no cache.

    Args:
        problem: of the node.
        is_loaded: whether flash's task costs nothing to have.
    """
    if is_for_cached_tasks(problem):
        return select_over_cache(problem)
    is_large = problem.query_elements * problem.keys >= MIN_FIXED_WORK
    return AttentionAlgorithm.FLASH if problem.is_compiled and (is_large or is_loaded()) else AttentionAlgorithm.GEMM_BLOCKS


def goes_over_cache_eagerly(problem: AttentionProblem) -> bool:
    """Whether few queries meet enough keys in a run without a program that ``select_over_cache`` chooses."""
    return problem.queries <= MOST_DECODE_QUERIES and problem.query_elements * problem.keys >= MIN_EAGER_WORK


def select_eager(problem: AttentionProblem) -> AttentionAlgorithm:
    """The algorithm of a run without a program, for keys that are no cache."""
    if problem.query_elements * problem.keys < MIN_EAGER_WORK:
        return AttentionAlgorithm.OPSET
    return select_over_cache(problem) if goes_over_cache_eagerly(problem) else AttentionAlgorithm.FLASH
