"""The driver over cuda-bindings, without a driver: each function takes what it is given, and then misses the library."""

import pytest

bindings = pytest.importorskip("ort_sdk_cuda.driver.bindings", reason="cuda-bindings is not installed", exc_type=ImportError)
cu = bindings.cu


def _has_driver():
    try:
        cu.cuDriverGetVersion()
    except RuntimeError:
        return False
    return True


pytestmark = pytest.mark.skipif(_has_driver(), reason="there is a driver, which would use what stands for handles here")

CALLS = {
    "initialise": (),
    "device_count": (),
    "device_name": (0,),
    "attribute": (0, "MULTIPROCESSOR_COUNT"),
    "memory_bytes": (0,),
    "retain_context": (0,),
    "make_current": (cu.CUcontext(8),),
    "make_pool": (0,),
    "allocate": (1 << 40, cu.CUmemoryPool(8), cu.CUstream(8)),
    "free": (1 << 40, cu.CUstream(8)),
    "trim_pool": (cu.CUmemoryPool(8),),
    "memory_range": (1 << 40,),
    "allocate_pinned": (4096,),
    "free_pinned": (1 << 40,),
    "copy_to_device": (1 << 40, 1 << 41, 16, cu.CUstream(8)),
    "copy_to_host": (1 << 40, 1 << 41, 16, cu.CUstream(8)),
    "copy_on_device": (1 << 40, 1 << 41, 16, cu.CUstream(8)),
    "fill_words": (1 << 40, 0, 1, cu.CUstream(8)),
    "make_stream": (),
    "synchronize_stream": (cu.CUstream(8),),
    "make_event": (),
    "free_event": (cu.CUevent(8),),
    "record_event": (cu.CUevent(8), cu.CUstream(8)),
    "wait_event": (cu.CUstream(8), cu.CUevent(8)),
    "event_is_done": (cu.CUevent(8),),
    "synchronize_event": (cu.CUevent(8),),
    "elapsed_seconds": (cu.CUevent(8), cu.CUevent(9)),
    "load_module": (b"image",),
    "function": (cu.CUmodule(8), "kernel"),
    "launch": (cu.CUfunction(8), (1, 1, 1), (32, 1, 1), cu.CUstream(8), 1 << 40),
    "begin_capture": (cu.CUstream(8),),
    "end_capture": (cu.CUstream(8),),
    "captured_node": (cu.CUstream(8),),
    "instantiate": (cu.CUgraph(8),),
    "free_graph": (cu.CUgraph(8), (cu.CUgraphExec(8),)),
    "launch_graph": (cu.CUgraphExec(8), cu.CUstream(8)),
    "set_kernel_node": (cu.CUgraphExec(8), cu.CUgraphNode(9), cu.CUfunction(8), (1, 2, 3), (32, 1, 1), 1 << 40),
    "set_copy_node": (cu.CUgraphExec(8), cu.CUgraphNode(9), 1 << 40, 1 << 41, 16, cu.CUcontext(8)),
}
"""Function → arguments, handles among them that stand for nothing."""


@pytest.mark.parametrize("name", CALLS)
def test_a_function_takes_its_arguments(name):
    driver = object.__new__(bindings.BindingsDriver)
    for keywords in [{"to_host": True}, {"to_host": False}] if name == "set_copy_node" else [{}]:
        with pytest.raises(RuntimeError, match="NVIDIA driver library"):
            getattr(driver, name)(*CALLS[name], **keywords)


def test_every_function_is_here():
    from ort_sdk_cuda.driver import CudaDriver

    functions = {name for name in vars(CudaDriver) if not name.startswith("_") and callable(getattr(CudaDriver, name))}
    assert functions - {"stream_at", "stream_address"} <= set(CALLS)
    driver = object.__new__(bindings.BindingsDriver)
    assert driver.stream_address(driver.stream_at(94004)) == 94004


def test_a_driver_that_is_not_there():
    with pytest.raises(RuntimeError, match="NVIDIA driver library"):
        bindings.BindingsDriver()


def test_what_the_launcher_gives_is_what_cuda_reads():
    """A node's description keeps the address of the arguments' addresses."""
    of_node = cu.CUDA_KERNEL_NODE_PARAMS()
    of_node.kernelParams = 1 << 40
    assert int(of_node.kernelParams) == 1 << 40
