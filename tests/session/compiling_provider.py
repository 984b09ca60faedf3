"""A provider whose kernels need code that a compiler makes which the test holds up, lets go on, or lets fail."""

import threading

import numpy as np

from ort_sdk.api import (
    CPU_DEVICE,
    CompilationPending,
    CompilationPolicy,
    ComputeCapability,
    ExecutionProvider,
    KernelRegistry,
    OpKernel,
    PrePackedWeights,
    ProviderHooks,
    RuntimeException,
    compilation_context,
    hookimpl,
)

NAME = "CompilingExecutionProvider"
FLOAT = {"T": ["tensor(float)"]}


class Compiler:
    """Code by name: a thread that needs it waits until it may be made, or is told that it is not there."""

    def __init__(self):
        self.compiled, self.may_go_on, self.error = set(), threading.Event(), None
        self.waiting = threading.Event()
        self.kernels = []
        """What each call was computed with, in order."""

    def need(self, name):
        if name in self.compiled:
            return
        context = compilation_context()
        if context.policy is CompilationPolicy.RAISE:
            raise CompilationPending(name)
        assert context.policy is CompilationPolicy.WAIT
        self.waiting.set()
        while not self.may_go_on.wait(0.01):
            if context.is_cancelled is not None and context.is_cancelled():
                raise CompilationPending(name)
        if self.error is not None:
            raise self.error
        self.compiled.add(name)


class CompilingProvider(ProviderHooks):
    name = NAME

    def __init__(self):
        self.compiler = Compiler()
        self.registry = KernelRegistry(NAME)
        self.registry.kernel("Exp", 13, FLOAT)(self.exp)
        self.registry.kernel("Neg", 13, FLOAT)(self.neg)
        self.registry.kernel("MatMul", 13, FLOAT)(self.matmul)

    def exp(self, info):
        """Needs code when it is made."""
        compiler = self.compiler
        if compilation_context().policy is CompilationPolicy.AVOID:
            return lambda x: self.called("plain exp", np.exp(x))
        compiler.need("exp")
        return lambda x: self.called("compiled exp", np.exp(x))

    def neg(self, info):
        """Needs code for each number of dimensions, when it runs."""

        def compute(x):
            if compilation_context().policy is CompilationPolicy.AVOID:
                return self.called("plain neg", -x)
            self.compiler.need(f"neg of {x.ndim}")
            return self.called("compiled neg", -x)

        return compute

    def matmul(self, info):
        """Packs its weight, in another form without compiled code."""
        form = "plain" if compilation_context().policy is CompilationPolicy.AVOID else "compiled"

        class MatMul(OpKernel):
            def packing_identity(self, input_index):
                return f"{form} weight" if input_index == 1 else None

            def prepack(self, tensor, input_index, allocator):
                return PrePackedWeights((tensor.numpy().copy(),))

            def use_prepacked(self, weights, input_index):
                self.weight = weights.buffers[0]

            def compute(self, x, _):
                return x @ self.weight

        return MatMul()

    def called(self, kernel, result):
        self.compiler.kernels.append(kernel)
        return result

    @hookimpl
    def get_supported_devices(self):
        return [CPU_DEVICE]

    @hookimpl
    def create_execution_provider(self, device, provider_options, session_options):
        return CompilingExecution(self.name, device)

    @hookimpl
    def get_kernel_registry(self, execution_provider):
        return self.registry

    @hookimpl
    def get_capability(self, execution_provider, graph_viewer, kernel_lookup):
        return [ComputeCapability((node,)) for node in graph_viewer.nodes if kernel_lookup.lookup(node) is not None]


class CompilingExecution(ExecutionProvider):
    compiles_on_demand = True


class CompilerError(RuntimeException):
    """What the compiler raises."""
