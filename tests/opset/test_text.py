"""String operators against onnxruntime, and against what ONNX says where it cannot run here."""

from __future__ import annotations

import numpy as np
import pytest

from ort_sdk.api import InvalidArgument, InvalidGraph, TensorElementType
from tests.opset.one_node import compare, make_model, run_sdk

STRING, INT64, FLOAT, BOOL = (int(TensorElementType[name]) for name in ("STRING", "INT64", "FLOAT", "BOOL"))


def strings(*values):
    return np.array(values, dtype=object)


def run(op_type, inputs, types, opset, **attributes):
    model, feeds = make_model(op_type, inputs, len(types), opset=opset, attributes=attributes, output_types=types)
    return run_sdk(model, feeds)


def test_concat_broadcasts():
    (y,) = compare("StringConcat", [strings("a", "ü").reshape(2, 1), strings("x", "", "z")], opset=20)
    assert y.tolist() == [["ax", "a", "az"], ["üx", "ü", "üz"]]


@pytest.mark.parametrize(
    "attributes",
    [{}, {"maxsplit": 1}, {"delimiter": "-"}, {"delimiter": "-", "maxsplit": 1}, {"delimiter": "--"}, {"delimiter": ""}],
)
def test_split(attributes):
    x = strings("", "a b  c ", " x", "a-b-", "-", "a--b", "-a-b-c").reshape(1, 7)
    compare("StringSplit", [x], 2, opset=20, attributes=attributes)


PATTERNS = [
    "a$", ".", "(?i)é", r"\d", r"\D", r"\w+", r"\W", r"\s", r"\S", r"[\d]", r"[^\w]", r"[\W]", r"[\D\S]", "[[:alpha:]]+",
    "[^[:alpha:]]", "[]a]", "[^]a]", r"\Qx.y\E", r"\x{61}", r"[\x{61}-c]+", "(?P<n>a)b", "(?<n>a)b", r"\ba\b", r"a\b.", "(?s).",
    "[[]", r"[\]a]", "a|ab", "(?:a|b)*", r"\.", r"[\\]", "a{2}", r"\Aa\z", "(?i)[É]", "(?m)^a$", "[-a]", "[a-]",
]  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
def test_regex_means_what_it_means_to_re2(pattern):
    x = strings(
        "a", "é", "É", "\n", "a\n", "_", "9", "٣", " ", "[", "]", "-", "ab", "aé", "x.y", "a]", "\\", "^", "", "foo@bar", "aa"
    )  # fmt: skip
    compare("RegexFullMatch", [x], opset=20, attributes={"pattern": pattern})


@pytest.mark.parametrize("pattern", [r"(a)\1", "(?=a)a", "(?<!a)b", "(", "[z-a]", "a**", "[a", "\\", r"\pL", "[[:nothing:]]"])
def test_patterns_that_are_not_re2_are_refused(pattern):
    with pytest.raises(InvalidGraph, match="not a supported RE2 regular expression"):
        run("RegexFullMatch", [strings("a")], [BOOL], 20, pattern=pattern)


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({}, ["Monday", "tuesday", "MONDAY"]),
        ({"case_change_action": "UPPER"}, ["MONDAY", "TUESDAY", "MONDAY"]),
        ({"case_change_action": "LOWER", "stopwords": ["monday"]}, ["tuesday"]),
        ({"stopwords": ["monday"], "is_case_sensitive": 1}, ["Monday", "tuesday", "MONDAY"]),
        ({"stopwords": ["MONDAY"], "is_case_sensitive": 1, "case_change_action": "LOWER"}, ["monday", "tuesday"]),
        ({"stopwords": ["monday", "Tuesday"]}, [""]),
    ],
)
def test_normalizer(attributes, expected):
    x = strings("Monday", "tuesday", "MONDAY")
    (y,) = run("StringNormalizer", [x], [STRING], 10, **attributes)
    assert y.tolist() == expected
    (y,) = run("StringNormalizer", [x.reshape(1, 3)], [STRING], 10, **attributes)
    assert y.tolist() == [expected]


def test_normalizer_refuses_other_shapes_and_actions():
    with pytest.raises(InvalidArgument, match=r"\[C\] or \[1, C\]"):
        run("StringNormalizer", [strings("a", "b").reshape(2, 1)], [STRING], 10)
    with pytest.raises(InvalidGraph, match="case_change_action"):
        run("StringNormalizer", [strings("a")], [STRING], 10, case_change_action="TITLE")


POOL = {
    "ngram_counts": [0, 4, 10],
    "ngram_indexes": [3, 1, 0, 2, 6, 5, 4, 7, 8],
    "pool": [2, 3, 5, 4, 5, 6, 7, 8, 6, 7, 5, 6, 7, 6, 7, 8],
}


def tf_idf(strings_too=False, **changes):
    attributes = {"mode": "TF", "min_gram_length": 1, "max_gram_length": 3, "max_skip_count": 0, **POOL, **changes}
    pool = attributes.pop("pool")
    return attributes | ({"pool_strings": [str(token) for token in pool]} if strings_too else {"pool_int64s": pool})


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize("skips", [0, 1, 5])
@pytest.mark.parametrize("lengths", [(1, 1), (2, 2), (1, 3), (2, 3)])
@pytest.mark.parametrize("kind", ["int32", "int64", "string"])
@pytest.mark.parametrize("rows", [4, 60])
def test_tf_idf(mode, skips, lengths, kind, rows):
    x = np.random.default_rng(skips).integers(2, 10, (rows, 12))
    changes = {"min_gram_length": lengths[0], "max_gram_length": lengths[1], "max_skip_count": skips}
    weights = [float(each) for each in range(1, 10)] if mode != "TF" else []
    attributes = tf_idf(kind == "string", mode=mode, **changes) | ({"weights": weights} if weights else {})
    x = x.astype(str).astype(object) if kind == "string" else x.astype(kind)
    compare("TfIdfVectorizer", [x], opset=9, attributes=attributes)
    compare("TfIdfVectorizer", [x[0]], opset=9, attributes=attributes)


@pytest.mark.parametrize("skips", [11, 12, 1000])
def test_tf_idf_of_more_skips_than_a_row_is_long(skips):
    x = np.random.default_rng(0).integers(2, 10, (4, 12))
    compare("TfIdfVectorizer", [x], opset=9, attributes=tf_idf(max_skip_count=skips))


@pytest.mark.timeout(20)
def test_tf_idf_looks_no_further_than_a_row_is_long():
    x = np.array([[5, 6, 5, 7, 8]])
    near, far = (run("TfIdfVectorizer", [x], [FLOAT], 9, **tf_idf(max_skip_count=skips)) for skips in (4, (1 << 31) - 1))
    assert near[0].any()
    assert near[0].tolist() == far[0].tolist()


def test_tf_idf_of_a_row_shorter_than_the_n_grams():
    compare("TfIdfVectorizer", [np.array([5, 6])], opset=9, attributes=tf_idf())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mode": "IFT"}, "mode 'IFT'"),
        ({"max_gram_length": 4}, "n-gram lengths 1 to 4"),
        ({"ngram_counts": [0, 4, 99]}, "must be a range inside it"),
        ({"ngram_counts": [0, 4, 9]}, "must be a range inside it"),
        ({"ngram_indexes": [0, 1]}, "one output column"),
        ({"max_skip_count": -1}, "max_skip_count"),
        ({"weights": [1.0]}, "1 weights are given"),
        ({"pool_strings": ["a"]}, "exactly one of"),
    ],
)
def test_tf_idf_refuses_attributes_that_do_not_fit(changes, message):
    with pytest.raises(InvalidGraph, match=message):
        run("TfIdfVectorizer", [np.array([1])], [FLOAT], 9, **tf_idf(**changes))
