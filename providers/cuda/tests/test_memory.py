"""Memory of the device: used again in the order of the stream, and given back."""

import gc

import numpy as np
from cuda_models import X, layers, model, session_of
from onnx import helper
from ort_sdk_cuda.device import device_context
from ort_sdk_cuda.launching import CudaLauncher

from ort_sdk.api import TensorElementType


def test_arrays_cost_no_call_of_the_driver(driver):
    context = device_context(0)
    context.new((100,), TensorElementType.FLOAT)
    driver.calls.clear()
    for _ in range(100):
        context.new((100,), TensorElementType.FLOAT)
    assert not driver.calls["allocate"] + driver.calls["free"]


def test_large_arrays_go_back_in_the_order_of_the_stream(driver):
    context = device_context(0)
    launcher: CudaLauncher = context.launcher
    before = driver.device_memory.nbytes
    large = np.full(10_000_000, 3, np.float32)
    node = context.upload(large, TensorElementType.FLOAT)
    copied = context.copied(node)
    del node
    gc.collect()
    # the copy was queued before, and reads memory that is given back after it
    np.testing.assert_array_equal(context.download(copied), large)
    del copied
    gc.collect()
    launcher.queue.settle()
    launcher.pool.trim()
    launcher.queue.settle()
    assert driver.device_memory.nbytes <= before + (4 << 20)


def test_sessions_leave_nothing(on_stand_in):
    driver = on_stand_in().driver
    x = np.ones((3, 64), np.float32)

    def used():
        session = session_of(layers(4, 64))
        for _ in range(4):
            session.run(None, {"x": x})
        session.close()
        del session
        gc.collect()
        queue = device_context(0).launcher.queue
        queue.settle()
        return driver.device_memory.nbytes, driver.pinned_memory.nbytes

    first = used()
    assert [used() for _ in range(3)][-1] == first


def test_growing_shapes(cuda):
    session = session_of(model([helper.make_node("Exp", ["x"], ["e"]), helper.make_node("Add", ["e", "x"], ["y"])]))
    for rows in (1, 3, 200, 2, 1000, 7):
        x = np.resize(X, (rows, 30))
        for _ in range(3):
            np.testing.assert_allclose(session.run(None, {"x": x})[0], np.exp(x) + x, rtol=1e-6, atol=1e-6)
