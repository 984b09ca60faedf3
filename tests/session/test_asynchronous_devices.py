"""Runs that end before their devices' work: who waits, how often, and what is there then."""

import numpy as np
import pytest
from onnx import TensorProto, helper

import ort_sdk
from ort_sdk.api import ExecutionProvider, InvalidArgument, OrtDevice, TensorElementType
from ort_sdk.plugins import plugin_manager
from ort_sdk.session.providers.readiness import MOST_FOLLOWED
from ort_sdk.testing.strict.asynchronous import AsynchronousStrictExecutionProvider
from ort_sdk.testing.strict.memory import StrictArray
from ort_sdk.testing.strict.provider import STRICT_PROVIDER, STRICT_TYPES, StrictProvider
from tests.session import models

X = np.array([[-1, 2, -3], [4, -5, 6]], np.float32)
NAMES = ["y0", "y1", "y2", "y3"]
DEVICE = OrtDevice("strict", 0)


@pytest.fixture
def strict():
    yield from registered(is_asynchronous=True)


@pytest.fixture
def waiting():
    """The provider whose runs wait at their end."""
    yield from registered(is_asynchronous=False)


def registered(*, is_asynchronous):
    provider = StrictProvider(is_asynchronous=is_asynchronous)
    plugin_manager().register(provider, name="strict")
    yield provider.devices[DEVICE]
    plugin_manager().unregister("strict")


def model_bytes(last="Mul"):
    """Four outputs of one input; ``y3`` is of an operator that may fail."""
    nodes = [
        helper.make_node("Relu", ["x"], ["y0"]),
        helper.make_node("Neg", ["y0"], ["y1"]),
        helper.make_node("Add", ["y0", "x"], ["y2"]),
        helper.make_node(last, ["x", "i" if last == "Gather" else "y2"], ["y3"]),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])]
    if last == "Gather":
        inputs.append(helper.make_tensor_value_info("i", TensorProto.INT64, [1]))
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in NAMES]
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()


def expected(x):
    relu = np.maximum(x, 0)
    return [relu, -relu, relu + x, x * (relu + x)]


def made_session(last="Mul", **options):
    return ort_sdk.InferenceSession(model_bytes(last), providers=[STRICT_PROVIDER], **options)


def on_device(array):
    return ort_sdk.OrtValue.ortvalue_from_numpy(array, "strict", 0)


def bound(session, target, x=X):
    """A binding of ``x`` on the device and of all outputs to what ``target`` makes for each."""
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", on_device(x))
    for name in NAMES:
        made = target()
        (binding.bind_output if isinstance(made, str) else binding.bind_ortvalue_output)(name, made)
    return binding


def replayed(session, binding, runs=3):
    """Run until a program replays."""
    for _ in range(runs):
        session.run_with_iobinding(binding)
    assert session.program_report()


def waits_of(device, call):
    before = device.counts.waits
    result = call()
    return device.counts.waits - before, result


def assert_right(values, x=X):
    for value, wanted in zip(values, expected(x), strict=True):
        np.testing.assert_array_equal(value.numpy(), wanted)


def test_results_on_a_device_are_waited_for_where_they_are_read(strict):
    session = made_session()
    binding = bound(session, lambda: "strict")
    replayed(session, binding)
    assert waits_of(strict, lambda: session.run_with_iobinding(binding))[0] == 0
    values = binding.get_outputs()
    assert waits_of(strict, values[0].wait)[0] == 1
    assert waits_of(strict, values[1].wait)[0] == 0  # one run has one end
    assert_right(values)


def test_results_that_go_to_the_host_are_waited_for_at_once(strict):
    session = made_session()
    binding = bound(session, lambda: "cpu")
    replayed(session, binding)
    copies = strict.counts.downloads
    assert waits_of(strict, lambda: session.run_with_iobinding(binding))[0] == 1
    assert strict.counts.downloads == copies + len(NAMES)
    assert_right(binding.get_outputs())


def test_memory_on_the_host_is_filled_with_one_wait(strict):
    session = made_session()
    targets = [np.zeros_like(X) for _ in NAMES]
    given = iter(targets)
    binding = bound(session, lambda: ort_sdk.OrtValue.ortvalue_from_numpy(next(given)))
    replayed(session, binding)
    for target in targets:
        target[...] = 0
    assert waits_of(strict, lambda: session.run_with_iobinding(binding))[0] == 1
    for target, wanted in zip(targets, expected(X), strict=True):
        np.testing.assert_array_equal(target, wanted)


def test_host_runs_wait_once(strict):
    session = made_session()
    for seed in range(4):
        x = np.random.default_rng(seed).standard_normal((2, 3)).astype(np.float32)
        waits, results = waits_of(strict, lambda x=x: session.run(None, {"x": x}))
        for result, wanted in zip(results, expected(x), strict=True):
            np.testing.assert_array_equal(result, wanted)
    assert waits == 1


@pytest.mark.parametrize("fixture", ["strict", "waiting"])
def test_given_memory_on_the_device_takes_no_wait_of_its_own(request, fixture):
    device = request.getfixturevalue(fixture)
    session = made_session()
    binding = bound(session, lambda: on_device(np.zeros_like(X)))
    replayed(session, binding)
    copies = device.counts.device_copies
    assert waits_of(device, lambda: session.run_with_iobinding(binding))[0] == (0 if fixture == "strict" else 1)
    # the input to a buffer that stays, and each output from one to where it is wanted
    assert device.counts.device_copies == copies + 1 + len(NAMES)
    assert_right(binding.get_outputs())


def test_an_input_may_be_overwritten_after_the_run(strict):
    session = made_session()
    binding = session.io_binding()
    x = on_device(X)
    binding.bind_ortvalue_input("x", x)
    for name in NAMES:
        binding.bind_output(name, "strict")
    replayed(session, binding)
    session.run_with_iobinding(binding)
    first = binding.get_outputs()
    x.update_inplace(X + 1)
    session.run_with_iobinding(binding)
    assert_right(first)
    assert_right(binding.get_outputs(), X + 1)


@pytest.mark.parametrize("fixture", ["strict", "waiting"])
@pytest.mark.parametrize("elsewhere", ["cpu", "strict"])
def test_memory_of_an_input_is_filled_last(request, fixture, elsewhere):
    request.getfixturevalue(fixture)
    session = ort_sdk.InferenceSession(models.aliases(), providers=[STRICT_PROVIDER])
    square = X[:, :2]
    fed = on_device(-square)
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", fed)
    binding.bind_ortvalue_output("fresh", fed)
    binding.bind_ortvalue_output("same", ort_sdk.OrtValue.ortvalue_from_numpy(np.zeros_like(square), elsewhere, 0))
    binding.bind_output("transposed", elsewhere)
    for source in (-square, square, -square, square):
        fed.update_inplace(source)
        session.run_with_iobinding(binding)
        fresh, same, transposed = (value.numpy() for value in binding.get_outputs())
        np.testing.assert_array_equal(same, source)
        np.testing.assert_array_equal(fresh, np.maximum(source, 0))
        np.testing.assert_array_equal(transposed, source.T)


def test_a_host_array_may_change_after_the_run(strict):
    session = made_session()
    binding = bound(session, lambda: "strict")
    x = X.copy()
    binding.bind_cpu_input("x", x)
    replayed(session, binding)
    session.run_with_iobinding(binding)
    x[...] = 0
    assert_right(binding.get_outputs())


def detour_bytes():
    """``y`` is of what the host makes of ``x``, in a buffer that each run writes anew."""
    nodes = [
        helper.make_node("Cast", ["x"], ["wide"], to=TensorProto.DOUBLE),
        helper.make_node("Exp", ["wide"], ["e"]),
        helper.make_node("Cast", ["e"], ["narrow"], to=TensorProto.FLOAT),
        helper.make_node("Neg", ["narrow"], ["y"]),
    ]
    return models.model(nodes, [models.value("x")], [models.value("y")]).SerializeToString()


@pytest.mark.parametrize("reads_late", [True, False])
def test_buffers_and_arrays_on_the_host_are_read_before_they_change(reads_late):
    provider = StrictProvider(STRICT_TYPES - {TensorElementType.DOUBLE}, is_asynchronous=True, reads_late=reads_late)
    plugin_manager().register(provider, name="strict")
    try:
        session = ort_sdk.InferenceSession(detour_bytes(), providers=[STRICT_PROVIDER])
        x, binding, results = np.zeros((2, 2), np.float32), session.io_binding(), []
        binding.bind_cpu_input("x", x)
        binding.bind_output("y", "strict")
        for step in range(6):
            x[...] = step
            session.run_with_iobinding(binding)
            results += binding.get_outputs()
        x[...] = 99
        (host_result,) = session.run(None, {"x": np.full((2, 2), 7, np.float32)})
        for step, value in [*enumerate(results), (7, ort_sdk.OrtValue.ortvalue_from_numpy(host_result))]:
            np.testing.assert_allclose(value.numpy(), np.full((2, 2), -np.exp(step)), rtol=1e-6)
    finally:
        plugin_manager().unregister("strict")


def test_late_readers_are_waited_for_before_the_next_run():
    provider = StrictProvider(is_asynchronous=True, reads_late=True)
    plugin_manager().register(provider, name="strict")
    try:
        device, session = provider.devices[DEVICE], made_session()
        binding = bound(session, lambda: "strict")
        replayed(session, binding)
        assert waits_of(device, lambda: session.run_with_iobinding(binding))[0] == 1  # for the run before
        assert_right(binding.get_outputs())
        assert waits_of(device, lambda: session.run_with_iobinding(binding))[0] == 0
    finally:
        plugin_manager().unregister("strict")


def test_runs_of_two_sessions_are_ordered_by_the_device(strict):
    first, second = made_session(), made_session()
    binding = bound(first, lambda: "strict")
    replayed(first, binding)
    other = second.io_binding()
    other.bind_ortvalue_input("x", binding.get_outputs()[2])
    for name in NAMES:
        other.bind_output(name, "strict")
    for _ in range(3):
        first.run_with_iobinding(binding)
        other.bind_ortvalue_input("x", binding.get_outputs()[2])
        waits, _ = waits_of(strict, lambda: second.run_with_iobinding(other))
    assert waits == 0
    (provider,) = (each.execution_provider for each in second._state.providers if each.name == STRICT_PROVIDER)
    assert len(provider.followed) == 3
    assert_right(other.get_outputs(), expected(X)[2])


def test_outputs_are_copied_to_the_host_together(strict):
    session = made_session()
    binding = bound(session, lambda: "strict")
    replayed(session, binding)
    session.run_with_iobinding(binding)
    copies = strict.counts.downloads
    waits, results = waits_of(strict, binding.copy_outputs_to_cpu)
    assert waits == 2  # for the run, and for the copies
    assert strict.counts.downloads == copies + len(NAMES)
    for result, wanted in zip(results, expected(X), strict=True):
        np.testing.assert_array_equal(result, wanted)


def test_synchronizing_a_binding(strict):
    session = made_session()
    binding = bound(session, lambda: "strict")
    replayed(session, binding)
    session.run_with_iobinding(binding)
    assert waits_of(strict, binding.synchronize_outputs)[0] == 1
    assert waits_of(strict, binding.synchronize_outputs)[0] == 0
    session.run_with_iobinding(binding)
    assert waits_of(strict, binding.synchronize_inputs)[0] >= 1
    assert waits_of(strict, binding.synchronize_outputs)[0] == 0  # the inputs were read by the same run


def test_an_error_of_queued_work_is_raised_where_the_result_is_read(strict):
    session = made_session("Gather")
    binding = bound(session, lambda: "strict")
    good, bad = np.array([1]), np.array([9])
    for index in (good, good, good, bad):
        binding.bind_cpu_input("i", index)
        session.run_with_iobinding(binding)
    for value in binding.get_outputs():
        with pytest.raises(InvalidArgument, match="an index is outside axis 0") as caught:
            value.numpy()
        assert any(STRICT_PROVIDER in note for note in caught.value.__notes__)
    with pytest.raises(InvalidArgument, match="an index is outside axis 0"):
        binding.synchronize_outputs()
    binding.bind_cpu_input("i", good)
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[3], X[good])


def test_what_is_made_of_a_bad_result_raises_its_error_once(strict):
    first, second = made_session("Gather"), made_session()
    binding = bound(first, lambda: "strict")
    binding.bind_cpu_input("i", np.array([9]))
    first.run_with_iobinding(binding)
    other = second.io_binding()
    other.bind_ortvalue_input("x", binding.get_outputs()[0])
    other.bind_output("y1", "strict")
    second.run_with_iobinding(other)
    (value,) = other.get_outputs()
    with pytest.raises(InvalidArgument, match="an index is outside axis 0"):
        value.numpy()
    np.testing.assert_array_equal(value.numpy(), -np.maximum(X, 0))
    second.run_with_iobinding(other)
    np.testing.assert_array_equal(other.get_outputs()[0].numpy(), -np.maximum(X, 0))


def test_results_on_the_host_that_are_made_of_a_bad_result_are_not_handed_out(strict):
    first, second = made_session("Gather"), made_session()
    binding = bound(first, lambda: "strict")
    binding.bind_cpu_input("i", np.array([9]))
    first.run_with_iobinding(binding)
    other = second.io_binding()
    other.bind_ortvalue_input("x", binding.get_outputs()[0])
    other.bind_output("y1")
    with pytest.raises(RuntimeError, match="an index is outside axis 0"):
        second.run_with_iobinding(other)
    second.run_with_iobinding(other)
    np.testing.assert_array_equal(other.get_outputs()[0].numpy(), -np.maximum(X, 0))


def test_the_ends_of_many_runs_on_one_value_are_not_kept(strict):
    session = made_session()
    x, binding = on_device(X), session.io_binding()
    binding.bind_ortvalue_input("x", x)
    binding.bind_output("y0", "strict")
    for _ in range(5):
        session.run_with_iobinding(binding)
        binding.get_outputs()[0].numpy()
    assert len(x.ready._after) <= 1
    for _ in range(MOST_FOLLOWED + 9):
        session.run_with_iobinding(binding)
    assert len(x.ready._after) == MOST_FOLLOWED
    np.testing.assert_array_equal(x.numpy(), X)


def test_a_run_is_not_told_of_other_runs_errors(strict):
    session = made_session("Gather")
    binding = bound(session, lambda: "strict")
    binding.bind_cpu_input("i", np.array([9]))
    session.run_with_iobinding(binding)
    x, good = on_device(X), np.array([1])
    np.testing.assert_array_equal(session.run(["y3"], {"x": x, "i": good})[0], X[good])
    other = bound(session, lambda: "strict")
    other.bind_cpu_input("i", good)
    session.run_with_iobinding(other)
    other.get_outputs()[3].update_inplace(X[[0]])
    np.testing.assert_array_equal(other.get_outputs()[3].numpy(), X[[0]])
    with pytest.raises(InvalidArgument, match="an index is outside axis 0"):
        binding.get_outputs()[3].numpy()


def test_an_error_of_queued_work_leaves_a_host_run(strict):
    session = made_session("Gather")
    for _ in range(3):
        session.run(None, {"x": X, "i": np.array([1])})
    with pytest.raises(InvalidArgument, match="an index is outside axis 0"):
        session.run(None, {"x": X, "i": np.array([9])})
    np.testing.assert_array_equal(session.run(["y3"], {"x": X, "i": np.array([0])})[0], X[[0]])


def test_memory_that_was_given_back_is_refused(strict):
    session = made_session()
    binding = session.io_binding()
    x = on_device(X)
    binding.bind_ortvalue_input("x", x)
    binding.bind_output("y0", "strict")
    replayed(session, binding)
    strict.release(x.value)
    with pytest.raises(RuntimeError, match="released before"):
        session.run_with_iobinding(binding)


def test_a_host_run_is_done_with_the_values_it_was_fed(strict):
    session, x = made_session(), on_device(X)
    for _ in range(4):
        results = session.run(["y1"], {"x": x})
    x.update_inplace(X + 1)
    np.testing.assert_array_equal(results[0], expected(X)[1])
    np.testing.assert_array_equal(session.run(["y1"], {"x": x})[0], expected(X + 1)[1])


def test_a_provider_without_events_is_waited_for_as_a_whole(strict, monkeypatch):
    monkeypatch.setattr(AsynchronousStrictExecutionProvider, "record_event", ExecutionProvider.record_event)
    session = made_session()
    binding = bound(session, lambda: "strict")
    replayed(session, binding)
    assert waits_of(strict, lambda: session.run_with_iobinding(binding))[0] == 0
    assert_right(binding.get_outputs())


def test_a_provider_that_cannot_order_is_waited_for(strict, monkeypatch):
    monkeypatch.setattr(AsynchronousStrictExecutionProvider, "order_after", ExecutionProvider.order_after)
    first, second = made_session(), made_session()
    binding = bound(first, lambda: "strict")
    replayed(first, binding)
    other = second.io_binding()
    other.bind_ortvalue_input("x", binding.get_outputs()[2])
    other.bind_output("y0", "strict")
    replayed(second, other)
    first.run_with_iobinding(binding)
    other.bind_ortvalue_input("x", binding.get_outputs()[2])
    assert waits_of(strict, lambda: second.run_with_iobinding(other))[0] == 1
    np.testing.assert_array_equal(other.get_outputs()[0].numpy(), np.maximum(expected(X)[2], 0))


def test_runs_write_to_known_addresses_before_they_end(strict, monkeypatch):
    monkeypatch.setattr(StrictArray, "data_ptr", 4096, raising=False)
    session, target = made_session(), on_device(np.zeros_like(X))
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", on_device(X))
    binding.bind_ortvalue_output("y0", target)
    replayed(session, binding)
    assert waits_of(strict, lambda: session.run_with_iobinding(binding))[0] == 0
    assert waits_of(strict, target.data_ptr) == (1, 4096)
    assert waits_of(strict, lambda: session.run_with_iobinding(binding))[0] == 1
    assert waits_of(strict, target.data_ptr) == (0, 4096)


def test_a_run_that_fails_leaves_nothing_queued(strict):
    session = made_session()
    binding = bound(session, lambda: "strict")
    replayed(session, binding)
    binding.bind_ortvalue_output("y1", on_device(np.zeros((9, 3), np.float32)))
    with pytest.raises(RuntimeError, match="The output OrtValue provided for output 'y1'"):
        session.run_with_iobinding(binding)
    assert waits_of(strict, strict.queue.synchronize)[0] <= 1


def test_values_are_checked_once(strict, monkeypatch):
    session = made_session()
    binding = bound(session, lambda: "strict")
    replayed(session, binding)
    asked = []
    provider_class = type(session._state.providers[0].execution_provider)
    describe = provider_class.describe
    monkeypatch.setattr(provider_class, "describe", lambda self, array: asked.append(array) or describe(self, array))
    session.run_with_iobinding(binding)
    assert asked == []
    assert_right(binding.get_outputs())


def test_copies_between_values_stay_on_the_device(strict):
    source, target = on_device(X), on_device(np.zeros_like(X))
    strict.counts.reset()
    ort_sdk.copy_tensors([source], [target])
    assert strict.counts.copies == {"device_copies": 1}
    np.testing.assert_array_equal(target.numpy(), X)
