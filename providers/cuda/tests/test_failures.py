"""What goes wrong on a device: memory that runs out, launches that fail, kernels that break, devices that are lost."""

import gc
import threading

import numpy as np
import pytest
from cuda_models import X, host_results, layers, model, session_of
from onnx import TensorProto, helper

from ort_sdk.api import DeviceReset, InvalidArgument, OutOfMemory, RuntimeException

CHAIN = model([helper.make_node("Exp", ["x"], ["e"]), helper.make_node("Add", ["e", "x"], ["y"])])


def _computes(session):
    np.testing.assert_allclose(session.run(None, {"x": X})[0], np.exp(X) + X, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("runs", [0, 1, 4], ids=["in the first run", "step by step", "in a graph"])
@pytest.mark.parametrize("code", [700, 719])
def test_a_kernel_that_breaks_loses_the_device(on_stand_in, runs, code):
    driver = on_stand_in().driver
    session, other = session_of(CHAIN), session_of(layers(2, 16))
    for _ in range(runs):
        _computes(session)
    driver.plant_in_kernel(code)
    with pytest.raises(DeviceReset, match=r"CUDA_ERROR.*was lost.*Restart the process"):
        session.run(None, {"x": X})
    for lost, feed in ((session, X), (other, np.ones((2, 16), np.float32))):
        with pytest.raises(DeviceReset, match=r"'Stand-in 0' .*was lost.*Restart the process"):
            lost.run(None, {"x": feed})
    with pytest.raises(DeviceReset, match="Restart the process"):
        session_of(CHAIN)
    np.testing.assert_allclose(host_results(CHAIN, {"x": X})[0], np.exp(X) + X, rtol=1e-6, atol=1e-6)
    session.close()
    gc.collect()


@pytest.mark.parametrize("runs", [0, 1, 4], ids=["in the first run", "step by step", "in a graph"])
def test_a_launch_that_is_refused(on_stand_in, runs):
    driver = on_stand_in().driver
    session = session_of(CHAIN)
    for _ in range(runs):
        _computes(session)
    for function in ("launch", "launch_graph"):
        driver.plant(function, 1, times=2)
    reason = r"queueing .* on 'Stand-in 0' \(cuda:0\): launch.* answered CUDA_ERROR_INVALID_VALUE"
    with pytest.raises(RuntimeException, match=reason):
        session.run(None, {"x": X})
    for function in ("launch", "launch_graph"):
        driver.plant(function, 1, times=0)
    for _ in range(4):
        _computes(session)


@pytest.mark.parametrize("skipped", [0, 1])
def test_no_room_for_an_allocation(on_stand_in, skipped):
    driver = on_stand_in().driver
    session = session_of(model([helper.make_node("Exp", ["x"], ["e"]), helper.make_node("Neg", ["e"], ["y"])]))
    session.run(None, {"x": X})
    large = np.ones(3_000_000, np.float32)
    driver.plant("allocate", 2, skipped=skipped, times=99)
    with pytest.raises(
        OutOfMemory, match=r"allocating \d+ bytes on 'Stand-in 0'.*close sessions, take smaller batches, or another"
    ):
        session.run(None, {"x": large})
    driver.plant("allocate", 2, times=0)
    for _ in range(3):
        np.testing.assert_allclose(session.run(None, {"x": X})[0], -np.exp(X), rtol=1e-6)


def test_an_allocation_is_tried_again_after_what_is_kept_went_back(on_stand_in):
    driver = on_stand_in().driver
    session = session_of(model([helper.make_node("Neg", ["x"], ["y"])]))
    driver.plant("allocate", 2, times=1)
    large = np.ones(3_000_000, np.float32)
    np.testing.assert_array_equal(session.run(None, {"x": large})[0], -large)
    assert driver.calls["trim_pool"] == 1


def test_a_limit_of_memory_is_an_error_with_sizes(cuda):
    session = session_of(CHAIN, {"gpu_mem_limit": str(8 << 20)})
    with pytest.raises(OutOfMemory, match=r"gpu_mem_limit"):
        session.run(None, {"x": np.zeros(8 << 20, np.float32)})
    for _ in range(3):
        _computes(session)


def test_an_index_out_of_bounds_is_raised_in_its_own_run(cuda):
    index = helper.make_tensor_value_info("i", TensorProto.INT64, ["k"])
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "xy")
    nodes = [helper.make_node("Gather", ["x", "i"], ["g"]), helper.make_node("Neg", ["g"], ["y"])]
    graph = helper.make_graph(nodes, "g", [x, index], [y])
    content = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    session, other = session_of(content), session_of(content)
    good, bad = np.array([0, -1, 5]), np.array([0, 99, 5])
    wrong = []

    def work():
        for _ in range(30):
            got = other.run(None, {"x": X, "i": good})[0]
            wrong.extend([] if np.array_equal(got, -X[good]) else [1])

    thread = threading.Thread(target=work)
    thread.start()
    for _ in range(10):
        with pytest.raises(InvalidArgument, match="out of bounds"):
            session.run(None, {"x": X, "i": bad})
        np.testing.assert_array_equal(session.run(None, {"x": X, "i": good})[0], -X[good])
    thread.join()
    assert not wrong


def test_an_index_out_of_bounds_of_results_that_stay_on_the_device(cuda):
    """The run ends before its work; waiting for its results raises, and the next run does not."""
    index = helper.make_tensor_value_info("i", TensorProto.INT64, ["k"])
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "xy")
    graph = helper.make_graph([helper.make_node("Gather", ["x", "i"], ["y"])], "g", [x, index], [y])
    content = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    session = session_of(content)
    bindings = []
    for indices in ([0, 99], [0, 1]) * 3:
        binding = session.io_binding()
        binding.bind_cpu_input("x", X)
        binding.bind_cpu_input("i", np.array(indices))
        binding.bind_output("y", "cuda")
        session.run_with_iobinding(binding)
        bindings.append((indices, binding))
    for indices, binding in bindings:
        if 99 in indices:
            with pytest.raises(InvalidArgument, match="out of bounds"):
                binding.synchronize_outputs()
        else:
            np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], X[indices])


def test_a_kernel_that_does_not_compile_shows_what_the_compiler_said(cuda):
    from ort_sdk_cuda.device import device_context

    from ort_sdk.device import KernelSource

    programs = device_context(0).launcher.programs
    with pytest.raises(RuntimeException, match=r"(?s)compiling kernel 'wrong' for sm_90 with NVRTC 13.0.*undeclared"):
        programs.kernel(KernelSource("wrong", "KERNEL void wrong(GLOBAL(f32) x) { x[0] = undeclared_name; }"))
