"""Mutants of files in ORT format: each gives a clear error or a right result, in bounded time and memory, without a crash.

A failure names its seed; ``ort_mutations.rebuild(folder, seed)`` gives the file again.
"""

import json
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import ort_sdk
from ort_sdk.testing.cases import load_cases
from tests.loader.ort_files import SMALL_FEEDS, as_bytes, convert, small_model
from tests.models.test_models import FEEDS

MODELS = Path(__file__).resolve().parents[1] / "models" / "data"
WORKER = Path(__file__).with_name("ort_worker.py")
SHORT, LONG = 300, 10_000
BATCH = 1000
HEADROOM_BYTES = 64 << 20
NODE_CASES = (
    "test_loop11", "test_loop13_seq", "test_if", "test_if_seq", "test_scan9_sum", "test_sequence_insert_at_back",
    "test_string_concat", "test_string_split_basic", "test_ai_onnx_ml_label_encoder_string_int",
    "test_tfidfvectorizer_tf_batch_onlybigrams_skip0", "test_gemm_default_matrix_bias", "test_conv_with_strides_padding",
    "test_lstm_defaults", "test_constantofshape_float_ones", "test_resize_upsample_scales_nearest", "test_qlinearconv",
    "test_slice", "test_nonmaxsuppression_suppress_by_IOU", "test_reshape_reordered_all_dims", "test_expand_dim_changed",
)  # fmt: skip
OWN_MODELS = ("control_flow_opset13", "gru_opset12")


def sparse_and_strings():
    """Sparse weights, strings, a weight that may be overridden."""
    sparse = helper.make_sparse_tensor(
        helper.make_tensor("s", TensorProto.FLOAT, [2], [1.0, 2.0]),
        helper.make_tensor("", TensorProto.INT64, [2], [1, 4]),
        [2, 3],
    )
    texts = numpy_helper.from_array(np.array(["a", "ü", ""], dtype=object), "texts")
    scalar = numpy_helper.from_array(np.array(2.5, np.float32), "scalar")
    nodes = [
        helper.make_node("Add", ["x", "s"], ["h"]),
        helper.make_node("Mul", ["h", "scalar"], ["y"]),
        helper.make_node("Identity", ["texts"], ["words"]),
    ]
    value = helper.make_tensor_value_info
    inputs = [value("x", TensorProto.FLOAT, [2, 3]), value("scalar", TensorProto.FLOAT, [])]
    outputs = [value("y", TensorProto.FLOAT, [2, 3]), value("words", TensorProto.STRING, [3])]
    graph = helper.make_graph(nodes, "constants", inputs, outputs, [scalar, texts], sparse_initializer=[sparse])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def convert_here(model, target):
    """Let ort_sdk write a model in ORT format."""
    options = ort_sdk.SessionOptions()
    options.optimized_model_filepath = str(target)
    ort_sdk.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return target


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """A folder of files in ORT format by onnxruntime and by ort_sdk, each with feeds."""
    folder = tmp_path_factory.mktemp("sources")
    models = [("small", as_bytes(small_model()), SMALL_FEEDS)]
    models.append(("sparse_and_strings", sparse_and_strings(), {"x": np.ones((2, 3), np.float32)}))
    models += [(name, (MODELS / f"{name}.onnx").read_bytes(), FEEDS[name][0]) for name in OWN_MODELS]
    for case in load_cases("node"):
        if case.name in NODE_CASES:
            inputs, _ = next(iter(case.data_sets()))
            models.append((case.name, case.model_bytes(), dict(zip(case.feed_names(), inputs, strict=True))))
    for name, model, feeds in models:
        for writer in (convert, convert_here):
            path = folder / f"{name}_{writer.__name__}.ort"
            writer(model, path)
            path.with_suffix(".feeds").write_bytes(pickle.dumps(feeds))
    return folder


def try_seeds(library, folder, first, count):
    """What came of each seed; a crash is an outcome, too."""
    rows = []
    while len(rows) < count:
        begin = first + len(rows)
        command = [sys.executable, "-P", WORKER, library, folder, str(begin), str(first + count - begin)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        rows += [line for line in lines if "kind" in line]
        if done.returncode:
            assert lines, f"{library} failed before the first mutant:\n{done.stderr}"
            rows.append(
                {"seed": lines[-1]["begins"], "kind": "crash", "text": done.stderr[-500:], "peak": 0, "run_peak": 0, "bytes": 0}
            )
    return rows


def check(rows):
    """Fails with all that may not be."""
    wrong = [row for row in rows if row["kind"] not in {"result", "refused"}]
    hungry = [row for row in rows if max(row["peak"], row["run_peak"]) > HEADROOM_BYTES + 2 * row["bytes"]]
    assert [*wrong, *hungry] == []


def results_of(library, folder, seed):
    path = folder / f"{library}-{seed}.results"
    return pickle.loads(path.read_bytes()) if path.exists() else None  # noqa: S301 - written by the worker


def is_same(actual, expected):
    if isinstance(expected, list):
        return len(actual) == len(expected) and all(map(is_same, actual, expected))
    if isinstance(expected, np.ndarray) and expected.dtype.kind == "f":
        if actual.shape != expected.shape:
            return False
        # Bits of a weight may have become NaN or huge, and how far these spread is each kernel's own.
        known = np.isfinite(actual) & np.isfinite(expected)
        return np.allclose(actual[known], expected[known], rtol=1e-2, atol=1e-4)
    return np.array_equal(actual, expected)


def disagreements(folder, rows):
    """Seeds for which both runtimes give results, and different ones."""
    found = []
    for row in rows:
        ours, theirs = (results_of(library, folder, row["seed"]) for library in ("ort_sdk", "onnxruntime"))
        if ours is not None and theirs is not None and not is_same(ours[0], theirs[0]):
            found.append(row["seed"])
    return found


def test_sources_are_many(sources):
    assert len(list(sources.glob("*.ort"))) == 2 * (2 + len(OWN_MODELS) + len(NODE_CASES))


def test_mutants(sources):
    rows = try_seeds("ort_sdk", sources, 0, SHORT)
    check(rows)
    kinds = [row["kind"] for row in rows]
    assert min(kinds.count("result"), kinds.count("refused")) > SHORT // 10


@pytest.mark.slow
@pytest.mark.parametrize("first", range(SHORT, SHORT + LONG, BATCH))
def test_many_mutants(first, sources):
    check(try_seeds("ort_sdk", sources, first, BATCH))


@pytest.mark.slow
def test_onnxruntime_agrees(sources):
    rows = try_seeds("ort_sdk", sources, 0, BATCH)
    try_seeds("onnxruntime", sources, 0, BATCH)
    assert disagreements(sources, rows) == []
