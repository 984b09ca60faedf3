"""Programs as captured graphs: one command a run, with kernels and copies as nodes, and nothing that CUDA forbids meanwhile."""

import threading

import numpy as np
import pytest
from cuda_models import X, host_results, layers, model, session_of
from onnx import helper

import ort_sdk as ort


def _runs(session, feeds, times=4):
    for _ in range(times - 1):
        session.run(None, feeds)
    return session.run(None, feeds)


def test_an_add_runs_as_a_captured_graph(driver):
    session = session_of(model([helper.make_node("Add", ["x", "x"], ["y"])]))
    np.testing.assert_array_equal(_runs(session, {"x": X})[0], X + X)
    driver.calls.clear()
    np.testing.assert_array_equal(session.run(None, {"x": 3 * X})[0], 6 * X)
    assert driver.calls["launch_graph"] == 1
    assert not driver.calls["launch"]
    assert not driver.calls["copy_to_device"] + driver.calls["copy_to_host"]


def test_a_program_is_captured_once(driver):
    content = layers(6, 16)
    x = np.random.default_rng(0).standard_normal((3, 16)).astype(np.float32)
    session = session_of(content)
    wanted = host_results(content, {"x": x})[0]
    for _ in range(6):
        np.testing.assert_allclose(session.run(None, {"x": x})[0], wanted, rtol=1e-5)
    assert driver.calls["begin_capture"] == driver.calls["instantiate"] == 1
    assert driver.calls["launch_graph"] >= 3
    assert not driver.calls["set_kernel_node"] + driver.calls["set_copy_node"]


def test_a_program_of_one_call_with_many_kernels_is_captured(driver):
    """With values on the device there are no copies that it would be joined with."""
    content = layers(4, 16)
    session, binding = session_of(content), None
    x = np.random.default_rng(0).standard_normal((3, 16)).astype(np.float32)
    values = [ort.OrtValue.ortvalue_from_numpy(each, "cuda", 0) for each in (x, np.zeros_like(x))]
    for _ in range(5):
        driver.calls.clear()
        binding = session.io_binding()
        binding.bind_ortvalue_input("x", values[0])
        binding.bind_ortvalue_output("y", values[1])
        session.run_with_iobinding(binding)
    assert driver.calls["launch_graph"] == 1
    assert not driver.calls["launch"]
    np.testing.assert_allclose(values[1].numpy(), host_results(content, {"x": x})[0], rtol=1e-5)


def test_graphs_can_be_turned_off(driver):
    session = session_of(layers(3, 16), {"enable_cuda_graph": "0"})
    x = np.ones((2, 16), np.float32)
    _runs(session, {"x": x})
    assert not driver.calls["begin_capture"] + driver.calls["launch_graph"]


def test_arrays_on_the_device_that_are_others_in_each_run(driver):
    """Feeds at four addresses in turn, whose nodes are updated once each."""
    content = model([helper.make_node("Exp", ["x"], ["e"]), helper.make_node("Add", ["e", "x"], ["y"])])
    session = session_of(content)
    large = [np.full((600, 600), value, np.float32) for value in (0.5, 1.5, -1.0)]
    values = [ort.OrtValue.ortvalue_from_numpy(each, "cuda", 0) for each in large]
    for _ in range(4):
        for host, value in zip(large, values, strict=True):
            binding = session.io_binding()
            binding.bind_ortvalue_input("x", value)
            binding.bind_output("y", "cuda")
            session.run_with_iobinding(binding)
            np.testing.assert_allclose(binding.copy_outputs_to_cpu()[0], np.exp(host) + host, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("function", ["begin_capture", "captured_node", "end_capture", "instantiate", "launch_graph"])
@pytest.mark.parametrize("code", [1, 2, 801])
def test_a_graph_that_is_refused_leaves_the_calls_one_by_one(on_stand_in, caplog, function, code):
    driver = on_stand_in().driver
    session = session_of(layers(2, 16))
    driver.plant(function, code, times=99)
    x = np.ones((2, 16), np.float32)
    wanted = host_results(layers(2, 16), {"x": x})[0]
    for _ in range(5):
        np.testing.assert_allclose(session.run(None, {"x": x})[0], wanted, rtol=1e-5)
    assert "is not replayed as a CUDA graph" in caplog.text
    assert caplog.text.count("is not replayed") == 1


def test_threads_and_sessions_share_a_stream(driver):
    content = layers(3, 16)
    sessions = [session_of(content) for _ in range(2)]
    x = np.random.default_rng(1).standard_normal((4, 16)).astype(np.float32)
    wanted = host_results(content, {"x": x})[0]
    wrong = []

    def work(session):
        for _ in range(8):
            same = np.allclose(session.run(None, {"x": x})[0], wanted, rtol=1e-5)
            wrong.extend([] if same else [session])

    threads = [threading.Thread(target=work, args=(session,)) for session in sessions for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("runs", [1, 3])
def test_a_feed_may_be_overwritten_after_a_run(driver, runs):
    """Its copy is in pinned memory when the run ends, though nobody waited for the device."""
    session = session_of(model([helper.make_node("Exp", ["x"], ["e"]), helper.make_node("Neg", ["e"], ["y"])]))
    binding = session.io_binding()
    x = X.copy()
    for _ in range(runs):
        binding.bind_cpu_input("x", x)
        binding.bind_output("y", "cuda")
        session.run_with_iobinding(binding)
        x[...] = 7
        np.testing.assert_allclose(binding.copy_outputs_to_cpu()[0], -np.exp(X), rtol=1e-6)
        x[...] = X
