"""The stand-in's driver."""

import collections
import functools
import math
import threading

import numpy as np
import pyopencl as cl
from ort_sdk_cuda.driver import CudaError

from .compiler import HEAD
from .computer import Computer, Kernel
from .memory import POISON, Range, Ranges, host_bytes
from .streams import Event, Executable, Graph, Node, Stream

NAMES = {
    1: "CUDA_ERROR_INVALID_VALUE",
    2: "CUDA_ERROR_OUT_OF_MEMORY",
    200: "CUDA_ERROR_INVALID_IMAGE",
    500: "CUDA_ERROR_NOT_FOUND",
    700: "CUDA_ERROR_ILLEGAL_ADDRESS",
    719: "CUDA_ERROR_LAUNCH_FAILED",
    900: "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
    901: "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
}
STICKY = (700, 719)
MOST_LANES, MOST_GROUPS = 1024, 65535


class Fault:
    """An error that a function is to answer.

    Args:
        code: of the error.
        skipped: calls before it that work.
        times: how often it is answered.
    """

    def __init__(self, code, skipped=0, times=1):
        self.code, self.skipped, self.times = code, skipped, times


def _error(function, code):
    return CudaError(function, code, NAMES.get(code, f"error {code}"), "of the stand-in")


def driver_function(function):
    """Make a method one of the driver's: one thread at a time; it is counted, and fails where that is planted."""

    @functools.wraps(function)
    def call(self, *arguments, **keywords):
        with self.lock:
            self.calls[function.__name__] += 1
            self._fail_if_planted(function.__name__)
            return function(self, *arguments, **keywords)

    return call


def unsafe(function):
    """The same, of one that is an error while the thread captures a stream."""

    @functools.wraps(function)
    def call(self, *arguments, **keywords):
        for stream in self._captured:
            if stream.capturing_thread == threading.get_ident():
                stream.graph.is_broken = True
                raise _error(function.__name__, 900)
        return function(self, *arguments, **keywords)

    return driver_function(call)


class StandInDriver:
    """CUDA's driver without a GPU; see ``CudaDriver``.

    Args:
        version: of CUDA, that it tells.
        memory_bytes: of each device.
        devices: how many there are.
    """

    library = "(stand-in)"

    def __init__(self, version=(13, 0), memory_bytes=8 << 30, devices=1):
        self.version, self._memory_bytes, self._devices = version, memory_bytes, devices
        self.computer = Computer()
        self.lock = threading.RLock()
        self.calls = collections.Counter()
        self.device_memory, self.pinned_memory = Ranges(), Ranges()
        self._faults, self._late_faults = {}, collections.deque()
        self._lost = 0
        self._captured = []
        self._current = threading.local()
        self._streams = {}
        self._kept = {}

    # -- faults

    def plant(self, function, code, skipped=0, times=1):
        """Let a function of the driver fail."""
        self._faults[function] = Fault(code, skipped, times)

    def plant_in_kernel(self, code):
        """Let the kernel that runs next go wrong, which is told when somebody waits."""
        self._late_faults.append(code)

    def _fail_if_planted(self, name):
        fault = self._faults.get(name)
        if fault is not None:
            if fault.skipped:
                fault.skipped -= 1
            elif fault.times:
                fault.times -= 1
                self._fail(name, fault.code)
        if self._lost:
            raise _error(name, self._lost)

    def _fail(self, name, code):
        if code in STICKY:
            self._lost = code
        raise _error(name, code)

    # -- devices

    def device_count(self):
        return self._devices

    def device_name(self, ordinal):
        return f"Stand-in {ordinal}"

    def attribute(self, ordinal, name):
        return {
            "COMPUTE_CAPABILITY_MAJOR": 9,
            "COMPUTE_CAPABILITY_MINOR": 0,
            "MULTIPROCESSOR_COUNT": 2,
            "MAX_SHARED_MEMORY_PER_BLOCK": 48 << 10,
            "MEMORY_POOLS_SUPPORTED": 1,
        }[name]

    def memory_bytes(self, ordinal):
        return self._memory_bytes

    @driver_function
    def retain_context(self, ordinal):
        return f"context of {ordinal}"

    @driver_function
    def make_current(self, context):
        self._current.context = context

    # -- memory

    @unsafe
    def make_pool(self, ordinal):
        return object()

    @unsafe
    def allocate(self, nbytes, pool, stream):
        self._needs_context("allocate")
        if self.device_memory.nbytes + nbytes > self._memory_bytes:
            raise _error("allocate", 2)
        return self.device_memory.add(Range(nbytes, self.computer))

    @unsafe
    def free(self, address, stream):
        def free():
            self.computer.finish()
            found = self.device_memory.remove(address)
            if found is None:
                self._fail("free", 700)
            found.array[:] = POISON

        stream.put(free)

    @unsafe
    def trim_pool(self, pool):
        pass

    @driver_function
    def memory_range(self, address):
        found = self.device_memory.at(address)
        return None if found is None else (found[0].address, found[0].nbytes, 0)

    @unsafe
    def allocate_pinned(self, nbytes):
        return self.pinned_memory.add(Range(nbytes))

    @unsafe
    def free_pinned(self, address):
        found = self.pinned_memory.remove(address)
        if found is None:
            raise _error("free_pinned", 1)
        found.array[:] = POISON
        # addresses of pinned memory are never another's, so that late use shows
        self._kept[address] = found

    # -- copies

    @driver_function
    def copy_to_device(self, target, source, nbytes, stream):
        if self.pinned_memory.at(source, nbytes) is None:
            taken = bytes(host_bytes(source, nbytes))
            self._refuse_capture(stream, "copy_to_device")
            stream.put(lambda: self._write(target, taken))
            return
        self._put(stream, Node("to_device", target, source, nbytes))

    @driver_function
    def copy_to_host(self, target, source, nbytes, stream):
        if self.pinned_memory.at(target, nbytes) is None:
            self._refuse_capture(stream, "copy_to_host")
            stream.run_until(stream.queued)
            host_bytes(target, nbytes)[:] = self._device_bytes(source, nbytes)
            return
        self._put(stream, Node("to_host", target, source, nbytes))

    @driver_function
    def copy_on_device(self, target, source, nbytes, stream):
        self._put(stream, Node("on_device", target, source, nbytes))

    @driver_function
    def fill_words(self, address, word, count, stream):
        self._put(stream, Node("fill", address, word, count))

    # -- streams and events

    @driver_function
    def make_stream(self):
        stream = Stream()
        self._streams[stream.number] = stream
        return stream

    def stream_at(self, address):
        return self._streams[address]

    def stream_address(self, stream):
        return stream.number

    @unsafe
    def synchronize_stream(self, stream):
        stream.run_until(stream.queued)

    @driver_function
    def make_event(self, *, is_timed=False):
        return Event(is_timed=is_timed)

    @driver_function
    def free_event(self, event):
        pass

    @driver_function
    def record_event(self, event, stream):
        self._refuse_capture(stream, "record_event")
        event.record(stream)

    @driver_function
    def wait_event(self, stream, event):
        self._refuse_capture(stream, "wait_event")
        other, number = event.stream, event.number
        if other is not None:
            stream.put(lambda: other.run_until(number))

    @unsafe
    def event_is_done(self, event):
        if event.is_done:
            return True
        event.stream.run_until(event.stream.done + 1)
        return False

    @unsafe
    def synchronize_event(self, event):
        event.wait()

    @driver_function
    def elapsed_seconds(self, start, end):
        assert start.is_timed
        assert end.is_timed
        if start.seconds is None or end.seconds is None:
            raise _error("elapsed_seconds", 600)
        return end.seconds - start.seconds

    # -- kernels

    @unsafe
    def load_module(self, image):
        self._needs_context("load_module")
        if not image.startswith(HEAD):
            raise _error("load_module", 200)
        return self.computer.program(image[len(HEAD) :].decode())

    @unsafe
    def function(self, module, name):
        if name not in module.get_info(cl.program_info.KERNEL_NAMES).split(";"):
            raise _error("function", 500)
        return Kernel(self.computer, module, name)

    @driver_function
    def launch(self, function, groups, lanes, stream, parameters):
        self._needs_context("launch")
        self._put(stream, Node("kernel", *_checked(function, groups, lanes, parameters)))

    # -- graphs

    @driver_function
    def begin_capture(self, stream):
        stream.graph, stream.capturing_thread = Graph(), threading.get_ident()
        self._captured.append(stream)

    def end_capture(self, stream):
        with self.lock:
            # also one that fails ends it
            self._captured.remove(stream)
            graph, stream.graph, stream.capturing_thread = stream.graph, None, None
            self._fail_if_planted("end_capture")
            if graph.is_broken:
                raise _error("end_capture", 901)
            return graph

    @driver_function
    def captured_node(self, stream):
        return stream.graph.nodes[-1]

    @unsafe
    def instantiate(self, graph):
        return Executable(graph)

    @driver_function
    def free_graph(self, graph, executables):
        for executable in executables:
            executable.is_alive = False

    @driver_function
    def launch_graph(self, executable, stream):
        self._refuse_capture(stream, "launch_graph")
        if not executable.is_alive:
            raise _error("launch_graph", 1)
        for node, parameters in executable.parameters.items():
            stream.put(functools.partial(self._do, node.kind, parameters))

    @driver_function
    def set_kernel_node(self, executable, node, function, groups, lanes, parameters):
        if executable.parameters[node][0] is not function:
            raise _error("set_kernel_node", 1)
        executable.parameters[node] = _checked(function, groups, lanes, parameters)

    @driver_function
    def set_copy_node(self, executable, node, target, source, nbytes, context, *, to_host):
        if node.kind != ("to_host" if to_host else "to_device") or executable.parameters[node][2] != nbytes:
            raise _error("set_copy_node", 1)
        executable.parameters[node] = (target, source, nbytes)

    # -- work

    def _put(self, stream, node):
        if stream.graph is None:
            stream.put(functools.partial(self._do, node.kind, node.parameters))
        elif stream.capturing_thread != threading.get_ident():
            raise _error("capture", 900)
        else:
            stream.graph.nodes.append(node)

    def _do(self, kind, parameters):
        if self._lost:
            raise _error("execution", self._lost)
        getattr(self, f"_do_{kind}")(*parameters)

    def _do_kernel(self, function, groups, lanes, values):
        if self._late_faults:
            self._fail(f"kernel {function.name}", self._late_faults.popleft())
        function.run(groups, lanes, values, self._buffer)

    def _do_to_device(self, target, source, nbytes):
        found, offset = self.pinned_memory.at(source, nbytes)
        self._write(target, found.array[offset : offset + nbytes])

    def _do_to_host(self, target, source, nbytes):
        found, offset = self.pinned_memory.at(target, nbytes)
        found.array[offset : offset + nbytes] = self._device_bytes(source, nbytes)

    def _do_on_device(self, target, source, nbytes):
        self._write(target, self._device_bytes(source, nbytes).copy())

    def _do_fill(self, address, word, count):
        self._write(address, word.to_bytes(4, "little") * count)

    def _write(self, address, content):
        self._device_bytes(address, len(content))[:] = np.frombuffer(content, np.uint8)

    def _device_bytes(self, address, nbytes):
        found = self.device_memory.at(address, nbytes)
        if found is None:
            self._fail("copy", 700)
        self.computer.finish()
        return found[0].array[found[1] : found[1] + nbytes]

    def _buffer(self, address):
        found = self.device_memory.at(address)
        if found is None:
            self._fail("kernel", 700)
        return found[0].buffer(found[1])

    def _needs_context(self, name):
        if getattr(self._current, "context", None) is None:
            raise _error(name, 201)

    def _refuse_capture(self, stream, name):
        if stream.graph is not None:
            stream.graph.is_broken = True
            raise _error(name, 900)


def _checked(function, groups, lanes, parameters):
    if math.prod(lanes) > MOST_LANES or max(groups[1:]) > MOST_GROUPS or min(groups) < 1:
        raise _error("launch", 1)
    return function, groups, lanes, function.values(parameters)
