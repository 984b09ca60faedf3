"""A provider with every hook and method, on a device of its own, that raises in a chosen one."""

import contextlib

import numpy as np

from ort_sdk.api import (
    CPU_DEVICE,
    ComputeCapability,
    ExecutionProvider,
    KernelRegistry,
    OpKernel,
    OrtDevice,
    OrtMemoryInfo,
    PluginHooks,
    PrePackedWeights,
    ProviderHooks,
    StepFusion,
    element_type_of,
    hookimpl,
)

DEVICE = OrtDevice("failing", 0)
NAME = "FailingExecutionProvider"
FLOAT = {"T": ["tensor(float)"]}


class Fault:
    """Raises an exception at one site; counts what was passed."""

    def __init__(self):
        self.site, self.error = "", None

    def at(self, site):
        if site == self.site:
            raise self.error


class DeviceArray:
    """An array that the host cannot read."""

    def __init__(self, memory):
        self.memory, self.shape, self.dtype = memory, memory.shape, memory.dtype


class FailingProvider(ProviderHooks):
    name = NAME

    def __init__(self):
        self.fault = Fault()
        self.registry = make_registry(self.fault)

    @hookimpl
    def get_supported_devices(self):
        self.fault.at("get_supported_devices")
        return [DEVICE]

    @hookimpl
    def create_execution_provider(self, device, provider_options, session_options):
        self.fault.at("create_execution_provider")
        return FailingExecution(self.name, device, self.fault)

    @hookimpl
    def get_kernel_registry(self, execution_provider):
        self.fault.at("get_kernel_registry")
        return self.registry

    @hookimpl
    def get_capability(self, execution_provider, graph_viewer, kernel_lookup):
        self.fault.at("get_capability")
        claims = []
        for node in graph_viewer.nodes:
            if node.op_type == "Exp":
                claims.append(ComputeCapability((node,), fuse=True))
            elif kernel_lookup.lookup(node) is not None:
                claims.append(ComputeCapability((node,)))
        return claims

    @hookimpl
    def compile(self, execution_provider, fused_nodes):
        self.fault.at("compile")

        def compiled(x):
            self.fault.at("compiled kernel")
            return DeviceArray(np.exp(x.memory))

        return [compiled for _ in fused_nodes]

    @hookimpl
    def create_allocator(self, execution_provider, memory_info):
        self.fault.at("create_allocator")
        return Allocator(self.fault)

    @hookimpl
    def get_data_transfer(self, execution_provider):
        self.fault.at("get_data_transfer")
        return Transfer(self.fault)

    @hookimpl
    def get_external_data_loader(self, execution_provider):
        self.fault.at("get_external_data_loader")
        return Loader(self.fault)

    @hookimpl
    def prepack(self, execution_provider, kernel, tensor, input_index, allocator):
        self.fault.at("prepack")

    @hookimpl
    def get_graph_transformers(self, execution_provider, level):
        self.fault.at("get_graph_transformers")
        return [Pass(self.fault)] if level == 1 else []

    @hookimpl
    def on_session_initialization_end(self, execution_provider):
        self.fault.at("on_session_initialization_end")

    @hookimpl
    def on_run_start(self, execution_provider, run_options):
        self.fault.at("on_run_start")

    @hookimpl
    def on_run_end(self, execution_provider, run_options):
        self.fault.at("on_run_end")


class QuietFailingProvider(FailingProvider):
    """Without hooks of runs, so that its scope is entered as it is."""

    on_run_start = on_run_end = None


class FailingExecution(ExecutionProvider):
    def __init__(self, name, device, fault):
        super().__init__(name, device)
        self.fault = fault

    def run_scope(self):
        self.fault.at("run_scope")
        return self._scope()

    @contextlib.contextmanager
    def _scope(self):
        self.fault.at("entering run_scope")
        yield
        self.fault.at("leaving run_scope")

    def describe(self, array):
        self.fault.at("describe")
        return element_type_of(array), tuple(array.shape)

    def fuse_steps(self, program):
        self.fault.at("fuse_steps")
        return StepFusion()

    def join_calls(self, calls):
        self.fault.at("join_calls")
        return [(1, call) for call in calls]

    def describe_environment(self):
        self.fault.at("describe_environment")
        return ["failing"]


class Allocator:
    memory_info = OrtMemoryInfo(DEVICE)

    def __init__(self, fault):
        self.fault = fault

    def allocate(self, shape, element_type):
        self.fault.at("allocate")
        return DeviceArray(np.zeros(tuple(shape), element_type.numpy_dtype))

    def release(self, array):
        pass


class Transfer:
    def __init__(self, fault):
        self.fault = fault

    def can_copy(self, source, target):
        self.fault.at("can_copy")
        return {source, target} == {CPU_DEVICE, DEVICE}

    def copy(self, array, source, target):
        self.fault.at("copy to the host" if target == CPU_DEVICE else "copy to the device")
        return array.memory.copy() if target == CPU_DEVICE else DeviceArray(np.array(array))

    def copy_into(self, array, source, destination, target):
        self.fault.at("copy_into")
        destination.memory[...] = getattr(array, "memory", array)


class Loader:
    def __init__(self, fault):
        self.fault = fault

    def can_load(self, memory_info):
        self.fault.at("can_load")
        return memory_info.device == DEVICE

    def can_load_tensor(self, info):
        self.fault.at("can_load_tensor")
        return True

    def load_tensor(self, info, tensor):
        self.fault.at("load_tensor")
        tensor.memory[...] = info.content[info.offset : info.offset + info.length].view(np.float32).reshape(info.shape)


class Pass:
    name = "FailingPass"

    def __init__(self, fault):
        self.fault = fault

    def apply(self, graph, context):
        self.fault.at("apply")
        return False


class Observer(PluginHooks):
    name = "FailingObserver"

    def __init__(self, fault):
        self.fault = fault

    @hookimpl
    def on_stage_end(self, stage, product):
        self.fault.at("on_stage_end")

    @hookimpl
    def on_node_run(self, node_name, op_type, provider, start_ns, duration_ns):
        self.fault.at("on_node_run")


def make_registry(fault):
    registry = KernelRegistry(NAME)

    def when(info):
        fault.at("when")

    class MatMul(OpKernel):
        deterministic, shape_inputs = True, ()

        def __init__(self, info):
            fault.at("making the kernel")
            self.weight = None

        def packing_identity(self, input_index):
            fault.at("packing_identity")
            return f"failing {input_index}" if input_index == 1 else None

        def prepack(self, tensor, input_index, allocator):
            fault.at("prepack of a kernel")
            return PrePackedWeights((tensor.numpy().copy(),))

        def use_prepacked(self, weights, input_index):
            fault.at("use_prepacked")
            self.weight = weights.buffers[0]

        def compute(self, x, w):
            fault.at("compute")
            return DeviceArray(x.memory @ self.weight)

        def bind(self, inputs, outputs):
            fault.at("bind")

            def call():
                fault.at("bound call")
                outputs[0].array.memory[...] = inputs[0].array.memory @ self.weight

            return call

    registry.kernel("MatMul", 13, FLOAT, when=when)(MatMul)
    registry.kernel("Add", 14, FLOAT)(lambda info: lambda a, b: DeviceArray(a.memory + b.memory))
    return registry
