"""Steps whose shapes depend on a number only outside of bounds: they are bound, and the number is checked before them."""

import numpy as np
import onnx.parser
import pytest

import ort_sdk as ort
from ort_sdk.api import CPU_DEVICE, EPFail, ExecutionProvider, KernelRegistry, OpKernel, ProviderHooks, hookimpl
from ort_sdk.plugins import plugin_manager

NAME = "RoomExecutionProvider"


class Room(OpKernel):
    """The first ``count`` rows doubled, the others zeros; as many rows as ``x`` has, or ``count`` if that is more."""

    deterministic = True
    shape_inputs = (1,)
    bounded_input = 1

    def __init__(self, calls):
        self.calls = calls

    def bounds(self, shapes):
        return 0, shapes[0][0]

    def compute(self, x, count):
        self.calls.append("compute")
        y = np.zeros((max(len(x), int(count.item())), *x.shape[1:]), x.dtype)
        y[: len(x)] = 2 * x
        y[int(count.item()) :] = 0
        return y

    def bind(self, inputs, outputs):
        source, number, target = inputs[0], inputs[1], outputs[0]

        def call():
            self.calls.append("bound")
            count = int(number.array.item())
            target.array[:count] = 2 * source.array[:count]
            target.array[count:] = 0

        return call


class Allocator:
    def __init__(self, memory_info):
        self.memory_info = memory_info

    def allocate(self, shape, element_type):
        return np.full(shape, 99, element_type.numpy_dtype)

    def release(self, array):
        pass


class RoomProvider(ProviderHooks):
    name = NAME

    def __init__(self):
        self.calls, self.kernel = [], Room
        self.registry = KernelRegistry(self.name)
        self.registry.kernel("Room", 1, domain="example", host_inputs=(1,))(lambda _info: self.kernel(self.calls))

    @hookimpl
    def get_supported_devices(self):
        return [CPU_DEVICE]

    @hookimpl
    def create_execution_provider(self, device, provider_options, session_options):
        return ExecutionProvider(self.name, device, provider_options)

    @hookimpl
    def get_kernel_registry(self, execution_provider):
        return self.registry

    @hookimpl
    def create_allocator(self, execution_provider, memory_info):
        return Allocator(memory_info)


@pytest.fixture
def provider():
    made = RoomProvider()
    plugin_manager().register(made, name="room")
    yield made
    plugin_manager().unregister("room")


MODEL = onnx.parser.parse_model("""
    <ir_version: 10, opset_import: ["" : 21, "example" : 1]>
    g (float[n, 4] x, int64[] count) => (float[m, 4] y, float[m, 4] z) <float[k, 4] b> {
        a = Cos (x)
        b = example.Room (a, count)
        c = Sin (b)
        d = Abs (c)
        y = example.Room (d, count)
        e = Neg (y)
        f = Exp (e)
        z = Tanh (f)
    }
""").SerializeToString()


def expected(x, count):
    def room(value):
        y = np.zeros((max(len(value), count), 4), np.float32)
        y[: len(value)] = 2 * value
        y[count:] = 0
        return y

    y = room(np.abs(np.sin(room(np.cos(x)))))
    return y, np.tanh(np.exp(-y))


def check(session, count, rows=6):
    x = np.random.default_rng(count).standard_normal((rows, 4)).astype(np.float32)
    for own, wanted in zip(session.run(None, {"x": x, "count": np.array(count)}), expected(x, count), strict=True):
        np.testing.assert_allclose(own, wanted, rtol=1e-5, atol=1e-6)


def session():
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(MODEL, options, providers=[NAME, "CPUExecutionProvider"])


def test_numbers_within_the_bounds_are_one_program(provider):
    made = session()
    for count in (3, 4, 5, 6, 0, 1):
        provider.calls.clear()
        check(made, count)
    assert provider.calls == ["bound", "bound"]
    (program,) = made.program_report()
    assert program.bound_count == len(program.operators)


def test_a_number_outside_of_the_bounds_gives_another_shape(provider):
    made = session()
    for count in (3, 4, 5, 9, 2, 7, 9, 9, 9, 6, 3, 8, 1):
        provider.calls.clear()
        check(made, count)
    assert provider.calls == ["bound", "bound"]


def test_what_is_mostly_outside_of_the_bounds(provider):
    made = session()
    for count in [3, 4, 5, *range(7, 90), 2, 3]:
        check(made, count)


def test_a_program_that_is_made_of_a_number_outside(provider):
    made = session()
    for count in (9, 9, 9, 3, 3, 8, 4, 9):
        check(made, count)


def test_each_shape_has_bounds_of_its_own(provider):
    made = session()
    for rows, count in ((6, 3), (6, 4), (9, 8), (9, 7), (6, 8), (9, 9), (6, 6), (6, 9)):
        check(made, count, rows)


def test_bounds_that_raise_are_an_error_of_the_provider(provider):
    class Broken(Room):
        def bounds(self, shapes):
            raise OverflowError("no bounds today")

    provider.kernel = Broken
    made = session()
    check(made, 3)
    with pytest.raises(EPFail, match=r"no bounds today|raised in bounds of Room"):
        check(made, 3)
