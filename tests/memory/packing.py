"""A provider on the host whose kernels pack their weights, and count how often."""

import numpy as np

from ort_sdk.api import (
    CPU_DEVICE,
    NOT_PACKED,
    ExecutionProvider,
    KernelRegistry,
    OpKernel,
    PrePackedWeights,
    ProviderHooks,
    hookimpl,
)

NAME = "PackingExecutionProvider"


class PackingMatMul(OpKernel):
    """Keeps its second input transposed, as bytes, in two buffers: the shape and the elements."""

    deterministic = True
    shape_inputs = ()

    def __init__(self, provider, info):
        self.provider = provider
        self.type = info.input_element_type(1)
        self.packed = None
        provider.kernels.append(self)

    def compute(self, a, b):
        if self.packed is None:
            return a @ b
        shape, elements = self.packed
        return a @ elements.view(np.float32).reshape(shape.view(np.int64)).T

    def packing_identity(self, input_index):
        return self.provider.version if input_index == 1 else None

    def prepack(self, tensor, input_index, allocator):
        if input_index != 1 or len(tensor.shape) != 2:
            return NOT_PACKED
        self.provider.packed += 1
        if self.provider.on_pack is not None:
            self.provider.on_pack(tensor)
        elements = np.ascontiguousarray(tensor.numpy().T)
        return PrePackedWeights((np.array(elements.shape).view(np.uint8), elements.reshape(-1).view(np.uint8)))

    def use_prepacked(self, weights, input_index):
        self.packed = weights.buffers


class PackingProvider(ProviderHooks):
    name = NAME
    api_version = 1

    def __init__(self, version="1.0 avx2"):
        self.version = version
        self.packed = 0
        self.kernels = []
        self.on_pack = None
        self.registry = KernelRegistry(NAME)
        self.registry.kernel("MatMul", 13, {"T": ["tensor(float)"]})(lambda info: PackingMatMul(self, info))

    @hookimpl
    def get_supported_devices(self):
        return [CPU_DEVICE]

    @hookimpl
    def create_execution_provider(self, device, provider_options, session_options):
        return ExecutionProvider(NAME, device, provider_options)

    @hookimpl
    def get_kernel_registry(self, execution_provider):
        return self.registry
