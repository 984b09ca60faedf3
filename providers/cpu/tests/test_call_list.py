"""Neighbouring steps driven by one call: the same results, workspace that grows, threads that work alone, failures."""

import threading

import numpy as np
import onnx.parser
import pytest
from onnx import numpy_helper
from ort_sdk_cpu.jit import call_list, task
from ort_sdk_cpu.jit.native_call import IGNORE_STATUS, NativeCall
from ort_sdk_cpu.memory.workspace import Workspace, WorkspaceBinding, growth
from ort_sdk_cpu.platform import libraries, threads

import ort_sdk as ort

needs_numba = pytest.mark.skipif(not libraries.compiled_kernels().is_usable, reason="no compiler")
RNG = np.random.default_rng(0)
MODEL = """
    <ir_version: 8, opset_import: ["" : 17]>
    agraph (float[1, 16, 20, 20] x) => (float[1, 24, 10, 10] y, float[2400, 8] z) {
        a = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x, wa)
        b = Relu (a)
        c = Conv <kernel_shape = [1, 1]> (b, wb)
        d = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (c)
        e = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (d, wc)
        y = Relu (e)
        rows = Reshape (y, shape)
        z = MatMul (rows, wd)
    }
"""
WEIGHTS = {"wa": (24, 16, 3, 3), "wb": (32, 24, 1, 1), "wc": (24, 32, 3, 3), "wd": (1, 8)}


def model():
    made = onnx.parser.parse_model(MODEL)
    for name, shape in WEIGHTS.items():
        array = (RNG.standard_normal(shape) / 8).astype(np.float32)
        made.graph.initializer.append(numpy_helper.from_array(array, name))
    made.graph.initializer.append(numpy_helper.from_array(np.array([2400, 1]), "shape"))
    return made.SerializeToString()


@pytest.fixture
def joined(monkeypatch):
    """The batches made from now on."""
    made = []
    original = call_list.join_calls

    def join_calls(calls):
        answers = original(calls)
        made.extend(call for count, call in answers if count > 1)
        return answers

    monkeypatch.setattr(call_list, "join_calls", join_calls)
    return made


@needs_numba
@pytest.mark.parametrize("count", [1, 2])
def test_results_are_those_of_steps(joined, count):
    options = ort.SessionOptions()
    options.intra_op_num_threads = count
    session = ort.InferenceSession(model(), options, providers=["CPUExecutionProvider"])
    x = RNG.standard_normal((1, 16, 20, 20)).astype(np.float32)
    first = session.run(None, {"x": x})
    others = [session.run(None, {"x": x * scale}) for scale in (1, 1, 2, 1)]
    assert joined, "nothing was joined"
    for result, expected in zip(others[-1], first, strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)
    assert not np.array_equal(others[2][0], first[0])


@needs_numba
def test_a_thread_that_works_alone_calls_one_after_the_other(joined, monkeypatch):
    session = ort.InferenceSession(model(), providers=["CPUExecutionProvider"])
    x = RNG.standard_normal((1, 16, 20, 20)).astype(np.float32)
    for _ in range(4):
        expected = session.run(None, {"x": x})
    monkeypatch.setattr(threads, "is_serial", lambda: True)
    for result, other in zip(session.run(None, {"x": x}), expected, strict=True):
        np.testing.assert_allclose(result, other, rtol=1e-5, atol=1e-5)


def _call(function, native):
    def call():
        function()

    call.native = native
    return call


def _nothing():
    """A C function that does nothing with what it is given."""
    import ctypes

    return ctypes.cast(ctypes.CDLL(None).getppid, ctypes.c_void_p).value


@needs_numba
def test_working_memory_that_grows_is_told_to_all():
    workspace, told = Workspace(), {}

    def asking(name, nbytes):
        def prepare():
            told[name] = workspace.address("shared", nbytes)

        return _call(prepare, NativeCall(((_nothing(), 0, 0, 0, 0, IGNORE_STATUS),), prepare))

    ((count, call),) = call_list.join_calls([asking("small", 8), asking("large", 1 << 20)])
    assert count == 2
    before = growth.generation
    call()
    assert growth.generation is not before
    assert told["small"] == told["large"] == workspace.address("shared", 1)


def test_a_call_is_told_once_where_memory_is_and_again_on_another_thread_or_when_any_is_replaced():
    workspace = Workspace()
    memory, found = WorkspaceBinding(workspace, "shared", 64), []
    first = memory.renewed_buffer()
    assert first is workspace.buffer("shared", 1)
    assert memory.renewed_buffer() is None
    thread = threading.Thread(target=lambda: found.append((memory.renewed_buffer(), workspace.buffer("shared", 1))))
    thread.start()
    thread.join()
    assert found[0][0] is found[0][1] is not first
    assert memory.renewed_buffer() is first
    larger = workspace.buffer("shared", 1 << 16)
    assert memory.renewed_buffer() is larger is not first
    assert memory.renewed_buffer() is None


@needs_numba
def test_a_function_that_fails_is_asked_again_for_its_error():
    def fail():
        raise ValueError("why")

    done = []
    passes = _call(lambda: done.append("first"), NativeCall(((_nothing(), 0, 0, 0, 0, IGNORE_STATUS),)))
    # The number of the parent process is not 0, so that looking at all bits sees a failure.
    fails = _call(fail, NativeCall(((_nothing(), 0, 0, 0, 0, 0xFFFFFFFF),)))
    ((_, call),) = call_list.join_calls([passes, fails])
    with pytest.raises(ValueError, match="why"):
        call()
    assert call.failed == 1
    assert done == []


@needs_numba
def test_calls_without_any_row_do_nothing():
    """As copies of nothing have none."""

    def nothing():
        raise AssertionError

    nothing.native = NativeCall(())
    call_list.CallList([nothing, nothing])()


NOTHING = {
    "split": "a, b = Split <axis = 1> (x, halves) y = Transpose <perm = [0, 2, 1]> (a) z = Transpose <perm = [0, 2, 1]> (b)",
    "blocks": "y = DepthToSpace <blocksize = 2> (w) z = SpaceToDepth <blocksize = 2> (w)",
}


@needs_numba
@pytest.mark.parametrize("name", NOTHING)
def test_no_samples_among_others(name):
    text = f"""
        <ir_version: 8, opset_import: ["" : 17]>
        agraph (float[n, 6, 7] x, float[n, 4, 4, 4] w) => (y, z) {{ {NOTHING[name]} }}
    """
    made = onnx.parser.parse_model(text)
    made.graph.initializer.append(numpy_helper.from_array(np.array([3, 3]), "halves"))
    session = ort.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    for count in (2, 2, 2, 0, 0, 0, 0, 0, 2, 0):
        feeds = {"x": np.ones((count, 6, 7), np.float32), "w": np.ones((count, 4, 4, 4), np.float32)}
        for result in session.run(None, feeds):
            assert len(result) == count
            assert (result == 1).all()


def test_what_has_no_rows_stays_apart():
    def plain():
        pass

    native = _call(plain, NativeCall(((1, 0, 0, 0, 0, IGNORE_STATUS),)))
    assert call_list.join_calls([plain, native, plain]) == [(1, plain), (1, native), (1, plain)]
    assert call_list.join_calls([]) == []


@needs_numba
@pytest.mark.skipif(not libraries.has_openmp(), reason="no teams of threads")
def test_tasks_of_teams_that_follow_each_other_are_one_row():
    values = RNG.standard_normal((4, 96)).astype(np.float32)
    arrays = [np.zeros((2, 96), np.float32) for _ in range(5)]
    arrays[0][:] = values[:2]

    def copying(source, target, count):
        call = task.TaskCall("kernel.copy", "copy_rows_x32", (0, 0, 1, 1, 1, 2, 96, 0, 0, 0, 384, 4, 0, 0, 0, 384, 4), count)
        call.point(0, target)
        call.point(1, source)
        return call.bound_call(source, target)

    teams = [copying(arrays[at], arrays[at + 1], 2) for at in range(3)]
    made = call_list.CallList([*teams, copying(arrays[3], arrays[4], 1)])
    assert made._count == 2
    assert made._owners == [0, 3]
    made()
    for array in arrays[1:]:
        np.testing.assert_array_equal(array, values[:2])
