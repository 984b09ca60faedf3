"""CUDA's driver over ``cuda-bindings``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cuda.bindings import driver as cu

from .cuda_driver import Extent, Handle
from .cuda_error import CudaError
from .loaded_library import loaded_library

__all__ = ["BindingsDriver"]

KEPT_BYTES = (1 << 64) - 1
"""Of a pool: all that was freed, until it is trimmed."""


def _answered(function: str, answer: tuple[Any, ...]) -> Any:
    """What a function gave besides its code: nothing, a value, or several."""
    code, *values = answer
    if int(code):
        raise _error(function, int(code))
    return values[0] if len(values) == 1 else values


def _error(function: str, code: int) -> CudaError:
    result = cu.CUresult(code)
    texts = [getter(result) for getter in (cu.cuGetErrorName, cu.cuGetErrorString)]
    name, description = (value.decode() if not int(status) and value else "" for status, value in texts)
    return CudaError(function, code, name or f"error {code}", description)


class BindingsDriver:
    """The installed driver. Initialises CUDA in this process.

    Raises:
        CudaError: CUDA cannot be initialised.
        RuntimeError: the driver's library is not there.
    """

    def __init__(self) -> None:
        # The version is known without a device, and says why initialising may fail.
        number = int(_answered("cuDriverGetVersion", cu.cuDriverGetVersion()))
        self.version = (number // 1000, number % 1000 // 10)
        self.library = loaded_library("libcuda", "nvcuda")

    def initialise(self) -> None:
        """Begin; once in a process.

        Raises:
            CudaError: there is no device, or the driver does not work.
        """
        _answered("cuInit", cu.cuInit(0))

    def device_count(self) -> int:
        return int(_answered("cuDeviceGetCount", cu.cuDeviceGetCount()))

    def device_name(self, ordinal: int) -> str:
        text: bytes = _answered("cuDeviceGetName", cu.cuDeviceGetName(256, self._device(ordinal)))
        return text.split(b"\0")[0].decode()

    def attribute(self, ordinal: int, name: str) -> int:
        attribute = getattr(cu.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(_answered("cuDeviceGetAttribute", cu.cuDeviceGetAttribute(attribute, self._device(ordinal))))

    def memory_bytes(self, ordinal: int) -> int:
        return int(_answered("cuDeviceTotalMem", cu.cuDeviceTotalMem(self._device(ordinal))))

    def retain_context(self, ordinal: int) -> Handle:
        return _answered("cuDevicePrimaryCtxRetain", cu.cuDevicePrimaryCtxRetain(self._device(ordinal)))

    def make_current(self, context: Handle) -> None:
        _answered("cuCtxSetCurrent", cu.cuCtxSetCurrent(context))

    def make_pool(self, ordinal: int) -> Handle:
        properties = cu.CUmemPoolProps()
        properties.allocType = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        properties.handleTypes = cu.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_NONE
        properties.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        properties.location.id = ordinal
        pool = _answered("cuMemPoolCreate", cu.cuMemPoolCreate(properties))
        threshold = cu.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
        _answered("cuMemPoolSetAttribute", cu.cuMemPoolSetAttribute(pool, threshold, cu.cuuint64_t(KEPT_BYTES)))
        return pool

    def allocate(self, nbytes: int, pool: Handle, stream: Handle) -> int:
        return int(_answered("cuMemAllocFromPoolAsync", cu.cuMemAllocFromPoolAsync(nbytes, pool, stream)))

    def free(self, address: int, stream: Handle) -> None:
        _answered("cuMemFreeAsync", cu.cuMemFreeAsync(address, stream))

    def trim_pool(self, pool: Handle) -> None:
        _answered("cuMemPoolTrimTo", cu.cuMemPoolTrimTo(pool, 0))

    def memory_range(self, address: int) -> tuple[int, int, int] | None:
        names = ("RANGE_START_ADDR", "RANGE_SIZE", "DEVICE_ORDINAL")
        attributes = [getattr(cu.CUpointer_attribute, f"CU_POINTER_ATTRIBUTE_{name}") for name in names]
        answers = [cu.cuPointerGetAttribute(attribute, address) for attribute in attributes]
        if any(int(answer[0]) for answer in answers):
            return None
        start, nbytes, ordinal = (int(answer[1]) for answer in answers)
        return start, nbytes, ordinal

    def allocate_pinned(self, nbytes: int) -> int:
        return int(_answered("cuMemHostAlloc", cu.cuMemHostAlloc(nbytes, 0)))

    def free_pinned(self, address: int) -> None:
        _answered("cuMemFreeHost", cu.cuMemFreeHost(address))

    def copy_to_device(self, target: int, source: int, nbytes: int, stream: Handle) -> None:
        _answered("cuMemcpyHtoDAsync", cu.cuMemcpyHtoDAsync(target, source, nbytes, stream))

    def copy_to_host(self, target: int, source: int, nbytes: int, stream: Handle) -> None:
        _answered("cuMemcpyDtoHAsync", cu.cuMemcpyDtoHAsync(target, source, nbytes, stream))

    def copy_on_device(self, target: int, source: int, nbytes: int, stream: Handle) -> None:
        _answered("cuMemcpyDtoDAsync", cu.cuMemcpyDtoDAsync(target, source, nbytes, stream))

    def fill_words(self, address: int, word: int, count: int, stream: Handle) -> None:
        _answered("cuMemsetD32Async", cu.cuMemsetD32Async(address, word, count, stream))

    def make_stream(self) -> Handle:
        return _answered("cuStreamCreate", cu.cuStreamCreate(cu.CUstream_flags.CU_STREAM_NON_BLOCKING))

    def stream_at(self, address: int) -> Handle:
        return cu.CUstream(address)

    def stream_address(self, stream: Handle) -> int:
        return int(stream)

    def synchronize_stream(self, stream: Handle) -> None:
        _answered("cuStreamSynchronize", cu.cuStreamSynchronize(stream))

    def make_event(self, *, is_timed: bool = False) -> Handle:
        flags = cu.CUevent_flags.CU_EVENT_DEFAULT if is_timed else cu.CUevent_flags.CU_EVENT_DISABLE_TIMING
        return _answered("cuEventCreate", cu.cuEventCreate(flags))

    def free_event(self, event: Handle) -> None:
        _answered("cuEventDestroy", cu.cuEventDestroy(event))

    def record_event(self, event: Handle, stream: Handle) -> None:
        _answered("cuEventRecord", cu.cuEventRecord(event, stream))

    def wait_event(self, stream: Handle, event: Handle) -> None:
        _answered("cuStreamWaitEvent", cu.cuStreamWaitEvent(stream, event, 0))

    def event_is_done(self, event: Handle) -> bool:
        (code,) = cu.cuEventQuery(event)
        if code == cu.CUresult.CUDA_ERROR_NOT_READY:
            return False
        _answered("cuEventQuery", (code,))
        return True

    def synchronize_event(self, event: Handle) -> None:
        _answered("cuEventSynchronize", cu.cuEventSynchronize(event))

    def elapsed_seconds(self, start: Handle, end: Handle) -> float:
        return float(_answered("cuEventElapsedTime", cu.cuEventElapsedTime(start, end))) / 1e3

    def load_module(self, image: bytes) -> Handle:
        return _answered("cuModuleLoadData", cu.cuModuleLoadData(image))

    def function(self, module: Handle, name: str) -> Handle:
        return _answered("cuModuleGetFunction", cu.cuModuleGetFunction(module, name.encode()))

    def launch(self, function: Handle, groups: Extent, lanes: Extent, stream: Handle, parameters: int) -> None:
        (code,) = cu.cuLaunchKernel(function, *groups, *lanes, 0, stream, parameters, 0)
        if int(code):
            raise _error("cuLaunchKernel", int(code))

    def begin_capture(self, stream: Handle) -> None:
        mode = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        _answered("cuStreamBeginCapture", cu.cuStreamBeginCapture(stream, mode))

    def end_capture(self, stream: Handle) -> Handle:
        return _answered("cuStreamEndCapture", cu.cuStreamEndCapture(stream))

    def captured_node(self, stream: Handle) -> Handle:
        # The nodes that the next one comes after: of one stream, the last one.
        nodes = _answered("cuStreamGetCaptureInfo", cu.cuStreamGetCaptureInfo(stream))[3]
        return nodes[0]

    def instantiate(self, graph: Handle) -> Handle:
        return _answered("cuGraphInstantiate", cu.cuGraphInstantiate(graph, 0))

    def free_graph(self, graph: Handle, executables: Sequence[Handle]) -> None:
        for executable in executables:
            _answered("cuGraphExecDestroy", cu.cuGraphExecDestroy(executable))
        _answered("cuGraphDestroy", cu.cuGraphDestroy(graph))

    def launch_graph(self, executable: Handle, stream: Handle) -> None:
        (code,) = cu.cuGraphLaunch(executable, stream)
        if int(code):
            raise _error("cuGraphLaunch", int(code))

    def set_kernel_node(
        self, executable: Handle, node: Handle, function: Handle, groups: Extent, lanes: Extent, parameters: int
    ) -> None:
        of_node = cu.CUDA_KERNEL_NODE_PARAMS()
        of_node.func = function
        of_node.gridDimX, of_node.gridDimY, of_node.gridDimZ = groups
        of_node.blockDimX, of_node.blockDimY, of_node.blockDimZ = lanes
        of_node.kernelParams = parameters
        _answered("cuGraphExecKernelNodeSetParams", cu.cuGraphExecKernelNodeSetParams(executable, node, of_node))

    def set_copy_node(
        self, executable: Handle, node: Handle, target: int, source: int, nbytes: int, context: Handle, *, to_host: bool
    ) -> None:
        copy, host, device = cu.CUDA_MEMCPY3D(), cu.CUmemorytype.CU_MEMORYTYPE_HOST, cu.CUmemorytype.CU_MEMORYTYPE_DEVICE
        copy.WidthInBytes, copy.Height, copy.Depth = nbytes, 1, 1
        if to_host:
            copy.srcMemoryType, copy.srcDevice, copy.dstMemoryType, copy.dstHost = device, source, host, target
        else:
            copy.srcMemoryType, copy.srcHost, copy.dstMemoryType, copy.dstDevice = host, source, device, target
        answer = cu.cuGraphExecMemcpyNodeSetParams(executable, node, copy, context)
        _answered("cuGraphExecMemcpyNodeSetParams", answer)

    def _device(self, ordinal: int) -> Any:
        return _answered("cuDeviceGet", cu.cuDeviceGet(ordinal))
