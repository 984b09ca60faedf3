"""If, Loop, Scan and SequenceMap against onnxruntime, written in ONNX's textual form."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import ort_sdk
from ort_sdk.api import InvalidArgument
from tests.opset.one_node import assert_same, run_reference, run_sdk

HEADER = '<ir_version: 8, opset_import: ["":{opset}]>\n'

SUM_LOOP = """
g (int64 M, bool go, float[n] a) => (float[n] b, float[k, n] sums, int64[k] numbers) {
  b, sums, numbers = Loop <body = body (int64 i, bool c, float[n] x) => (bool co, float[n] y, float[n] s, int64 it) {
    limit = Constant <value = int64 {3}> ()
    co = Less (i, limit)
    y = Add (x, a)
    s = Identity (y)
    it = Identity (i)
  }> (M, go, a)
}"""


def model(text, opset=17):
    return onnx.parser.parse_model(HEADER.format(opset=opset) + text)


def compare(text, feeds, opset=17, runs=3):
    """Run in both runtimes; several times, so that replayed programs are seen too."""
    made = model(text, opset)
    expected = run_reference(made, feeds)
    session = ort_sdk.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    for _ in range(runs):
        actual = session.run(None, feeds)
        for got, want in zip(actual, expected, strict=True):
            if isinstance(want, list):
                assert len(got) == len(want)
                for one, other in zip(got, want, strict=True):
                    assert_same(one, other, 1e-5, 1e-5)
            else:
                assert_same(got, want, 1e-5, 1e-5)
    return actual


def vector(*values):
    return np.array(values, dtype=np.float32)


@pytest.mark.parametrize("opset", [11, 13, 16, 19, 21])
@pytest.mark.parametrize(("trips", "go"), [(2, True), (10, True), (0, True), (5, False)])
def test_loop(opset, trips, go):
    compare(SUM_LOOP, {"M": np.array(trips), "go": np.array(go), "a": vector(1, 2)}, opset)


def test_loop_without_trip_count_and_condition():
    text = SUM_LOOP.replace("int64 M, bool go, ", "").replace("(M, go, a)", "(, , a)")
    _, sums, _ = compare(text, {"a": vector(1, 2)})
    assert len(sums) == 4


def test_loop_passes_vectors_where_the_body_declares_them():
    text = (
        SUM_LOOP.replace("int64 M, bool go", "int64[1] M, bool[1] go")
        .replace("int64 i,", "int64[1] i,")
        .replace("bool c,", "bool[1] c,")
        .replace("bool co", "bool[1] co")
    )
    text = text.replace("int64 it)", "int64[1] it)").replace("int64[k] numbers", "int64[k, 1] numbers")
    (*_, numbers) = compare(text, {"M": np.array([2]), "go": np.array([True]), "a": vector(1, 2)})
    assert numbers.tolist() == [[0], [1]]


def test_loop_output_is_never_the_input():
    text = """
    g (int64 M, bool go, float[n] a) => (float[n] b) {
      b = Loop <body = body (int64 i, bool c, float[n] x) => (bool co, float[n] y) {
        co = Identity (c)
        y = Identity (x)
      }> (M, go, a)
    }"""
    for trips in (0, 2):
        a = vector(1, 2)
        (b,) = run_sdk(model(text), {"M": np.array(trips), "go": np.array(True), "a": a})
        np.testing.assert_array_equal(b, a)
        assert not np.shares_memory(a, b)


def test_loop_carries_a_sequence():
    text = """
    g (int64 M, float[n] a) => (seq(float[n]) s) {
      empty = SequenceEmpty ()
      s = Loop <body = body (int64 i, bool c, seq(float[n]) t) => (bool co, seq(float[n]) u) {
        co = Identity (c)
        f = Cast <to = 1> (i)
        row = Add (a, f)
        u = SequenceInsert (t, row)
      }> (M, , empty)
    }"""
    (sequence,) = compare(text, {"M": np.array(3), "a": vector(1, 2)})
    assert [row.tolist() for row in sequence] == [[1, 2], [2, 3], [3, 4]]


def test_loop_without_iterations_takes_shapes_from_the_body():
    text = SUM_LOOP.replace("float[n] s", "float[4, p, 2] s").replace("float[k, n] sums", "float[k, 4, p, 2] sums")
    _, sums, _ = run_sdk(model(text), {"M": np.array(0), "go": np.array(True), "a": vector(1, 2)})
    assert sums.shape == (0, 4, 0, 2)
    assert sums.dtype == np.float32


def test_loop_scan_outputs_must_keep_their_shape():
    text = """
    g (int64 M, bool go, float[n] a) => (float[k, p] s) {
      s = Loop <body = body (int64 i, bool c) => (bool co, float[p] row) {
        co = Identity (c)
        zero = Constant <value = int64[1] {0}> ()
        one = Constant <value = int64[1] {1}> ()
        shape = Constant <value = int64[1] {-1}> ()
        j = Reshape (i, shape)
        end = Add (j, one)
        row = Slice (a, zero, end)
      }> (M, go)
    }"""
    with pytest.raises(InvalidArgument, match="scan output 'row' has shape"):
        run_sdk(model(text), {"M": np.array(3), "go": np.array(True), "a": vector(1, 2, 3)})


def test_nested_loops_see_values_of_both_enclosing_graphs():
    text = """
    g (int64 M, float[n] a) => (float[n] b) {
      b = Loop <body = outer (int64 i, bool c, float[n] x) => (bool co, float[n] y) {
        co = Identity (c)
        f = Cast <to = 1> (i)
        y = Loop <body = inner (int64 j, bool d, float[n] u) => (bool do, float[n] v) {
          do = Identity (d)
          t = Add (u, a)
          v = Add (t, f)
        }> (M, , x)
      }> (M, , a)
    }"""
    compare(text, {"M": np.array(3), "a": vector(1, 2)})


@pytest.mark.parametrize("opset", [11, 13, 16, 19, 21])
@pytest.mark.parametrize("shape", [(), (1,)])
def test_if(opset, shape):
    text = f"""
    g (bool{list(shape) if shape else ""} c, float[n] a, float[n] b) => (float[n] y, float[n] z) {{
      y, z = If (c) <
        then_branch = t () => (float[n] p, float[n] q) {{ p = Add (a, b)  q = Identity (a) }},
        else_branch = e () => (float[n] r, float[n] s) {{ r = Mul (a, b)  s = Identity (b) }}>
    }}"""
    for condition in (True, False):
        feeds = {"c": np.full(shape, condition), "a": vector(1, 2), "b": vector(3, 4)}
        _, copy = compare(text, feeds, opset)
        assert not any(np.shares_memory(copy, value) for value in feeds.values())


def test_if_refuses_a_condition_of_two_elements():
    text = """
    g (bool[n] c, float[m] a) => (float[m] y) {
      y = If (c) <then_branch = t () => (float[m] p) { p = Abs (a) }, else_branch = e () => (float[m] q) { q = Neg (a) }>
    }"""
    with pytest.raises(InvalidArgument, match="must have one element"):
        run_sdk(model(text), {"c": np.array([True, False]), "a": vector(1)})


SCAN = """
g (float[p] s0, float{x_shape} x, float{x_shape} w) => (float[p] s, float{y_shape} y, float{y_shape} z) {{
  s, y, z = Scan <num_scan_inputs = 2{attributes}, body = body (float[p] t, float{e} u, float{e} v)
      => (float[p] tn, float{e} yn, float{e} zn) {{
    sum = ReduceSum <keepdims = 0> (u)
    tn = Add (t, sum)
    yn = Add (u, t)
    zn = Sub (v, tn)
  }}> (s0, x, w)
}}"""


@pytest.mark.parametrize(
    "attributes",
    [
        "",
        ", scan_input_directions = [1, 0], scan_output_directions = [0, 1]",
        ", scan_input_axes = [1, -1], scan_output_axes = [1, -1]",
        ", scan_input_axes = [1, 1], scan_input_directions = [0, 1], scan_output_axes = [-2, 1], scan_output_directions = [1, 1]",
    ],
)
@pytest.mark.parametrize("opset", [13, 17, 21])
def test_scan(attributes, opset):
    rng = np.random.default_rng(0)
    text = SCAN.format(x_shape="[a, b]", y_shape="[c, d]", e="[q]", attributes=attributes)
    feeds = {
        "s0": vector(0.5),
        "x": rng.standard_normal((3, 4), dtype=np.float32),
        "w": rng.standard_normal((3, 4), dtype=np.float32),
    }
    compare(text, feeds, opset)


def test_scan_of_an_empty_axis():
    text = SCAN.format(x_shape="[a, 4]", y_shape="[a, 4]", e="[4]", attributes="")
    s0 = vector(0.5)
    s, y, z = run_sdk(model(text), {"s0": s0, "x": np.zeros((0, 4), np.float32), "w": np.zeros((0, 4), np.float32)})
    assert s.tolist() == [0.5]
    assert not np.shares_memory(s, s0)
    assert y.shape == z.shape == (0, 4)


def test_scan_refuses_inputs_of_different_lengths():
    text = SCAN.format(x_shape="[a, b]", y_shape="[c, d]", e="[q]", attributes="")
    feeds = {"s0": vector(0.5), "x": np.zeros((3, 4), np.float32), "w": np.zeros((2, 4), np.float32)}
    with pytest.raises(InvalidArgument, match="they must be equal"):
        run_sdk(model(text.replace("float[a, b] w", "float[e, b] w")), feeds)


SCAN_8 = """
g (int64[b] lens, float[b, p] s0, float[b, t, p] x) => (float[b, p] s, float[b, t, p] y) {{
  s, y = Scan <num_scan_inputs = 1{attributes}, body = body (float[p] t, float[p] u) => (float[p] tn, float[p] yn) {{
    tn = Add (t, u)
    yn = Mul (tn, u)
  }}> ({lens}, s0, x)
}}"""


@pytest.mark.parametrize("lens", ["lens", ""])
@pytest.mark.parametrize("attributes", ["", ", directions = [1]"])
def test_scan_8(lens, attributes):
    x = np.arange(12, dtype=np.float32).reshape(2, 3, 2) + 1
    feeds = {"lens": np.array([2, 3]), "s0": np.ones((2, 2), np.float32), "x": x}
    made = model(SCAN_8.format(attributes=attributes, lens=lens), 8)
    s, y = run_sdk(made, feeds)
    for member, length in enumerate([2, 3] if lens else [3, 3]):
        steps = x[member, :length][::-1] if attributes else x[member, :length]
        sums = 1 + np.cumsum(steps, axis=0)
        np.testing.assert_allclose(s[member], sums[-1])
        np.testing.assert_allclose(y[member, :length], sums * steps)
        assert not y[member, length:].any()


def test_scan_8_refuses_wrong_lengths():
    feeds = {"lens": np.array([2, 4]), "s0": np.ones((2, 2), np.float32), "x": np.ones((2, 3, 2), np.float32)}
    with pytest.raises(InvalidArgument, match="sequence_lens"):
        run_sdk(model(SCAN_8.format(attributes="", lens="lens"), 8), feeds)


SEQUENCE_MAP = """
g (float[n] a, float[n] b, float[m] c) => (seq(float[n]) s) {
  x = SequenceConstruct (a, b)
  y = SequenceConstruct (b, a)
  z = SequenceConstruct (c)
  s = SequenceMap <body = body (float[n] p, float[n] q, float[n] r) => (float[n] o) { t = Sub (p, q)  o = Mul (t, r) }> (x, y, a)
}"""


def test_sequence_map():
    (mapped,) = run_sdk(model(SEQUENCE_MAP), {"a": vector(1, 2), "b": vector(5, 7), "c": vector(1)})
    assert [each.tolist() for each in mapped] == [[-4, -10], [4, 10]]


def test_sequence_map_refuses_sequences_of_different_lengths():
    with pytest.raises(InvalidArgument, match="equally long"):
        run_sdk(model(SEQUENCE_MAP.replace("(x, y, a)", "(x, z, a)")), {"a": vector(1, 2), "b": vector(5, 7), "c": vector(1)})
