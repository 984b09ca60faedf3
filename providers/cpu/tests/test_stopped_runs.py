"""Runs that are told to stop, while compiled code goes through what would take seconds."""

import threading
import time

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from ort_sdk_cpu.platform import libraries

import ort_sdk
from ort_sdk.api import Fail
from ort_sdk.api.stopping import StopFlag, Stoppable, check_stopped, current

pytestmark = pytest.mark.skipif(not libraries.compiled_kernels().is_usable, reason="calls are joined by compiled code")
SIZE, LAYERS = 512, 60


def _products():
    """One product after the other, all of which are one call; long enough for a thousand rows to be stopped on the way."""
    w = (np.random.default_rng(0).standard_normal((SIZE, SIZE)) / SIZE**0.5).astype(np.float32)
    nodes = [helper.make_node("MatMul", [f"x{layer}", "w"], [f"x{layer + 1}"]) for layer in range(LAYERS)]
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x0", TensorProto.FLOAT, ["n", SIZE])],
        [helper.make_tensor_value_info(f"x{LAYERS}", TensorProto.FLOAT, ["n", SIZE])],
        [numpy_helper.from_array(w, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()


@pytest.mark.parametrize("threads", [1, 2])
def test_a_program_stops_between_its_tasks(threads):
    options = ort_sdk.SessionOptions()
    options.intra_op_num_threads = threads
    session = ort_sdk.InferenceSession(_products(), options)
    feeds = {"x0": np.ones((1000, SIZE), np.float32)}
    (expected,) = [session.run(None, feeds) for _ in range(3)][-1]
    start = time.perf_counter()
    session.run(None, feeds)
    whole = time.perf_counter() - start

    told = ort_sdk.RunOptions()
    np.testing.assert_array_equal(session.run(None, feeds, told)[0], expected)
    timer = threading.Timer(whole / 10, lambda: setattr(told, "terminate", True))
    timer.start()
    start = time.perf_counter()
    with pytest.raises(Fail, match="terminate flag"):
        session.run(None, feeds, told)
    assert time.perf_counter() - start < whole * 0.7
    timer.join()
    with pytest.raises(Fail, match="terminate flag"):
        session.run(None, feeds, told)
    np.testing.assert_array_equal(session.run(None, feeds)[0], expected)
    told.terminate = False
    np.testing.assert_array_equal(session.run(None, feeds, told)[0], expected)


def test_runs_look_at_their_own_flag():
    own, other = StopFlag(), StopFlag()
    other.is_set = True
    with Stoppable(own):
        check_stopped()
        with Stoppable(other), pytest.raises(Fail):
            check_stopped()
        check_stopped()
        assert current.address == own.address
    assert not current.address
    check_stopped()
