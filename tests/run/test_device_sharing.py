"""What arrays of a device share is asked from the provider, or believed as declared; and host memory is free after a copy."""

import dataclasses

import numpy as np
import pytest
from onnx import TensorProto, helper

from ort_sdk.api import KernelCreateInfo, TensorElementType
from ort_sdk.testing.strict import provider as strict_provider
from ort_sdk.testing.strict.provider import STRICT_PROVIDER, STRICT_TYPES, StrictExecutionProvider, StrictProvider
from tests.run.device_chains import model_of, registered, session_on

COUNT = 1024
BYTES = 4 * COUNT
ROUNDS = 8


class HandsOn:
    """An Identity on the device that gives its input array back, and cannot be bound."""

    deterministic, shape_inputs = True, ()

    def __init__(self, kernel, *_):
        self._kernel = kernel

    def compute(self, x):
        return x


class Copies(HandsOn):
    """An Identity that makes a new array, and cannot be bound."""

    def compute(self, x):
        return self._kernel.compute(x)


def provider_with(kernel_class, alias):
    provider = StrictProvider()
    registry = provider._registry

    def replaced(candidate):
        def create(info):
            return kernel_class(candidate.create(info))

        return KernelCreateInfo(dataclasses.replace(candidate.kernel_def, alias=alias), create)

    rows = [replaced(candidate) for candidate in registry.candidates("", "Identity")]
    original = registry.candidates
    registry.candidates = lambda domain, op: rows if (domain, op) == ("", "Identity") else original(domain, op)
    return provider


def model():
    """Values that go through an Identity, with bound steps before and behind it."""
    nodes = []
    for index in range(ROUNDS):
        nodes += [
            helper.make_node("Neg", [f"x{index}"], [f"a{index}"]),
            helper.make_node("Identity", [f"a{index}"], [f"b{index}"]),
            helper.make_node("Abs", [f"a{index}"], [f"c{index}"]),
            helper.make_node("Sub", [f"c{index}", f"b{index}"], [f"x{index + 1}"]),
        ]
    inputs = [helper.make_tensor_value_info("x0", TensorProto.FLOAT, [COUNT])]
    outputs = [helper.make_tensor_value_info(f"x{ROUNDS}", TensorProto.FLOAT, [COUNT])]
    return model_of(nodes, inputs, outputs)


def wanted_of(x):
    for _ in range(ROUNDS):
        x = abs(x) + x
    return x


@pytest.mark.parametrize(
    ("kernel_class", "alias", "sees", "values"),
    [
        # Of an array that was handed on, the memory is in use as long as the array is.
        (HandsOn, ((0, 0),), True, 3),
        (HandsOn, ((0, 0),), False, 3),
        (HandsOn, (), True, 3),
        (Copies, (), True, 3),
        (Copies, (), False, 3),
    ],
)
def test_memory_is_used_again_as_far_as_arrays_do_not_share_it(monkeypatch, kernel_class, alias, sees, values):
    if not sees:
        monkeypatch.delattr(StrictExecutionProvider, "shares_memory")
    with registered(provider_with(kernel_class, alias), "strict"):
        session = session_on(model(), STRICT_PROVIDER)
        for seed in range(5):
            x = np.random.default_rng(seed).standard_normal(COUNT).astype(np.float32)
            np.testing.assert_array_equal(session.run(None, {"x0": x})[0], wanted_of(x))
        (row,) = session.program_report()
        assert row.bound_count == 3 * ROUNDS + 2  # with the copies of feed and result
        assert row.device_bytes <= values * BYTES


def test_the_strict_provider_sees_what_arrays_share():
    provider = StrictProvider()
    device = next(iter(provider.devices))
    own = provider.create_execution_provider(device, {}, {})
    allocator = provider.create_allocator(own, strict_provider.OrtMemoryInfo(device))
    block = allocator.allocate_block(1024)
    views = [allocator.view(block, offset, (64,), TensorElementType.FLOAT) for offset in (0, 256, 256)]
    wide = allocator.view(block, 0, (128,), TensorElementType.FLOAT)
    alone = allocator.allocate((64,), TensorElementType.FLOAT)
    assert [own.shares_memory(views[1], other) for other in (*views, wide, alone)] == [False, True, True, True, False]


def detour(rounds):
    """Work on the host in a type that the device lacks, with a copy to the device before each further step of the host."""
    nodes = [helper.make_node("Cast", ["x"], ["h0"], to=TensorProto.DOUBLE)]
    for index in range(rounds):
        nodes += [
            helper.make_node("Sin", [f"h{index}"], [f"i{index}"]),
            helper.make_node("Cast", [f"i{index}"], [f"f{index}"], to=TensorProto.FLOAT),
            helper.make_node("Neg", [f"f{index}"], [f"d{index}"]),
            helper.make_node("Cos", [f"i{index}"], [f"h{index + 1}"]),
        ]
    nodes.append(helper.make_node("Sum", [f"d{index}" for index in range(rounds)], ["y"]))
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [COUNT])]
    return model_of(nodes, inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, [COUNT])])


def run_detour(rounds=4):
    with registered(StrictProvider(STRICT_TYPES - {TensorElementType.DOUBLE}), "strict"):
        session = session_on(detour(rounds), STRICT_PROVIDER)
        for seed in range(4):
            x = np.random.default_rng(seed).standard_normal(COUNT).astype(np.float32)
            h, d = x.astype(np.float64), []
            for _ in range(rounds):
                i = np.sin(h)
                d.append(-i.astype(np.float32))
                h = np.cos(i)
            np.testing.assert_allclose(session.run(None, {"x": x})[0], sum(d), rtol=1e-6)
        assert session.program_report()[0].bound_count > rounds


def test_memory_of_the_host_that_devices_read_late_is_not_used_again():
    run_detour()


@pytest.mark.parametrize("sees", [True, False])
def test_what_was_handed_on_leaves_a_program_at_a_guard(monkeypatch, sees):
    if not sees:
        monkeypatch.delattr(StrictExecutionProvider, "shares_memory")
    operators = [("Neg", "x", "a"), ("Identity", "a", "b"), ("Relu", "x", "r"), ("NonZero", "r", "i"), ("Abs", "i", "j")]
    operators += [("Neg", "j", "k"), ("Neg", "b", "c"), ("Abs", "c", "d"), ("Sin", "d", "e"), ("Cos", "e", "f")]
    nodes = [helper.make_node(op, [source], [target]) for op, source, target in operators]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [COUNT])]
    outputs = [
        helper.make_tensor_value_info("f", TensorProto.FLOAT, [COUNT]),
        helper.make_tensor_value_info("k", TensorProto.INT64, [1, None]),
    ]
    with registered(provider_with(HandsOn, ((0, 0),)), "strict"):
        session = session_on(model_of(nodes, inputs, outputs), STRICT_PROVIDER)
        for run in range(60):
            x = abs(np.random.default_rng(run).standard_normal(COUNT).astype(np.float32)) + 1
            x[: run % 4] = -1
            f, k = session.run(None, {"x": x})
            np.testing.assert_array_equal(f, np.cos(np.sin(abs(x))))
            np.testing.assert_array_equal(k, -np.stack(np.nonzero(x > 0)))
        assert len(session.program_report()) > 1
