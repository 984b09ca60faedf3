"""Einsum, as a chain of matrix products."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from ort_sdk.api import Array, Compute, InvalidArgument, InvalidGraph, KernelInfo
from ort_sdk.api.data_classes import dataclass
from ort_sdk.opset.definition import operator

__all__: list[str] = []

Labels = tuple[str, ...]
"""One name per dimension: a letter, or ``.0``, ``.1``, … for those an ellipsis stands for, counted from the last."""


@dataclass(frozen=True, slots=True)
class Equation:
    """A parsed equation: terms with ``...`` as one entry."""

    inputs: tuple[Labels, ...]
    output: Labels | None
    """None in implicit mode."""


@operator("Einsum")
def einsum(info: KernelInfo, xp: Any) -> Compute:
    """Sum of products over the labels the output lacks."""
    equation = _parse(info)

    def compute(*operands: Array) -> Array:
        if len(operands) != len(equation.inputs):
            raise InvalidArgument(f"{info.describe()}: the equation has {len(equation.inputs)} terms for {len(operands)} inputs")
        terms = [_expanded(term, len(operand.shape), info) for term, operand in zip(equation.inputs, operands, strict=True)]
        return _contract(list(operands), terms, _output_labels(equation, terms, info), info, xp)

    return compute


def _parse(info: KernelInfo) -> Equation:
    text = info.attribute("equation").replace(" ", "")
    left, arrow, right = text.partition("->")
    return Equation(
        tuple(_split(term, text, info) for term in left.split(",")),
        _split(right, text, info) if arrow else None,
    )


def _split(term: str, text: str, info: KernelInfo) -> Labels:
    before, dots, after = term.partition("...")
    labels = (*before, *(["..."] if dots else []), *after)
    if not all(label == "..." or (label.isascii() and label.isalpha()) for label in labels):
        raise InvalidGraph(f"{info.describe()}: equation '{text}' may hold letters, commas, one '->' and one '...' per term")
    return labels


def _expanded(term: Labels, rank: int, info: KernelInfo) -> Labels:
    """The term with its ellipsis replaced by as many names as the operand has dimensions left."""
    hidden = rank - len(term) + ("..." in term)
    if hidden < 0 or (hidden > 0 and "..." not in term):
        raise InvalidArgument(f"{info.describe()}: term '{''.join(term)}' does not fit an input of rank {rank}")
    return _with_ellipsis(term, hidden)


def _with_ellipsis(term: Labels, hidden: int) -> Labels:
    names = tuple(f".{index}" for index in reversed(range(hidden)))
    if "..." not in term:
        return term
    position = term.index("...")
    return term[:position] + names + term[position + 1 :]


def _output_labels(equation: Equation, terms: list[Labels], info: KernelInfo) -> Labels:
    counts = Counter(label for term in terms for label in term)
    hidden = sum(label.startswith(".") for label in counts)
    if equation.output is None:
        return _with_ellipsis(
            ("...", *sorted(label for label, count in counts.items() if count == 1 and label.isalpha())), hidden
        )
    output = _with_ellipsis(equation.output, hidden)
    if len(set(output)) != len(output) or not set(output) <= set(counts):
        raise InvalidGraph(
            f"{info.describe()}: output labels '{''.join(equation.output)}' must be distinct and occur in an input term"
        )
    return output


def _contract(operands: list[Array], terms: list[Labels], output: Labels, info: KernelInfo, xp: Any) -> Array:
    sizes = _label_sizes(operands, terms, info)
    pairs = [_simplified(operand, term, sizes, xp) for operand, term in zip(operands, terms, strict=True)]
    result, labels = pairs[0]
    for index in range(1, len(pairs)):
        needed = set(output).union(*(term for _, term in pairs[index + 1 :]))
        result, labels = _product(result, labels, *pairs[index], needed, xp)
    result, labels = _summed(result, labels, set(output), xp)
    result = xp.permute_dims(result, [labels.index(label) for label in output])
    return xp.asarray(result, copy=True) if len(pairs) == 1 else result


def _label_sizes(operands: list[Array], terms: list[Labels], info: KernelInfo) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for operand, term in zip(operands, terms, strict=True):
        for label, size in zip(term, operand.shape, strict=True):
            known = sizes.get(label, 1)
            if 1 not in {known, size} and known != size:
                raise InvalidArgument(f"{info.describe()}: label '{label}' stands for sizes {known} and {size}")
            sizes[label] = size if known == 1 else known
    return sizes


def _simplified(operand: Array, term: Labels, sizes: dict[str, int], xp: Any) -> tuple[Array, Labels]:
    """Without dimensions that only broadcast, and with repeated labels reduced to their diagonal."""
    broadcast = tuple(
        axis for axis, (label, size) in enumerate(zip(term, operand.shape, strict=True)) if size == 1 and sizes[label] != 1
    )
    if broadcast:
        operand = xp.squeeze(operand, axis=broadcast)
        term = tuple(label for axis, label in enumerate(term) if axis not in broadcast)
    while len(set(term)) < len(term):
        operand, term = _diagonal(operand, term, xp)
    return operand, term


def _diagonal(operand: Array, term: Labels, xp: Any) -> tuple[Array, Labels]:
    """Merge the first repeated label's two dimensions: every (n + 1)-th element of the n·n they hold."""
    label = next(label for label, count in Counter(term).items() if count > 1)
    first = term.index(label)
    second = term.index(label, first + 1)
    rest = [axis for axis in range(len(term)) if axis not in {first, second}]
    size = operand.shape[first]
    square = xp.reshape(xp.permute_dims(operand, [*rest, first, second]), (*(operand.shape[axis] for axis in rest), size * size))
    return square[..., :: size + 1], (*(term[axis] for axis in rest), label)


def _summed(operand: Array, term: Labels, needed: set[str], xp: Any) -> tuple[Array, Labels]:
    axes = tuple(axis for axis, label in enumerate(term) if label not in needed)
    if not axes:
        return operand, term
    return xp.sum(operand, axis=axes, dtype=operand.dtype), tuple(label for label in term if label in needed)


def _product(a: Array, a_term: Labels, b: Array, b_term: Labels, needed: set[str], xp: Any) -> tuple[Array, Labels]:
    """Batched matrix product of two operands: sums over the labels that both have and nothing else needs."""
    a, a_term = _summed(a, a_term, needed | set(b_term), xp)
    b, b_term = _summed(b, b_term, needed | set(a_term), xp)
    shared = [label for label in a_term if label in b_term]
    batch = [label for label in shared if label in needed]
    inner = [label for label in shared if label not in needed]
    rows = [label for label in a_term if label not in b_term]
    columns = [label for label in b_term if label not in a_term]
    left = _grouped(a, a_term, (batch, rows, inner), xp)
    right = _grouped(b, b_term, (batch, inner, columns), xp)
    product = xp.matmul(left, right) if inner else left * right
    sizes = dict(zip(a_term, a.shape, strict=True)) | dict(zip(b_term, b.shape, strict=True))
    labels = (*batch, *rows, *columns)
    return xp.reshape(product, tuple(sizes[label] for label in labels)), labels


def _grouped(operand: Array, term: Labels, groups: tuple[list[str], list[str], list[str]], xp: Any) -> Array:
    """Transposed to (*batch, second group, third group), the last two merged into one dimension each."""
    order = [term.index(label) for group in groups for label in group]
    sizes = [[operand.shape[term.index(label)] for label in group] for group in groups]
    return xp.reshape(xp.permute_dims(operand, order), (*sizes[0], math.prod(sizes[1]), math.prod(sizes[2])))
