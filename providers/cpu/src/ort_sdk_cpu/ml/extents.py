"""Trees, linear classifiers and support vector machines, over rows of numbers.

Which node follows another, whose votes are a leaf's, and where the splits of a feature begin, are contents. They come from a
model's attributes and are checked where its tables are made; that the tables are as long is checked here.
"""

from __future__ import annotations

from ort_sdk_cpu.jit.extents.declaration import (
    At,
    Extents,
    MayBeAt,
    at_most,
    declares,
    given,
    reaches,
    reads,
    whole_vectors,
    works,
    writes,
)
from ort_sdk_cpu.jit.extents.sizes import FLOAT, INT64, VECTOR, whole

__all__: list[str] = []

_DOUBLE, _INT32 = 8, 4
_NODE, _TWO_WAYS, _VOTE = 24, 16, 16
"""Bytes of a node of four ways, of one of two, and of a vote."""
_ROWS = 32
"""Rows for which votes are put together at a time."""
_IN_LEAVES, _IN_TABLE = -1, 0
_DECIDED = 2
"""From here on, kinds of decision are between two classes."""
_BY_FLAG = 2
_BOTH, _PROBABILITIES = 2, 3
_LEAST_ROOM = 17
"""Vectors that linear classifiers work with beside one for each target."""


def _results(addresses: tuple[int, int, int], rows: int, targets: int, classes: int, *, expands: int) -> Extents:
    """Scores, labels, and the classes' labels where they are asked for; classes are 0 if there are none."""
    scores, labels, names = addresses
    last = max(targets, 2) if expands else targets
    yield writes(scores, max(0, (rows - 1) * targets + last) * FLOAT if rows else 0, may_be_none=True)
    if classes:
        yield writes(labels, rows * INT64, may_be_none=True)
        yield given(names, classes * INT64)


@declares("classifiers", "trees")
def _trees(
    x: At,
    scores: At,
    labels: MayBeAt,
    nodes: At,
    roots: At,
    starts: At,
    votes: At,
    base: At,
    names: At,
    room: At,
    rows: int,
    x_row: int,
    trees: int,
    targets: int,
    aggregate: int,
    transform: int,
    kind: int,
    column: int,
    expands: int,
    limit: float,
    ways: int,
    form: int,
    flags: At,
    node_count: int,
    features: int,
    vote_count: int,
    *,
    parts: int,
) -> Extents:
    at_most("scores", column + 1, targets)
    at_most("trees less than one", 1 - trees, 0)
    # Whether a number is none is asked of all that is in a row.
    if ways >= _BY_FLAG:
        yield reads(x, max(rows * x_row, (rows - 1) * x_row + features * FLOAT) if rows else 0)
    else:
        yield reaches(x, (rows,), (x_row,), features * FLOAT)
    decided = (2 if kind >= _DECIDED else targets) if kind and labels.is_given else 0
    yield from _results((scores, labels, names), rows, targets, decided, expands=expands)
    yield reads(nodes, node_count * (_TWO_WAYS if ways else _NODE))
    yield reads(roots, trees * _INT32)
    yield reads(base, targets * _DOUBLE)
    yield works(room, parts * _ROWS * targets * _DOUBLE)
    if form == _IN_TABLE:
        yield reads(starts, (node_count + 1) * _INT32)
    if form != _IN_LEAVES:
        yield reads(votes, vote_count * _VOTE)
    if ways >= _BY_FLAG:
        yield reads(flags, node_count * _INT32)


@declares("classifiers", "linear_classifier")
def _linear_classifier(
    x: At,
    scores: At,
    labels: MayBeAt,
    coefficients: At,
    intercepts: At,
    features: int,
    score_count: int,
    base: int,
    names: At,
    room: At,
    rows: int,
    x_row: int,
    trees: int,
    targets: int,
    aggregate: int,
    transform: int,
    kind: int,
    column: int,
    expands: int,
    limit: float,
    *_: float,
    parts: int,
) -> Extents:
    at_most("scores", score_count, targets)
    at_most("scores", column + 1, targets)
    yield reaches(x, (rows,), (x_row,), features * FLOAT)
    decided = (2 if kind >= _DECIDED else targets) if labels.is_given else 0
    yield from _results((scores, labels, names), rows, targets, decided, expands=expands)
    yield reads(coefficients, score_count * features * FLOAT)
    yield reads(intercepts, score_count * FLOAT)
    yield works(room, parts * (targets + _LEAST_ROOM) * VECTOR)


@declares("ranks", "ranks")
def _ranks(x: At, out: At, starts: At, splits: At, rows: int, x_row: int, features: int, split_count: int) -> Extents:
    yield reaches(x, (rows,), (x_row,), features * _DOUBLE)
    yield writes(out, rows * features * FLOAT)
    yield reads(starts, (features + 1) * INT64)
    yield reads(splits, split_count * _DOUBLE)


@declares("support_vectors", "machine")
def _machine(
    x: At,
    out: At,
    labels: MayBeAt,
    supports: At,
    weights: At,
    added: At,
    names: At,
    pairs: At,
    work: At,
    rows: int,
    features: int,
    vectors: int,
    scores: int,
    classes: int,
    part_bytes: int,
    kernel: int,
    degree: int,
    finish: int,
    gamma: float,
    coefficient: float,
    *,
    parts: int,
) -> Extents:
    whole_vectors(vectors)
    has_pairs = finish == _PROBABILITIES
    if has_pairs or (classes and labels.is_given):
        at_most("pairs of classes", classes * (classes - 1) // 2, scores)
    yield reads(x, rows * features * FLOAT)
    each = {_BOTH: 2, _PROBABILITIES: classes}.get(finish, scores)
    yield from _results((out, labels, names), rows, each, classes if labels.is_given else 0, expands=0)
    yield reads(supports, features * vectors * FLOAT)
    yield reads(weights, scores * vectors * FLOAT)
    yield reads(added, scores * _DOUBLE)
    yield reads(pairs, 2 * scores * FLOAT if has_pairs else 0)
    used = (vectors + 2 * whole(scores)) * FLOAT + ((classes + 2) * classes * _DOUBLE if has_pairs else 0)
    at_most("bytes of a thread", used, part_bytes)
    yield works(work, (parts - 1) * part_bytes + used)
