"""Rules of input shapes: names of sizes that are the same in all inputs, and errors that say what was found and allowed."""

import numpy as np
import pytest

from ort_sdk.api import InvalidArgument, KernelInfo
from ort_sdk.opset.input_shapes import ABSENT, InputRule, InputShapes

INFO = KernelInfo("Mix", 3, "test", "node_7")


def shapes_of(*shapes):
    return InputShapes(INFO, shapes)


@pytest.mark.parametrize(
    ("shape", "pattern", "sizes"),
    [
        ((2, 3), ("a", "b"), {"a": 2, "b": 3}),
        ((2, 2), ("a", "a"), {"a": 2}),
        ((2, 3), (2, None), {}),
        ((5, 4, 3), (..., "a"), {"a": 3}),
        ((3,), (..., "a"), {"a": 3}),
        ((5, 4, 3), ("a", ...), {"a": 5}),
        ((5, 4, 3), ("a", ..., "b"), {"a": 5, "b": 3}),
        ((5, 3), ("a", ..., "b"), {"a": 5, "b": 3}),
        ((), (), {}),
        ((0, 3), ("a", "b"), {"a": 0, "b": 3}),
    ],
)
def test_names_are_bound_by_the_first_input(shape, pattern, sizes):
    shapes = shapes_of(shape)
    assert shapes.match(0, "x", pattern) == 0
    assert {name: shapes[name] for name in sizes} == sizes


@pytest.mark.parametrize(
    ("shape", "pattern"),
    [((2, 3), ("a", "a")), ((2, 3), (3, None)), ((2, 3), ("a",)), ((3,), ("a", ..., "b")), ((), ("a", ...)), ((2,), ())],
)
def test_other_shapes_are_refused(shape, pattern):
    with pytest.raises(InvalidArgument, match="input 0, 'x'"):
        shapes_of(shape).match(0, "x", pattern)


def test_the_first_pattern_that_fits_counts_and_absent_inputs_are_passed():
    shapes = shapes_of((2, 3), None, (3, 2))
    assert shapes.match(0, "x", (3, None), ("a", "b")) == 1
    assert shapes.match(1, "y", ("b",)) == ABSENT
    assert shapes.match(5, "z", ("b",)) == ABSENT
    assert shapes.match(2, "w", ("a", "b"), ("b", "a")) == 1


def test_errors_name_node_input_found_and_allowed():
    shapes = shapes_of((2, 3), (1, 3), None)
    shapes.match(0, "x", ("batch", "width"))
    with pytest.raises(InvalidArgument) as caught:
        shapes.match(1, "state", ("batch", "width"), ("batch", 4, "depth"))
    text = str(caught.value)
    for part in ("test::Mix(3)", "node_7", "input 1, 'state'", "(1, 3)", "(batch = 2, width = 3)", "(batch = 2, 4, depth)"):
        assert part in text
    assert "All inputs: (2, 3), (1, 3), absent" in text


@pytest.mark.parametrize("shape", [(), (1,), (3,), (1, 3), (2, 1), (2, 3), (1, 1)])
def test_what_broadcasts_to_a_shape(shape):
    shapes_of(shape).spread(0, "x", (2, 3))


@pytest.mark.parametrize("shape", [(2,), (3, 1), (1, 2, 3), (1, 1, 1), (0,), (2, 0)])
def test_what_does_not_broadcast_to_a_shape(shape):
    with pytest.raises(InvalidArgument, match="cannot be broadcast"):
        shapes_of(shape).spread(0, "x", (2, 3))


def test_counts():
    shapes_of((1, 1)).count(0, "x", 1)
    shapes_of((2, 3)).count(0, "x", 1, 6)
    with pytest.raises(InvalidArgument, match="1 or 6 element"):
        shapes_of((2, 2)).count(0, "x", 1, 6)


def test_a_rule_is_asked_for_other_shapes_only_and_knows_packed_constants():
    class Weight:
        shape = (3, 4)

    asked = []

    def rule(_info, shapes):
        asked.append(shapes.of(1))
        shapes.match(0, "x", ("rows", "inner"))
        shapes.match(1, "w", ("inner", "columns"))

    check = InputRule(KernelInfo("Mix", 3, constants={1: Weight()}), rule).check
    for rows in (2, 2, 5, 5):
        check([np.zeros((rows, 3)), None])
    assert asked == [(3, 4), (3, 4)]
    for _ in range(2):
        with pytest.raises(InvalidArgument, match="input 1, 'w'"):
            check([np.zeros((5, 2)), None])
