"""A provider with operators of its own, whose formal parameters it declares."""

import functools

import numpy as np

from ort_sdk.api import (
    CPU_DEVICE,
    ExecutionProvider,
    FormalParameter,
    KernelRegistry,
    ParameterOption,
    ProviderHooks,
    hookimpl,
)

DOMAIN = "my.domain"
REAL = ["tensor(float)", "tensor(double)"]


@functools.cache
def registry():
    kernels = KernelRegistry("DeclaringExecutionProvider")
    x, y = FormalParameter("X", "T"), FormalParameter("Y", "T")
    bias = FormalParameter("Bias", "T", ParameterOption.OPTIONAL)
    count = FormalParameter("Count", "tensor(int64)", ParameterOption.OPTIONAL)
    parts = FormalParameter("Parts", "T", ParameterOption.VARIADIC)
    kernels.declare_operator("Foo", 1, [x, bias], [y, count], {"T": REAL}, domain=DOMAIN)
    kernels.declare_operator("Foo", 3, [x], [y], {"T": REAL}, domain=DOMAIN)
    kernels.declare_operator("Total", 1, [parts], [y], {"T": REAL}, domain=DOMAIN)
    kernels.declare_operator("NotInTheTable", 1, [x], [y], {"T": REAL}, domain="com.microsoft")

    @kernels.kernel("Foo", 1, {"T": ["tensor(float)"], "Count": ["tensor(int64)"]}, domain=DOMAIN)
    def foo(info):
        return lambda x, bias=None: (x * 2 + (0 if bias is None else bias), np.asarray(x.size, np.int64))

    @kernels.kernel("Foo", 3, {"T": ["tensor(float)"]}, domain=DOMAIN)
    def foo_3(info):
        return lambda x: x * 3

    @kernels.kernel("Total", 1, domain=DOMAIN)
    def total(info):
        return lambda *parts: functools.reduce(np.add, parts)

    @kernels.kernel("NotInTheTable", 1, domain="com.microsoft")
    def not_in_the_table(info):
        return lambda x: x + 1

    return kernels


class Provider(ProviderHooks):
    name = "DeclaringExecutionProvider"
    api_version = 1

    @hookimpl
    def get_supported_devices(self):
        return [CPU_DEVICE]

    @hookimpl
    def create_execution_provider(self, device, provider_options, session_options):
        return ExecutionProvider(self.name, device, provider_options)

    @hookimpl
    def get_kernel_registry(self, execution_provider):
        return registry()
