"""TfIdfVectorizer: counts of the n-grams of a pool, found level by level for all positions at once."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import Compute, HostArray, InvalidArgument, InvalidGraph, KernelInfo
from ort_sdk.opset.definition import operator

_MODES = ("TF", "IDF", "TFIDF")
_FEW = 1 << 8
"""Looks for n-grams up to which Python is done before NumPy has begun."""
_MANY_NGRAMS = 1 << 16
"""N-grams of which no dictionary is made: it takes a hundred bytes for each."""


@operator("TfIdfVectorizer", host_only=True)
def tf_idf_vectorizer(info: KernelInfo, xp: Any) -> Compute:
    """Weighted counts of the pool's n-grams in each row, as float, [C] → [W] or [N, C] → [N, W].

    Raises:
        InvalidGraph: the attributes contradict each other.
    """
    mode = info.attribute("mode")
    if mode not in _MODES:
        raise InvalidGraph(f"{info.describe()}: mode '{mode}' is unknown; allowed are {', '.join(_MODES)}")
    vocabulary = _Vocabulary(_pool(info))
    tables = _tables(info, vocabulary)
    columns = np.asarray(info.attribute("ngram_indexes"), dtype=np.intp)
    width = int(columns.max(initial=-1)) + 1
    weights = _weights(info, columns, width)
    most = info.attribute("max_skip_count") + 1
    one_by_one = _OneByOne(vocabulary, tables, columns, width, None if mode == "TF" else weights, counts=mode != "IDF")
    has_few_ngrams = len(columns) <= _MANY_NGRAMS

    def compute(x: HostArray) -> HostArray:
        if x.ndim not in (1, 2):
            raise InvalidArgument(f"{info.describe()}: input of shape {x.shape} is not [C] or [N, C]")
        if has_few_ngrams and x.size * len(tables) * most <= _FEW:
            return one_by_one(x, most)
        tokens = vocabulary.indices(x).reshape(-1, x.shape[-1])
        counts = np.zeros(tokens.shape[0] * width, dtype=np.int64)
        offsets = np.arange(tokens.shape[0], dtype=np.intp)[:, np.newaxis] * width
        for table in tables:
            for stride in range(1, min(most, table.longest_stride(tokens.shape[1])) + 1):
                found = table.find(tokens, stride)
                bins = (offsets + columns[found])[found >= 0]
                counts += np.bincount(bins, minlength=counts.size)
        return _weighted(mode, counts.reshape(*x.shape[:-1], width), weights)

    return compute


def _weighted(mode: str, counts: HostArray, weights: HostArray | None) -> HostArray:
    values = (counts > 0 if mode == "IDF" else counts).astype(np.float32)
    return values if weights is None or mode == "TF" else values * weights


class _Vocabulary:
    """Numbers the distinct tokens of a pool."""

    def __init__(self, pool: Sequence[int] | Sequence[str]) -> None:
        self.pool = pool
        is_text = any(isinstance(token, str) for token in pool)
        tokens: Iterable[Any] = dict.fromkeys(pool) if is_text else np.unique(np.asarray(pool, dtype=np.int64)).tolist()
        self.numbers: dict[Any, int] = {token: number for number, token in enumerate(tokens)}
        """Number of each token."""
        self.size = len(self.numbers)
        self._sorted = None if is_text else np.array([*self.numbers], dtype=np.int64)

    def indices(self, tokens: HostArray) -> HostArray:
        """Numbers of tokens, of the same shape; -1 where the pool has none."""
        if self._sorted is not None and tokens.dtype.kind == "i":
            return _position(self._sorted, tokens)
        get = self.numbers.get
        return np.fromiter((get(token, -1) for token in tokens.ravel().tolist()), dtype=np.intp, count=tokens.size).reshape(
            tokens.shape
        )

    def pool_indices(self) -> HostArray:
        """Numbers of the pool's own tokens, in the numbering of ``indices``."""
        kind = object if self._sorted is None else np.int64
        pool = np.empty(len(self.pool), dtype=kind)
        pool[:] = self.pool
        return self.indices(pool)


class _NgramTable:
    """The n-grams of one length: a sorted table of prefixes for each position in the n-gram."""

    def __init__(self, ngrams: HostArray, first: int, vocabulary_size: int) -> None:
        self.length = ngrams.shape[1]
        self._factor = vocabulary_size
        self._levels = []
        prefix = np.zeros(len(ngrams), dtype=np.intp)
        for position in range(self.length):
            level, prefix = np.unique(prefix * self._factor + ngrams[:, position], return_inverse=True)
            self._levels.append(level)
        self._pool_index = np.zeros(len(self._levels[-1]), dtype=np.intp)
        self._pool_index[prefix[::-1]] = first + np.arange(len(ngrams) - 1, -1, -1)

    def by_key(self, columns: HostArray, factor: int) -> dict[int, int]:
        """Column of each n-gram, by the number that its tokens are the digits of, in a system of so many."""
        keys = np.zeros(1, dtype=object)
        for level in self._levels:
            keys = keys[level // self._factor] * factor + level % self._factor
        return dict(zip(keys.tolist(), columns[self._pool_index].tolist(), strict=True))

    def longest_stride(self, columns: int) -> int:
        """The largest distance between tokens of an n-gram in a row of so many; 1 if it has but one, or there is no room."""
        return max(1, (columns - 1) // (self.length - 1)) if self.length > 1 else 1

    def find(self, tokens: HostArray, stride: int) -> HostArray:
        """Pool indices of the n-grams that begin at each position of each row, -1 where there is none.

        Args:
            tokens: token numbers, (rows, columns).
            stride: distance between neighbouring tokens of an n-gram.
        """
        starts = max(tokens.shape[1] - (self.length - 1) * stride, 0)
        prefix = np.zeros((tokens.shape[0], starts), dtype=np.intp)
        for position, level in enumerate(self._levels):
            token = tokens[:, position * stride : position * stride + starts]
            key = np.where((prefix < 0) | (token < 0), -1, prefix * self._factor + token)
            prefix = _position(level, key)
        return np.where(prefix < 0, -1, self._pool_index[prefix])


class _OneByOne:
    """The same for few tokens, which takes NumPy longer to begin with than Python to do.

    Args:
        vocabulary: numbers the tokens.
        tables: of n-grams.
        columns: of each n-gram of the pool.
        width: of a row of results.
        weights: of the columns; None if all are one.
        counts: whether results are counts, or say whether an n-gram is there.
    """

    def __init__(
        self,
        vocabulary: _Vocabulary,
        tables: Sequence[_NgramTable],
        columns: HostArray,
        width: int,
        weights: HostArray | None,
        *,
        counts: bool,
    ) -> None:
        self._vocabulary, self._tables, self._columns, self._width = vocabulary, tables, columns, width
        self._weights, self._counts = weights, counts

    @functools.cached_property
    def _by_key(self) -> list[tuple[_NgramTable, dict[int, int]]]:
        return [(table, table.by_key(self._columns, self._vocabulary.size + 1)) for table in self._tables]

    @functools.cached_property
    def _weight_of(self) -> list[float] | None:
        return None if self._weights is None else self._weights.tolist()

    def __call__(self, x: HostArray, most: int) -> HostArray:
        """The node's output, counting n-grams whose tokens are up to ``most`` apart."""
        result = np.zeros((*x.shape[:-1], self._width), np.float32)
        rows, found = (x.tolist(), result) if x.ndim == 2 else ([x.tolist()], result[np.newaxis])
        weights = self._weight_of
        for row, tokens in enumerate(rows):
            out: Any = memoryview(found[row])
            for column, count in self._counted(tokens, most).items():
                value = count if self._counts else 1
                out[column] = value if weights is None else value * weights[column]
        return result

    def _counted(self, tokens: list[Any], most: int) -> dict[int, int]:
        """How often the n-grams of each column are among some tokens."""
        unknown, factor = self._vocabulary.size, self._vocabulary.size + 1
        number = self._vocabulary.numbers.get
        numbers = [number(token, unknown) for token in tokens]
        counted: dict[int, int] = {}
        for table, columns in self._by_key:
            for stride in range(1, min(most, table.longest_stride(len(tokens))) + 1):
                keys = numbers
                for position in range(stride, table.length * stride, stride):
                    keys = [key * factor + token for key, token in zip(keys, numbers[position:], strict=False)]
                for key in keys:
                    if key in columns:
                        column = columns[key]
                        counted[column] = counted.get(column, 0) + 1
        return counted


def _position(table: HostArray, values: HostArray) -> HostArray:
    """Where each value stands in a sorted table, -1 where it does not."""
    if not table.size:
        return np.full(values.shape, -1, dtype=np.intp)
    index = np.minimum(np.searchsorted(table, values), table.size - 1)
    return np.where(table[index] == values, index, -1)


def _pool(info: KernelInfo) -> Sequence[int] | Sequence[str]:
    pools: list[Any] = [info.attribute(name, None) for name in ("pool_int64s", "pool_strings")]
    given = [pool for pool in pools if pool]
    if len(given) != 1:
        raise InvalidGraph(f"{info.describe()}: exactly one of pool_int64s and pool_strings must be given, not {len(given)}")
    result: Sequence[int] | Sequence[str] = given[0]
    return result


def _tables(info: KernelInfo, vocabulary: _Vocabulary) -> list[_NgramTable]:
    """One table for each n-gram length the node counts and the pool has.

    Raises:
        InvalidGraph: lengths, starts and pool do not fit together.
    """
    shortest, longest = info.attribute("min_gram_length"), info.attribute("max_gram_length")
    starts = info.attribute("ngram_counts")
    pool = vocabulary.pool_indices()
    if not 1 <= shortest <= longest <= len(starts):
        raise InvalidGraph(
            f"{info.describe()}: n-gram lengths {shortest} to {longest} must be ascending, positive, and at most "
            f"{len(starts)}, the length of ngram_counts"
        )
    ends = [*starts[1:], len(pool)]
    tables = []
    first = 0
    for length, (start, end) in enumerate(zip(starts, ends, strict=True), 1):
        if not 0 <= start <= end <= len(pool) or (end - start) % length:
            raise InvalidGraph(
                f"{info.describe()}: the {length}-grams are at [{start}, {end}) of a pool of {len(pool)}; that must be a range "
                f"inside it, of a multiple of {length} tokens"
            )
        ngrams = pool[start:end].reshape(-1, length)
        if shortest <= length <= longest and len(ngrams):
            tables.append(_NgramTable(ngrams, first, vocabulary.size))
        first += len(ngrams)
    _check_indexes(info, first)
    return tables


def _check_indexes(info: KernelInfo, ngrams: int) -> None:
    indexes = info.attribute("ngram_indexes")
    if len(indexes) != ngrams or any(index < 0 for index in indexes):
        raise InvalidGraph(
            f"{info.describe()}: ngram_indexes must give one output column >= 0 to each of the pool's {ngrams} n-grams; "
            f"it has {len(indexes)}"
        )
    if info.attribute("max_skip_count") < 0:
        raise InvalidGraph(f"{info.describe()}: max_skip_count {info.attribute('max_skip_count')} must not be negative")


def _weights(info: KernelInfo, columns: HostArray, width: int) -> HostArray | None:
    """Weight of each output column; None if all are one."""
    weights = info.attribute("weights", None)
    if not weights:
        return None
    if len(weights) != len(columns):
        raise InvalidGraph(f"{info.describe()}: {len(weights)} weights are given for {len(columns)} n-grams; give one for each")
    by_column = np.ones(width, dtype=np.float32)
    by_column[columns] = weights
    return by_column
