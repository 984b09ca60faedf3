"""Kernels are compiled in a process of their own: this one waits, raises, or goes on, and loads no compiler."""

import functools
import os
import subprocess
import sys
import threading
import time

import pytest
from ort_sdk_cpu.jit import code_store, task_code
from ort_sdk_cpu.jit.compiler import process, worker
from ort_sdk_cpu.jit.compiler.messages import CompileReply, CompileRequest, read_message, write_message
from ort_sdk_cpu.platform import libraries

from ort_sdk.api import CompilationContext, CompilationPending, CompilationPolicy, RuntimeException

pytestmark = [
    pytest.mark.skipif(not libraries.numba().is_usable, reason=str(libraries.numba())),
    pytest.mark.skipif(os.name != "posix", reason="pipes are inherited on POSIX systems only"),
]

PATIENCE = 60
SLEEPING = functools.partial(time.sleep, 600)
FAILING = functools.partial(int, "no such instruction")
DYING = functools.partial(exec, "import os; os.kill(os.getpid(), 9)")


@pytest.fixture
def compiler():
    made = process._Compiler()
    yield made
    made._end()


@pytest.mark.parametrize("size", [0, 1, 70_000, 3_000_000])
def test_messages_of_any_size(size):
    """Larger ones than a pipe holds, too."""
    reader, writer = os.pipe()
    message = CompileReply("name.image", os.urandom(size), 1.5, "")
    thread = threading.Thread(target=write_message, args=(writer, message))
    thread.start()
    assert read_message(reader) == message
    thread.join()
    os.close(writer)
    with pytest.raises(EOFError):
        read_message(reader)
    os.close(reader)


def test_what_a_build_raises_is_raised_here(compiler):
    reply = compiler.reply(CompileRequest("failing-0", FAILING))
    assert "ValueError: invalid literal for int() with base 10: 'no such instruction'" in reply.error
    # and the process goes on
    assert compiler.reply(CompileRequest("failing-1", FAILING)).error


def test_errors_name_the_kernel():
    with pytest.raises(RuntimeException, match=r"compiling the kernel failing-2 failed(.|\n)*no such instruction"):
        process.compile_elsewhere(CompileRequest("failing-2", FAILING))


def test_a_process_that_ended_is_started_again(compiler):
    assert compiler.reply(CompileRequest("failing-3", FAILING)).error
    compiler._process.kill()
    compiler._process.wait()
    assert compiler.reply(CompileRequest("failing-4", FAILING)).error


def test_a_kernel_that_kills_the_compiler_twice(compiler):
    with pytest.raises(RuntimeException, match=r"ended with code -9 while it compiled dying-0"):
        compiler.reply(CompileRequest("dying-0", DYING))
    assert compiler.reply(CompileRequest("failing-5", FAILING)).error


def test_waiting_ends_when_it_is_cancelled(compiler):
    """What was begun is compiled to the end, for the next one who asks."""
    cancelled = threading.Event()
    cancelled.set()
    slow = functools.partial(exec, "import time; time.sleep(1.5)")
    with CompilationContext(CompilationPolicy.WAIT, cancelled.is_set), pytest.raises(CompilationPending):
        compiler.reply(CompileRequest("sleeping-0", slow))
    process = compiler._process.pid
    assert "no such instruction" in compiler.reply(CompileRequest("failing-11", FAILING)).error
    assert compiler._process.pid == process


def test_a_thread_that_waits_for_another_ones_kernel_can_be_cancelled(compiler):
    ends = threading.Event(), threading.Event()

    def wait(end, name):
        with CompilationContext(CompilationPolicy.WAIT, end.is_set), pytest.raises(CompilationPending):
            compiler.reply(CompileRequest(name, SLEEPING))

    threads = [threading.Thread(target=wait, args=(end, f"sleeping-{index}")) for index, end in enumerate(ends)]
    threads[0].start()
    time.sleep(0.5)
    threads[1].start()
    ends[1].set()
    threads[1].join(PATIENCE)
    assert not threads[1].is_alive()
    assert threads[0].is_alive()
    ends[0].set()
    threads[0].join(PATIENCE)
    assert not threads[0].is_alive()


def test_background_compilers_have_low_priority(compiler):
    with CompilationContext(CompilationPolicy.WAIT, in_background=True):
        compiler.reply(CompileRequest("failing-6", FAILING))
    assert os.getpriority(os.PRIO_PROCESS, compiler._process.pid) == process.NICENESS


def test_signals_of_the_terminal_are_not_for_the_compiler(compiler):
    compiler.reply(CompileRequest("failing-7", FAILING))
    assert os.getpgid(compiler._process.pid) != os.getpgid(0)


def test_an_idle_compiler_ends(monkeypatch):
    requests, replies = os.pipe(), os.pipe()
    monkeypatch.setattr(sys, "argv", ["worker", str(requests[0]), str(replies[1])])
    monkeypatch.setattr(worker, "IDLE_SECONDS", 0.1)
    write_message(requests[1], CompileRequest("failing-8", FAILING))
    worker.main()
    assert "no such instruction" in read_message(replies[0]).error
    for pipe in (*requests, *replies):
        os.close(pipe)


def test_a_compiler_ends_with_the_process_that_started_it(tmp_path):
    code = """
import functools, os, threading, time
from ort_sdk_cpu.jit.compiler import process
from ort_sdk_cpu.jit.compiler.messages import CompileRequest
compiler = process._compiler()
request = CompileRequest("sleeping", functools.partial(time.sleep, 600))
threading.Thread(target=compiler.reply, args=(request,), daemon=True).start()
while compiler._process is None: time.sleep(0.01)
print(compiler._process.pid)
"""
    done = script(code, tmp_path)
    assert done.returncode == 0, done.stderr
    pid = int(done.stdout)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_code_that_is_not_waited_for(tmp_path, monkeypatch):
    from ort_sdk_cpu.jit import cache_folder

    monkeypatch.setattr(cache_folder, "kernel_folders", lambda: cache_folder.KernelFolders((tmp_path,), tmp_path))
    store = code_store._Store()
    name, build = "run_nothing-0", functools.partial(task_code._emitted, "nothing", "define void @nothing() {\n  ret void\n}")
    with CompilationContext(CompilationPolicy.RAISE), pytest.raises(CompilationPending):
        store.address(name, build)
    assert store.address(name, build)
    with CompilationContext(CompilationPolicy.RAISE):
        assert store.address(name, build)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_leaves_the_compiler_to_its_parent():
    with pytest.raises(RuntimeException):
        process.compile_elsewhere(CompileRequest("failing-9", FAILING))
    pid = process._compiler()._process.pid
    child = os.fork()
    if not child:
        os._exit(int(process._compiler()._process is not None))
    assert os.waitpid(child, 0)[1] == 0
    with pytest.raises(RuntimeException):
        process.compile_elsewhere(CompileRequest("failing-10", FAILING))
    assert process._compiler()._process.pid == pid


def script(code, folder, **environment):
    own = {"ORT_SDK_CPU_CACHE_DIR": str(folder), "ORT_SDK_COMPILATION": "background"}
    command = [sys.executable, "-P", "-c", code]
    return subprocess.run(command, env=os.environ | own | environment, capture_output=True, text=True, check=False, timeout=600)


SESSION = """
import sys
import numpy as np, onnx, ort_sdk
from onnx import helper, numpy_helper
rng = np.random.default_rng(0)
weight, scale = rng.standard_normal((256, 256)).astype(np.float32) / 16, rng.random(256, np.float32)
nodes = [
    helper.make_node("MatMul", ["x", "w"], ["p"]),
    helper.make_node("LayerNormalization", ["p", "s"], ["n"]),
    helper.make_node("Mul", ["n", "n"], ["m"]),
    helper.make_node("Sub", ["m", "p"], ["d"]),
    helper.make_node("Softmax", ["d"], ["y"]),
]
value = lambda name: helper.make_tensor_value_info(name, 1, ["n", 256])
constants = [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(scale, "s")]
graph = helper.make_graph(nodes, "g", [value("x")], [value("y")], constants)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()

def expected(x):
    p = x.astype(np.float64) @ weight
    c = p - p.mean(1, keepdims=True)
    n = c / np.sqrt((c * c).mean(1, keepdims=True) + 1e-5) * scale
    e = np.exp((n * n - p) - (n * n - p).max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)

def check(session, rows):
    x = rng.standard_normal((rows, 256)).astype(np.float32)
    assert abs(session.run(None, {"x": x})[0] - expected(x)).max() < 1e-5
"""


def test_a_session_from_sources_answers_at_once_and_is_compiled_then(tmp_path):
    """Nothing is printed, no compiler is loaded here, and what a program fuses is compiled in the end, too."""
    code = f"""{SESSION}
import time
session = ort_sdk.InferenceSession(model)
for rows in (64, 64, 64, 30, 500):
    check(session, rows)
session = ort_sdk.InferenceSession(model)
check(session, 500)
assert session.wait_for_compilation(60)
end = time.monotonic() + 60
while not session.has_settled() and time.monotonic() < end:
    check(session, 500)
assert session.has_settled()
assert any("Mul" in group for row in session.program_report() for group in row.fused), session.program_report()
assert not {{"numba", "llvmlite"}} & set(sys.modules)
"""
    done = script(code, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), done.stderr
    assert list(tmp_path.glob("*/chain_*"))
    assert list(tmp_path.glob("*/normalization.rows-*"))
    ready = "session = ort_sdk.InferenceSession(model)\ncheck(session, 64)\nassert session._runs._ready"
    again = script(f"{SESSION}\n{ready}", tmp_path)
    assert again.returncode == 0, again.stderr


@pytest.mark.parametrize("seconds", [0, 0.3, 1, 2.5])
def test_a_process_ends_while_kernels_are_compiled(tmp_path, seconds):
    """At any time, and with the session in use: the thread that waits is ended first, and nothing is printed."""
    code = f"""{SESSION}
import time
session = ort_sdk.InferenceSession(model)
end = time.monotonic() + {seconds}
check(session, 64)
while time.monotonic() < end:
    check(session, 64)
"""
    done = script(code, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), done.stderr


def test_blas_keeps_its_threads_while_it_computes(tmp_path):
    """Runs limit BLAS from the first on: a run of the thread that set another number would do so while it computes."""
    code = f"""{SESSION}
from ort_sdk_cpu.platform.threads import RunScope
from ort_sdk.api import CompilationContext, CompilationPolicy
session = ort_sdk.InferenceSession(model)
with CompilationContext(CompilationPolicy.AVOID):
    assert isinstance(session._state.providers[0].execution_provider.run_scope(), RunScope)
check(session, 500)
"""
    assert script(code, tmp_path).returncode == 0


def test_compiled_kernels_are_logged_at_the_level_info(tmp_path):
    code = f"""{SESSION}
import logging
logging.basicConfig(level=logging.INFO)
options = ort_sdk.SessionOptions()
options.log_severity_level = 1
check(ort_sdk.InferenceSession(model, options), 64)
"""
    done = script(code, tmp_path, ORT_SDK_COMPILATION="wait")
    assert done.returncode == 0, done.stderr
    assert "INFO:ort_sdk.cpu:compiled CPU kernel 1, " in done.stderr


def test_results_agree_with_and_without_compiled_kernels(tmp_path):
    code = f"""{SESSION}
session = ort_sdk.InferenceSession(model)
for rows in (1, 7, 64, 64, 64):
    check(session, rows)
"""
    for mode in ("never", "wait"):
        done = script(code, tmp_path, ORT_SDK_COMPILATION=mode)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        assert bool(list(tmp_path.rglob("*.image"))) == (mode == "wait" and sys.platform == "linux")
