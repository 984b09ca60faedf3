"""Sequences and optional values: each operator as a model of its own, over NumPy and over the array API standard."""

from __future__ import annotations

import array_api_strict
import numpy as np
import onnx
import pytest

from ort_sdk.api import InvalidArgument, KernelInfo, KernelRegistry
from ort_sdk.opset import add_opset
from tests.opset.one_node import assert_same, run_reference, run_sdk

X = np.arange(12, dtype=np.float32).reshape(3, 4)


def model(body, opset=17):
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["":{opset}]> g {body}')


def compare(body, feeds, opset=17):
    made = model(body, opset)
    actual, expected = run_sdk(made, feeds), run_reference(made, feeds)
    for got, want in zip(actual, expected, strict=True):
        pairs = zip(got, want, strict=True) if isinstance(want, list) else [(got, want)]
        for one, other in pairs:
            assert_same(one, other, 0, 0)
    return actual


def strict_kernel(op_type, version, **attributes):
    registry = KernelRegistry("StrictExecutionProvider")
    add_opset(registry, array_api_strict)
    row = next(row for row in registry.candidates("", op_type) if row.kernel_def.matches_version(version))
    return row.create(KernelInfo(op_type, version, attributes=attributes)).compute


@pytest.mark.parametrize("position", [None, 0, 1, 2, -1, -2])
def test_insert_and_at(position):
    place = "" if position is None else ", p"
    body = f"""(float[n, m] x, int64 p) => (seq(float[n, m]) s, float[n, m] y, int64 c) {{
      y1 = Neg (x)
      t = SequenceConstruct (x, y1)
      three = Add (x, x)
      s = SequenceInsert (t, three{place})
      y = SequenceAt (s, p)
      c = SequenceLength (s)
    }}"""
    compare(body, {"x": X, "p": np.array(position or 0)})


@pytest.mark.parametrize("position", [None, 0, 1, -2])
def test_erase(position):
    place = "" if position is None else ", p"
    body = f"""(float[n, m] x, int64 p) => (seq(float[n, m]) s) {{
      y = Neg (x)
      t = SequenceConstruct (x, y)
      s = SequenceErase (t{place})
    }}"""
    (sequence,) = compare(body, {"x": X, "p": np.array(position or 0)})
    assert len(sequence) == 1


@pytest.mark.parametrize(
    ("operator", "position"), [("SequenceAt", 2), ("SequenceAt", -3), ("SequenceErase", 2), ("SequenceInsert", 3)]
)
def test_positions_outside_are_refused(operator, position):
    call = "SequenceInsert (t, x, p)" if operator == "SequenceInsert" else f"{operator} (t, p)"
    kind = "float[n, m]" if operator == "SequenceAt" else "seq(float[n, m])"
    body = f"(float[n, m] x, int64 p) => ({kind} y) {{ t = SequenceConstruct (x, x)  y = {call} }}"
    with pytest.raises(InvalidArgument, match=f"position {position} is outside the sequence of 2"):
        run_sdk(model(body), {"x": X, "p": np.array(position)})


def test_sequences_never_change_in_place_nor_share_memory_with_feeds():
    body = """(float[n, m] x) => (seq(float[n, m]) s, seq(float[n, m]) t, seq(float[n, m]) u) {
      s = SequenceConstruct (x)
      t = SequenceInsert (s, x)
      u = SequenceErase (t)
    }"""
    s, t, u = run_sdk(model(body), {"x": X})
    assert [len(each) for each in (s, t, u)] == [1, 2, 1]
    assert not any(np.shares_memory(X, item) for each in (s, t, u) for item in each)


@pytest.mark.parametrize("opset", [11, 24])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("split", [None, np.array(2), np.array([1, 2]), np.array([0, 3], dtype=np.int32)])
def test_split_to_sequence(opset, axis, split):
    if split is not None and split.ndim and axis != 0:
        split = np.array([*split.tolist(), 1], dtype=split.dtype)
    kind = "int32" if split is not None and split.dtype == np.int32 else "int64"
    shape = "" if split is None or split.ndim == 0 else "[k]"
    given = "" if split is None else ", p"
    body = f"(float[n, m] x, {kind}{shape} p) => (seq(float[a, b]) s) {{ s = SplitToSequence <axis = {axis}> (x{given}) }}"
    feeds = {"x": X, "p": np.array(0) if split is None else split}
    if opset <= 21:
        compare(body, feeds, opset)
    (pieces,) = run_sdk(model(body, opset), feeds)
    np.testing.assert_array_equal(np.concatenate(pieces, axis=axis), X)


@pytest.mark.parametrize("axis", [0, 1])
def test_split_without_keeping_the_axis(axis):
    body = f"(float[n, m] x) => (seq(float[a]) s) {{ s = SplitToSequence <axis = {axis}, keepdims = 0> (x) }}"
    (pieces,) = compare(body, {"x": X})
    assert len(pieces) == X.shape[axis]


@pytest.mark.parametrize("split", [np.array([1, 1]), np.array([4, -1]), np.array(0), np.array(-2)])
def test_wrong_splits_are_refused(split):
    shape = "[k]" if split.ndim else ""
    body = f"(float[n, m] x, int64{shape} p) => (seq(float[a, b]) s) {{ s = SplitToSequence (x, p) }}"
    with pytest.raises(InvalidArgument, match="split"):
        run_sdk(model(body), {"x": X, "p": split})


@pytest.mark.parametrize(("new_axis", "axis"), [(0, 0), (0, 1), (0, -1), (1, 0), (1, 2), (1, -1), (1, -3)])
def test_concat_from_sequence(new_axis, axis):
    rank = ", ".join("abc"[: 2 + new_axis])
    body = f"""(float[n, m] x) => (float[{rank}] y) {{
      z = Neg (x)
      s = SequenceConstruct (x, z)
      y = ConcatFromSequence <axis = {axis}, new_axis = {new_axis}> (s)
    }}"""
    compare(body, {"x": X})


def test_concat_refuses_empty_sequences_wrong_axes_and_shapes_that_do_not_fit():
    body = "(float[n, m] x, float[k] z) => (float[a, b] y) { s = CONSTRUCT  y = ConcatFromSequence <axis = AXIS> (s) }"
    feeds = {"x": X, "z": np.zeros(2, np.float32)}
    for construct, axis, message in (
        ("SequenceEmpty ()", 0, "empty sequence"),
        ("SequenceConstruct (x, x)", 2, "axis 2 is outside"),
        ("SequenceConstruct (x, z)", 0, "cannot be joined"),
    ):
        with pytest.raises(InvalidArgument, match=message):
            run_sdk(model(body.replace("CONSTRUCT", construct).replace("AXIS", str(axis))), feeds)


def test_strings_in_sequences():
    body = "(string[n] x) => (string[m] y) { s = SplitToSequence (x)  y = ConcatFromSequence <axis = 0> (s) }"
    (y,) = run_sdk(model(body), {"x": np.array(["a", "", "ü"], dtype=object)})
    assert y.tolist() == ["a", "", "ü"]


@pytest.mark.parametrize("opset", [18, 21])
def test_optional(opset):
    body = """(float[n, m] x) => (float[n, m] y, bool here, bool there) {
      o = Optional (x)
      e = Optional <type = float[n, m]> ()
      here = OptionalHasElement (o)
      there = OptionalHasElement (e)
      y = OptionalGetElement (o)
    }"""
    made = model(body.replace("e = Optional <type = float[n, m]> ()", "").replace("(e)", "()"), opset)
    y, here, there = run_sdk(made, {"x": X})
    np.testing.assert_array_equal(y, X)
    assert here.item() is True
    assert there.item() is False


def test_an_empty_optional_has_no_element_to_take():
    value = onnx.helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, [None])
    nodes = [
        onnx.helper.make_node("Optional", [], ["o"], type=value),
        onnx.helper.make_node("OptionalGetElement", ["o"], ["y"]),
    ]
    graph = onnx.helper.make_graph(nodes, "g", [], [onnx.helper.make_value_info("y", value)])
    made = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=8)
    with pytest.raises(InvalidArgument, match="optional input is empty"):
        run_sdk(made, {})


def test_over_the_array_api_standard():
    x = array_api_strict.asarray(X)
    pieces = strict_kernel("SplitToSequence", 11, axis=1)(x, np.array([1, 3]))
    assert [piece.shape for piece in pieces] == [(3, 1), (3, 3)]
    rows = strict_kernel("SplitToSequence", 11, axis=0, keepdims=0)(x)
    assert [row.shape for row in rows] == [(4,)] * 3
    np.testing.assert_array_equal(np.from_dlpack(strict_kernel("ConcatFromSequence", 11, axis=1)(pieces)), X)
    np.testing.assert_array_equal(np.from_dlpack(strict_kernel("ConcatFromSequence", 11, axis=0, new_axis=1)(rows)), X)
    sequence = strict_kernel("SequenceInsert", 11)(strict_kernel("SequenceConstruct", 11)(x), x, np.array(0))
    assert int(strict_kernel("SequenceLength", 11)(sequence)) == 2
    assert strict_kernel("SequenceAt", 11)(sequence, np.array(-1)) is sequence[1]
    assert bool(strict_kernel("OptionalHasElement", 18)(x))
