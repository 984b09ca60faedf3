"""Faulty models: the right class, and a text that names the fault, at every level of optimization."""

import threading
import tracemalloc

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

import ort_sdk
from ort_sdk.api import OrtSdkError
from tests.fuzz.trial import limits
from tests.session.bad_models import (
    BAD_MODELS,
    FLOAT,
    INT64,
    constant,
    deep,
    deep_bodies,
    explosive,
    nested,
    node,
    one,
    serialized,
)
from tests.session.models import chain, value

ACCEPTED_BY_ONNXRUNTIME = {
    "initializer twice",
    "input without a name",
    "one domain twice",
    "attribute of no function",
    "functions called too deep",
    "bodies of functions too deep",
}
ONNXRUNTIME_NEVER_ENDS = {"function that explodes"}
LEVELS = ["ORT_DISABLE_ALL", "ORT_ENABLE_ALL"]
X = np.ones((2, 2), np.float32)


def session(package, source, level="ORT_ENABLE_ALL"):
    options = package.SessionOptions()
    options.graph_optimization_level = getattr(package.GraphOptimizationLevel, level)
    options.log_severity_level = 4
    return package.InferenceSession(serialized(source), options, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("fault", BAD_MODELS)
def test_fault_is_named(fault, level):
    source, error_class, words = BAD_MODELS[fault]
    with pytest.raises(OrtSdkError, match=f"(?s){words}") as caught:
        session(ort_sdk, source, level)
    assert error_class in {each.__name__ for each in type(caught.value).__mro__}


@pytest.mark.parametrize("fault", sorted(BAD_MODELS.keys() - ONNXRUNTIME_NEVER_ENDS))
def test_onnxruntime_refuses_it_too(fault):
    if fault in ACCEPTED_BY_ONNXRUNTIME:
        session(onnxruntime, BAD_MODELS[fault][0])
        return
    with pytest.raises(Exception, match="ONNXRuntimeError"):
        session(onnxruntime, BAD_MODELS[fault][0])


@pytest.mark.parametrize("level", LEVELS)
def test_deepest_models_that_are_allowed(level):
    for source in (nested(20), deep(100), deep_bodies(40), explosive(8)):
        made = session(ort_sdk, source, level)
        feeds = {"x": X, "c": np.array(True)}
        (y,) = made.run(None, {argument.name: feeds[argument.name] for argument in made.get_inputs()})
        np.testing.assert_array_equal(y, X)


GIGANTIC = {
    "ConstantOfShape": (["shape"], {"shape": np.array([2**20, 2**20])}, {}),
    "Expand": (["one", "shape"], {"one": np.float32(1), "shape": np.array([2**20, 2**20])}, {}),
    "Tile": (["ones", "repeats"], {"ones": np.ones((2, 2), np.float32), "repeats": np.array([2**20, 2**20])}, {}),
    "Range": (["low", "high", "step"], {"low": np.int64(0), "high": np.int64(2**42), "step": np.int64(1)}, {}),
    "RandomNormal": ([], {}, {"shape": [2**20, 2**20]}),
    "RandomUniform": ([], {}, {"shape": [2**20, 2**20]}),
    "Resize": (["image", "", "", "sizes"],
               {"image": np.ones((1, 1, 2, 2), np.float32), "sizes": np.array([1, 1, 2**20, 2**20])}, {}),
    "Pad": (["ones", "pads"], {"ones": np.ones((2, 2), np.float32), "pads": np.array([0, 0, 2**20, 2**20])}, {}),
    "OneHot": (["places", "depth", "pair"],
               {"places": np.zeros(2**12, np.int64), "depth": np.int64(2**30), "pair": np.array([0, 1], np.float32)}, {}),
    "ConvTranspose": (["image", "kernel"],
                      {"image": np.ones((1, 1, 2, 2), np.float32), "kernel": np.ones((1, 1, 2, 2), np.float32)},
                      {"strides": [2**20, 2**20]}),
    "HannWindow": (["length"], {"length": np.int64(2**42)}, {}),
}  # fmt: skip
"""Operator → (inputs, constants, attributes): results of four terabytes and more from next to nothing."""


@pytest.mark.parametrize("is_fed", [False, True])
@pytest.mark.parametrize("op_type", GIGANTIC)
def test_gigantic_results_are_never_tried_before_the_run(op_type, is_fed):
    names, constants, attributes = GIGANTIC[op_type]
    call = node(op_type, names, ["y"], **attributes)
    element_type = INT64 if op_type == "Range" else FLOAT
    inputs = [value(name, list(array.shape), helper.np_dtype_to_tensor_dtype(array.dtype)) for name, array in constants.items()]
    fed = {"inputs": inputs} if is_fed else {"inputs": [], "initializers": [constant(*each) for each in constants.items()]}
    source = serialized(one(call, outputs=[value("y", None, element_type)], **fed))
    with limits():
        tracemalloc.start()
        try:
            made = session(ort_sdk, source)
            assert tracemalloc.get_traced_memory()[1] < 50 << 20
        finally:
            tracemalloc.stop()
        for _ in range(3):
            with pytest.raises(OrtSdkError, match=rf"while running {op_type} node|does not fit into memory"):
                made.run(None, constants if is_fed else {})


def test_sizes_that_multiply_without_end():
    """Each step squares a number in the graph; after sixty of them it would fill the memory."""
    squares = [node("Mul", [f"n{step}", f"n{step}"], [f"n{step + 1}"]) for step in range(60)]
    source = one(*squares, node("Expand", ["x", "n60"], ["y"]), initializers=[constant("n0", np.array([3]))])
    made = session(ort_sdk, source)
    with pytest.raises(OrtSdkError, match=r"while running Expand node|does not fit into memory"):
        made.run(None, {"x": X})


def test_endless_loop_stops_when_terminated():
    body = helper.make_graph(
        [node("Identity", ["go"], ["on"]), node("Add", ["s", "s"], ["r"])],
        "body",
        [value("i", [], INT64), value("go", [], TensorProto.BOOL), value("s", [2, 2])],
        [value("on", [], TensorProto.BOOL), value("r", [2, 2])],
    )
    trips = constant("trips", np.int64(2**62))
    made = session(ort_sdk, one(node("Loop", ["trips", "", "x"], ["y"], body=body), initializers=[trips]))
    options = ort_sdk.RunOptions()
    timer = threading.Timer(0.2, setattr, (options, "terminate", True))
    timer.start()
    with pytest.raises(ort_sdk.api.Fail, match="terminate flag"):
        made.run(None, {"x": X}, options)
    timer.join()


def test_thousands_of_nodes_inputs_and_outputs():
    made = session(ort_sdk, chain(3000))
    np.testing.assert_array_equal(made.run(None, {"x": np.eye(2, dtype=np.float32)})[0], np.eye(2))
    names = [f"y{index}" for index in range(5000)]
    parts = node("Split", ["x"], names)
    joined = node("Concat", names, ["y"], axis=0)
    outputs = [value(name, [1], FLOAT) for name in names]
    made = session(ort_sdk, one(parts, joined, inputs=[value("x", [5000])], outputs=[value("y", [5000]), *outputs]))
    results = made.run(None, {"x": np.arange(5000, dtype=np.float32)})
    assert len(results) == 5001
    np.testing.assert_array_equal(results[0], np.arange(5000))
