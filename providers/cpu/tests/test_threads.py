"""Options for threads: what kernels use while a session runs, and that nothing of it stays behind."""

import ctypes
import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from onnx import TensorProto, helper
from ort_sdk_cpu.execution_provider import CpuExecutionProvider
from ort_sdk_cpu.platform import libraries, run_settings, threads

import ort_sdk as ort
from ort_sdk.api import InvalidArgument

needs_openmp = pytest.mark.skipif(not libraries.has_openmp(), reason="no OpenMP library")

_SCRIPT = """
import os, sys
import numpy as np, ort_sdk as ort
from onnx import TensorProto, helper
x = np.random.default_rng(0).standard_normal((256, 512)).astype(np.float32)
nodes = [helper.make_node("Add", ["x", "x"], ["a"]), helper.make_node("Erf", ["a"], ["y"])]
info = helper.make_tensor_value_info
graph = helper.make_graph(nodes, "g", [info("x", 1, x.shape)], [info("y", 1, None)])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
before = len(os.listdir("/proc/self/task"))
options = ort.SessionOptions()
options.intra_op_num_threads = int(sys.argv[1])
for entry in sys.argv[2:]: options.add_session_config_entry(*entry.split("="))
session = ort.InferenceSession(model, options)
for _ in range(4): session.run(None, {"x": x})
print(len(os.listdir("/proc/self/task")) - before, os.environ.get("GOMP_SPINCOUNT"))
"""


def _in_process(*arguments, **environment):
    """(threads that a session of its own process has started, OpenMP's spin count)."""
    variables = {name: value for name, value in os.environ.items() if name not in {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"}}
    command = [sys.executable, "-c", _SCRIPT, *arguments]
    output = subprocess.run(command, env=variables | environment, capture_output=True, text=True, check=True).stdout
    started, spins = output.split()
    return int(started), spins


def _provider(**config):
    entries = {f"session.{name}": value for name, value in config.items()}
    return CpuExecutionProvider("CPUExecutionProvider", session_options=entries)


@pytest.fixture(scope="module")
def _compiled():
    """Compiling starts a thread of its own: it is done before threads are counted."""
    _in_process("1")


@needs_openmp
@pytest.mark.usefixtures("_compiled")
@pytest.mark.parametrize(("count", "started"), [("1", 0), ("2", 1), ("4", 3)])
def test_kernels_use_as_many_threads_as_the_option_says(count, started):
    assert _in_process(count)[0] == started


@needs_openmp
def test_waiting_threads_spin_a_little_or_not_at_all_and_the_users_setting_stays():
    assert _in_process("2")[1] == libraries.SPIN_COUNT
    assert _in_process("2", "session.intra_op.allow_spinning=0")[1] == "0"
    assert _in_process("2", "session.intra_op.allow_spinning=0", GOMP_SPINCOUNT="77")[1] == "77"


@needs_openmp
def test_waiting_threads_spin_as_long_as_a_session_says():
    duration = "session.intra_op.spin_duration_us=250"
    assert _in_process("2", duration)[1] == str(250 * libraries.SPINS_PER_MICROSECOND)
    assert _in_process("2", duration, "session.intra_op.allow_spinning=0")[1] == "0"
    with pytest.raises(InvalidArgument, match="'soon'; it takes a whole number of microseconds"):
        _provider(**{"intra_op.spin_duration_us": "soon"})


@needs_openmp
def test_a_scope_sets_openmp_and_restores_it():
    openmp = ctypes.CDLL(libraries.OPENMP_FILE)
    before = openmp.omp_get_max_threads()
    with _provider(intra_op_num_threads="3").run_scope():
        assert (libraries.thread_count(), openmp.omp_get_max_threads()) == (3, 3)
        with _provider(intra_op_num_threads="1").run_scope():
            assert (libraries.thread_count(), openmp.omp_get_max_threads()) == (1, 1)
        assert (libraries.thread_count(), openmp.omp_get_max_threads()) == (3, 3)
    assert (libraries.thread_count(), openmp.omp_get_max_threads()) == (run_settings.default_threads(), before)


def test_a_scope_is_of_one_thread():
    seen = []
    with _provider(intra_op_num_threads="5").run_scope():
        other = threading.Thread(target=lambda: seen.append(libraries.thread_count()))
        other.start()
        other.join()
    assert seen == [run_settings.default_threads()]


def test_no_number_means_the_physical_cores():
    assert _provider().threads == _provider(intra_op_num_threads="0").threads == run_settings.default_threads() >= 1
    assert run_settings.default_threads() <= run_settings.openmp_default_threads()


@pytest.mark.parametrize("text", ["-1", "two", "1.5", ""])
def test_wrong_numbers_are_refused(text):
    with pytest.raises(InvalidArgument, match="intra_op_num_threads"):
        _provider(intra_op_num_threads=text)


def test_products_by_numpy_use_one_thread_during_a_run_only():
    functions = threads._blas()
    if functions is None:
        pytest.skip("NumPy has no OpenBLAS of its own")
    before = functions[0]()
    provider, matrix = _provider(), np.eye(3, dtype=np.float32)
    provider.uses_blas = True
    with provider.run_scope():
        assert functions[0]() == before
        np.testing.assert_array_equal(threads.blas_matmul(matrix, matrix), matrix)
        assert functions[0]() == 1
        with provider.run_scope():
            threads.blas_matmul(matrix, matrix)
        threads.blas_matmul(matrix, matrix)
        assert functions[0]() == 1
    assert functions[0]() == before
    threads.blas_matmul(matrix, matrix)
    assert functions[0]() == before


def test_results_do_not_depend_on_threads():
    x = np.random.default_rng(0).standard_normal((64, 1024)).astype(np.float32)
    info = helper.make_tensor_value_info
    nodes = [helper.make_node("Softmax", ["x"], ["s"]), helper.make_node("Mul", ["s", "x"], ["y"])]
    graph = helper.make_graph(nodes, "g", [info("x", TensorProto.FLOAT, x.shape)], [info("y", TensorProto.FLOAT, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    results = []
    for count in (1, 2, 7):
        options = ort.SessionOptions()
        options.intra_op_num_threads = count
        session = ort.InferenceSession(model, options)
        results += [session.run(None, {"x": x})[0] for _ in range(4)]
    for result in results:
        np.testing.assert_array_equal(result, results[0])
