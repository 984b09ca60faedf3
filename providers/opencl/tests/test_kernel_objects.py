"""Kernel objects: arguments of their own, and nothing that pyopencl makes anew for each of them."""

import linecache
import threading

import numpy as np
import pyopencl as cl
import pytest
from pyopencl import invoker

from ort_sdk.api import TensorElementType
from ort_sdk.device import KernelSource, Launch, Scalar

pytestmark = pytest.mark.opencl

SOURCE = KernelSource(
    "kernel_object", "KERNEL WORKGROUP(4, 1, 1) void kernel_object(GLOBAL(f32) y, f32 a, i32 b) { y[LANE(0)] = a * (f32)b; }\n"
)
TYPES = (None, np.float32, np.int32)


def test_kernels_of_one_signature_add_nothing_to_the_process(context, monkeypatch):
    programs = context.launcher.programs
    lines = dict(linecache.cache)
    first = programs.kernel(SOURCE, TYPES)
    made, generate = [], invoker._generate_enqueue_and_set_args_module
    monkeypatch.setattr(invoker, "_generate_enqueue_and_set_args_module", lambda *key: (made.append(key), generate(*key))[1])
    kernels = [programs.kernel(SOURCE, TYPES) for _ in range(50)]
    assert not made
    assert linecache.cache.keys() == lines.keys()
    assert len({each.int_ptr for each in [first, *kernels]}) == 51


def test_others_get_what_pyopencl_makes(context):
    before = invoker.generate_enqueue_and_set_args
    program = context.launcher.programs.kernel(SOURCE, TYPES).program
    assert invoker.generate_enqueue_and_set_args is before
    queue, host = context.launcher.queue, np.empty(4, np.float32)
    y = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 16)
    cl.Kernel(program, SOURCE.name)(queue.queue, (4,), (4,), y, np.float32(3), np.int32(2))
    cl.enqueue_copy(queue.queue, host, y)
    np.testing.assert_array_equal(host, 6)


def test_threads_make_kernels_with_arguments_of_their_own(context):
    wrong = []

    def work(seed):
        target = context.new((4,), TensorElementType.FLOAT)
        for number in range(20):
            arguments = (target.memory, Scalar("f32", float(seed)), Scalar("i32", number))
            context.launcher.bind([Launch(SOURCE, (1,), (4,), arguments, (0,))], {}, [])()
            wrong.extend([] if (context.download(target) == seed * number).all() else [(seed, number)])

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
