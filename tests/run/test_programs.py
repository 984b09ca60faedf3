"""Programs: what is folded, what is not, and that replay gives what step-by-step runs give."""

import gc
import threading

import numpy as np
import pytest
from onnx import TensorProto, helper

import ort_sdk as ort
from ort_sdk.api import CPU_DEVICE, ExecutionProvider, KernelRegistry, OpKernel, ProviderHooks, hookimpl
from ort_sdk.plugins import plugin_manager
from ort_sdk.run.program.cache import MAX_PROGRAMS, RUNS_THAT_PAY, SIGNATURES_PER_SIGHTING
from ort_sdk.testing.collection import only_new_objects
from tests.models_for_tests import model_bytes, value

node = helper.make_node


def _session(model, *, programs=True, providers=("CPUExecutionProvider",), level=ort.GraphOptimizationLevel.ORT_DISABLE_ALL):
    options = ort.SessionOptions()
    options.graph_optimization_level = level
    if not programs:
        options.add_session_config_entry("session.disable_programs", "1")
    return ort.InferenceSession(model, options, providers=list(providers))


class Counter:
    """Counts the calls of the kernels of a provider that computes with NumPy."""

    def __init__(self):
        self.calls = []


class Doubling(OpKernel):
    """Mul by two, bindable."""

    deterministic = True
    shape_inputs = ()

    def __init__(self, info, counter):
        self.name = info.name
        self.counter = counter

    def compute(self, x):
        self.counter.calls.append(("compute", self.name))
        return x * np.float32(2)

    def bind(self, inputs, outputs):
        source, target = inputs[0], outputs[0]

        def call():
            self.counter.calls.append(("bound", self.name))
            np.multiply(source.array, np.float32(2), out=target.array)

        return call


class Undeclared:
    """A kernel that declares nothing: never folded, never bound."""

    def __init__(self, info, counter):
        self.name = info.name
        self.counter = counter

    def compute(self, x):
        self.counter.calls.append(("compute", self.name))
        return np.abs(x)


class AlignedAllocator:
    def __init__(self, memory_info):
        self.memory_info = memory_info
        self.allocated = []

    def allocate(self, shape, element_type):
        array = np.full(shape, np.nan, dtype=element_type.numpy_dtype)
        self.allocated.append(array)
        return array

    def release(self, array):
        pass


class CountingProvider(ProviderHooks):
    name = "CountingExecutionProvider"

    def __init__(self):
        self.counter = Counter()
        self.registry = KernelRegistry(self.name)
        self.registry.kernel("Softplus", 1)(lambda info: Doubling(info, self.counter))
        self.registry.kernel("Abs", 13)(lambda info: Undeclared(info, self.counter))

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
        return AlignedAllocator(memory_info)


@pytest.fixture
def counting():
    provider = CountingProvider()
    plugin_manager().register(provider, "counting")
    yield provider.counter
    plugin_manager().unregister("counting")


COUNTING = ("CountingExecutionProvider", "CPUExecutionProvider")


def test_a_signature_seen_twice_is_bound_and_replayed(counting):
    model = model_bytes(
        [node("Softplus", ["x"], ["a"], name="first"), node("Softplus", ["a"], ["y"], name="second")],
        [value("x", ["n"])],
        [value("y", ["n"])],
    )
    session = _session(model, providers=COUNTING)
    x = np.arange(3, dtype=np.float32)
    held = []
    for run in range(5):
        counting.calls.clear()
        result = session.run(None, {"x": x + run})[0]
        held.append((result, 4 * (x + run)))
        kinds = {kind for kind, _ in counting.calls}
        assert kinds == ({"compute"} if run < 2 else {"bound"})
        assert len(counting.calls) == 2
    for result, expected in held:  # nothing a user holds is overwritten by a later run
        np.testing.assert_array_equal(result, expected)


def test_a_kernel_that_declares_nothing_is_never_folded(counting):
    model = model_bytes(
        [node("Abs", ["c"], ["a"], name="undeclared"), node("Add", ["a", "x"], ["y"])],
        [value("x", [2])],
        [value("y", [2])],
        {"c": np.array([-1, 2], np.float32)},
    )
    session = _session(model, providers=COUNTING)
    for _ in range(4):
        counting.calls.clear()
        np.testing.assert_array_equal(session.run(None, {"x": np.ones(2, np.float32)})[0], [2, 3])
        assert counting.calls == [("compute", "undeclared")]


def test_bound_values_seen_through_views_are_not_overwritten(counting):
    """A Reshape between bound kernels hands on a view of their buffer, which lives until the view is read for the last time."""
    model = model_bytes(
        [
            node("Softplus", ["x"], ["a"], name="a"),
            node("Reshape", ["a", "s"], ["view"]),
            node("Softplus", ["x"], ["b"], name="b"),
            node("Softplus", ["b"], ["c"], name="c"),
            node("Transpose", ["view"], ["transposed"]),
            node("Softplus", ["c"], ["d"], name="d"),
            node("Reshape", ["d", "s"], ["e"]),
            node("MatMul", ["e", "transposed"], ["y"]),
        ],
        [value("x", [4])],
        [value("y", [2, 2]), value("view", [2, 2])],
        {"s": np.array([2, 2])},
    )
    replayed, plain = _session(model, providers=COUNTING), _session(model, programs=False)
    rng = np.random.default_rng(0)
    held = []
    for _ in range(6):
        x = rng.standard_normal(4).astype(np.float32)
        outputs = replayed.run(None, {"x": x})
        e, transposed = (8 * x).reshape(2, 2), (2 * x).reshape(2, 2).T
        held.append((outputs, [e @ transposed, (2 * x).reshape(2, 2)]))
    del plain
    for outputs, expected in held:
        for actual, wanted in zip(outputs, expected, strict=True):
            np.testing.assert_allclose(actual, wanted, rtol=1e-6)


SHAPE_CHAIN = [
    node("Shape", ["x"], ["s"]),
    node("Gather", ["s", "zero"], ["batch"]),
    node("Unsqueeze", ["batch", "axes"], ["b1"]),
    node("Concat", ["b1", "minus"], ["target"], axis=0),
    node("Reshape", ["x", "target"], ["flat"]),
    node("Relu", ["flat"], ["y"]),
]
CHAIN_CONSTANTS = {"zero": np.array(0), "axes": np.array([0]), "minus": np.array([-1])}


def test_shape_computations_are_folded_per_signature():
    model = model_bytes(SHAPE_CHAIN, [value("x", ["n", "h", "w"])], [value("y", ["n", "m"])], CHAIN_CONSTANTS)
    session = _session(model)
    for shape in [(2, 3, 4)] * 3 + [(5, 1, 2)] * 3 + [(2, 3, 4)]:
        x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], np.maximum(x.reshape(shape[0], -1), 0))
    programs = session.program_report()
    assert {row.signature[0][0]: row.operators for row in programs} == {
        (2, 3, 4): ("Reshape", "Relu"),
        (5, 1, 2): ("Reshape", "Relu"),
    }


def test_contents_are_not_mistaken_for_shapes():
    """The target of Reshape comes from a feed: equal shapes of the feeds say nothing of it."""
    model = model_bytes(
        [node("Reshape", ["x", "target"], ["y"])],
        [value("x", [6]), value("target", [2], TensorProto.INT64)],
        [value("y", None)],
    )
    session = _session(model)
    x = np.arange(6, dtype=np.float32)
    for target in [(2, 3), (2, 3), (2, 3), (3, 2), (6, 1), (2, 3)]:
        assert session.run(None, {"x": x, "target": np.array(target)})[0].shape == target


def test_data_dependent_shapes_stay_right():
    model = model_bytes(
        [node("NonZero", ["x"], ["i"]), node("Shape", ["i"], ["s"]), node("Cast", ["s"], ["y"], to=TensorProto.FLOAT)],
        [value("x", [4])],
        [value("y", [2])],
    )
    session = _session(model)
    for x in ([1, 0, 0, 1], [1, 1, 1, 1], [0, 0, 0, 0], [0, 1, 0, 0]):
        assert session.run(None, {"x": np.array(x, np.float32)})[0].tolist() == [1, sum(x)]


def _if_model(condition_from_shape):
    then_branch = helper.make_graph([node("Mul", ["x", "two"], ["t"])], "then", [], [value("t")])
    else_branch = helper.make_graph([node("Neg", ["x"], ["e"])], "else", [], [value("e")])
    condition = (
        [node("Shape", ["x"], ["s"]), node("ReduceProd", ["s"], ["p"], keepdims=0), node("Greater", ["p", "limit"], ["c"])]
        if condition_from_shape
        else [node("ReduceSum", ["x"], ["p"], keepdims=0), node("Greater", ["p", "limit"], ["c"])]
    )
    branch = node("If", ["c"], ["b"], then_branch=then_branch, else_branch=else_branch)
    limit = np.array(3) if condition_from_shape else np.array(0, np.float32)
    return model_bytes(
        [*condition, branch, node("Add", ["b", "two"], ["y"])],
        [value("x", ["n"])],
        [value("y", ["n"])],
        {"two": np.array(2, np.float32), "limit": limit},
    )


def test_an_if_whose_condition_follows_from_shapes_is_folded():
    session = _session(_if_model(condition_from_shape=True))
    for size in [2] * 3 + [5] * 3 + [2]:
        x = np.arange(1, size + 1, dtype=np.float32)
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], x * 2 + 2 if size > 3 else 2 - x)
    operators = {row.signature[0][0]: row.operators for row in session.program_report()}
    assert operators == {(2,): ("Neg", "Add"), (5,): ("Mul", "Add")}


def test_an_if_whose_condition_is_data_is_not_folded():
    session = _session(_if_model(condition_from_shape=False))
    for sign in (1, 1, 1, -1, 1, -1):
        x = sign * np.arange(1, 4, dtype=np.float32)
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], x * 2 + 2 if sign > 0 else 2 - x)


def test_random_kernels_draw_in_every_run():
    model = model_bytes([node("RandomNormalLike", ["x"], ["y"])], [value("x", [8])], [value("y", [8])])
    session = _session(model)
    draws = [session.run(None, {"x": np.zeros(8, np.float32)})[0] for _ in range(5)]
    assert len({draw.tobytes() for draw in draws}) == 5


def test_folded_outputs_belong_to_the_user():
    model = model_bytes(
        [node("Shape", ["x"], ["s"]), node("Add", ["c", "c"], ["d"]), node("Relu", ["x"], ["y"])],
        [value("x", ["n"])],
        [value("s", [1], TensorProto.INT64), value("d", [2]), value("y", ["n"])],
        {"c": np.array([1, 2], np.float32)},
    )
    session = _session(model)
    x = np.ones(3, np.float32)
    for _ in range(5):
        shape, doubled, _ = session.run(None, {"x": x})
        assert shape.tolist() == [3]
        assert doubled.tolist() == [2, 4]
        shape[:] = -1
        doubled[:] = -1


def test_programs_are_bounded():
    model = model_bytes([node("Relu", ["x"], ["y"])], [value("x", ["n"])], [value("y", ["n"])])
    session = _session(model)
    for size in range(1, MAX_PROGRAMS + 20):
        for _ in range(2 + RUNS_THAT_PAY):
            assert session.run(None, {"x": np.ones(size, np.float32)})[0].shape == (size,)
    assert len(session.program_report()) == MAX_PROGRAMS


def test_programs_that_do_not_pay_make_others_rarer():
    model = model_bytes([node("Relu", ["x"], ["y"])], [value("x", ["n"])], [value("y", ["n"])])
    session = _session(model)

    def sizes():
        return {row.signature[0][0][0] for row in session.program_report()}

    for size in range(1, MAX_PROGRAMS + 2):
        for _ in range(MAX_PROGRAMS // SIGNATURES_PER_SIGHTING):
            session.run(None, {"x": np.ones(size, np.float32)})
    assert sizes() == set(range(2, MAX_PROGRAMS + 2))
    for size in sizes():
        for _ in range(RUNS_THAT_PAY):
            session.run(None, {"x": np.ones(size, np.float32)})
    for runs in range(1, 5):
        session.run(None, {"x": np.ones(1000, np.float32)})
        assert (1000 in sizes()) == (runs == 4)


def test_one_signature_of_many_has_to_be_seen_more_often():
    model = model_bytes([node("Relu", ["x"], ["y"])], [value("x", ["n"])], [value("y", ["n"])])
    session = _session(model)
    for size in range(1, 10 * SIGNATURES_PER_SIGHTING + 1):
        session.run(None, {"x": np.ones(size, np.float32)})
    for runs in range(1, 11):
        session.run(None, {"x": np.ones(1000, np.float32)})
        assert len(session.program_report()) == (runs == 10)


def test_programs_that_pay_leave_room_for_others():
    model = model_bytes([node("Relu", ["x"], ["y"])], [value("x", ["n"])], [value("y", ["n"])])
    session = _session(model)
    for size in range(1, MAX_PROGRAMS + 1):
        for _ in range(2 + RUNS_THAT_PAY):
            session.run(None, {"x": np.ones(size, np.float32)})
    for size in (1000, 1001):
        for _ in range(2):
            session.run(None, {"x": np.ones(size, np.float32)})
        assert any(row.signature[0][0] == (size,) for row in session.program_report())


def test_a_growing_input_makes_no_programs():
    model = model_bytes([node("Relu", ["x"], ["y"])], [value("x", ["n"])], [value("y", ["n"])])
    session = _session(model)
    for size in range(1, 300):
        session.run(None, {"x": np.ones(size, np.float32)})
    assert session.program_report() == ()


def test_an_error_in_a_program_names_the_node():
    model = model_bytes(
        [node("Gather", ["x", "i"], ["y"], name="pick")], [value("x", [3]), value("i", [1], TensorProto.INT64)], [value("y", [1])]
    )
    session = _session(model)
    x = np.arange(3, dtype=np.float32)
    for _ in range(4):
        session.run(None, {"x": x, "i": np.array([1])})
    assert session.program_report()
    with pytest.raises(ort.api.OrtSdkError, match=r"Gather node\. Name:'pick'.*CPUExecutionProvider.*float32\[3\], int64\[1\]"):
        session.run(None, {"x": x, "i": np.array([7])})
    assert session.run(None, {"x": x, "i": np.array([2])})[0].tolist() == [2]


def test_threads_use_program_sets_of_their_own(counting):
    model = model_bytes(
        [node("Softplus", ["x"], ["a"], name="a"), node("Softplus", ["a"], ["b"], name="b"), node("Add", ["b", "x"], ["y"])],
        [value("x", ["n"])],
        [value("y", ["n"])],
    )
    session = _session(model, providers=COUNTING)
    wrong = []

    def work(seed):
        rng = np.random.default_rng(seed)
        for _ in range(100):
            x = rng.standard_normal(rng.integers(1, 5) * 100).astype(np.float32)
            if not np.allclose(session.run(None, {"x": x})[0], 5 * x, rtol=1e-6):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@only_new_objects()
def test_programs_do_not_keep_feeds_or_results_alive():
    model = model_bytes([node("Relu", ["x"], ["r"]), node("Neg", ["r"], ["y"])], [value("x", ["n"])], [value("y", ["n"])])
    session = _session(model)

    class Tracked(np.ndarray):
        pass

    import weakref

    references = []
    for _ in range(4):
        x = np.ones(4, np.float32).view(Tracked)
        references.append(weakref.ref(x))
        session.run(None, {"x": x})
        del x
    gc.collect()
    assert [reference() for reference in references] == [None] * 4


def test_run_options_do_not_keep_programs_away():
    model = model_bytes([node("Relu", ["x"], ["y"])], [value("x", ["n"])], [value("y", ["n"])])
    session = _session(model)
    for _ in range(3):
        session.run(None, {"x": np.ones(2, np.float32)}, ort.RunOptions())
    assert len(session.program_report()) == 1


def test_a_replay_is_stopped_by_the_terminate_flag(counting):
    """The flag is raised by a kernel in the middle, as another thread would."""
    nodes = [node("Softplus", [f"v{k}"], [f"v{k + 1}"], name=f"n{k}") for k in range(40)]
    session = _session(model_bytes(nodes, [value("v0", [2])], [value("v40", [2])]), providers=COUNTING)
    x = np.ones(2, np.float32)
    options = ort.RunOptions()
    for _ in range(3):
        session.run(None, {"v0": x}, options)

    class Flag(list):
        def append(self, row):
            super().append(row)
            options.terminate = len(self) >= 5

    counting.calls = Flag()
    with pytest.raises(ort.api.Fail, match="terminate flag"):
        session.run(None, {"v0": x}, options)
    assert 5 <= len(counting.calls) < 40
    options.terminate = False
    counting.calls = []
    assert session.run(None, {"v0": x}, options)[0][0] == 2.0**40
