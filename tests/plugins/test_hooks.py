import json
import sys
import threading

import numpy as np
import pytest

from ort_sdk.api import (
    CPU_DEVICE,
    EPFail,
    ExecutionProvider,
    OrtDevice,
    PluginHooks,
    ProviderHooks,
    ProviderNotFoundError,
    ProviderRefusedError,
    hookimpl,
)
from ort_sdk.plugins import PluginManager
from ort_sdk.plugins.known import KnownProvider
from ort_sdk.plugins.report import provider_report, report_text


class MyProvider(ProviderHooks):
    name = "MyExecutionProvider"

    def __init__(self):
        self.asked = 0

    @hookimpl
    def get_supported_devices(self):
        self.asked += 1
        return [OrtDevice("mine", 0)]

    @hookimpl
    def create_execution_provider(self, device, provider_options, session_options):
        return ExecutionProvider(self.name, device, provider_options)


class OtherProvider(MyProvider):
    name = "OtherExecutionProvider"

    @hookimpl
    def get_kernel_registry(self, execution_provider):
        return "no registry"

    @hookimpl
    def compile(self, execution_provider, fused_nodes):
        raise ValueError("compiler lost")


@pytest.fixture
def manager():
    return PluginManager(discovery=False)


def test_hooks_of_one_provider_never_reach_another(manager):
    mine = manager.register(MyProvider, name="mine")
    other = manager.register(OtherProvider())
    assert mine.create_execution_provider(mine.devices[0], {}, {}).name == "MyExecutionProvider"
    assert other.create_execution_provider(other.devices[0], {}, {}).name == "OtherExecutionProvider"
    assert not mine.implements("compile")
    assert other.implements("compile")
    assert mine.get_kernel_registry(None) is None


def test_the_handle_of_a_provider_taken_back_answers_nothing(manager):
    other = manager.register(OtherProvider())
    assert other.implements("get_kernel_registry")
    manager.unregister("OtherExecutionProvider")
    assert not other.implements("get_kernel_registry")
    assert other.get_kernel_registry(None) is None


def test_an_observer_wraps_hooks_from_when_it_comes_until_it_goes(manager):
    class Watcher:
        name = "Watcher"
        api_version = 1
        seen = 0

        @hookimpl(wrapper=True)
        def create_execution_provider(self, device, provider_options, session_options):
            self.seen += 1
            return (yield)

        @hookimpl(wrapper=True)
        def get_data_transfer(self, execution_provider):
            self.seen += 1
            return (yield)

    mine, watcher = manager.register(MyProvider, name="mine"), Watcher()
    made = mine.create_execution_provider(mine.devices[0], {}, {})
    manager.register_plugin(watcher)
    assert mine.create_execution_provider(mine.devices[0], {}, {}).name == made.name
    assert mine.get_data_transfer(made) is None
    assert watcher.seen == 2
    manager.unregister_plugin("Watcher")
    mine.create_execution_provider(mine.devices[0], {}, {})
    assert watcher.seen == 2


def test_a_wrong_result_names_provider_hook_and_what_it_gave(manager):
    other = manager.register(OtherProvider())
    with pytest.raises(EPFail, match="hook get_kernel_registry must give KernelRegistry, gave str: 'no registry'"):
        other.get_kernel_registry(None)


class AnsweringProvider(MyProvider):
    """Gives one answer to whatever it is asked, or raises it."""

    name = "AnsweringExecutionProvider"

    def __init__(self, answer):
        super().__init__()
        self.answer = answer

    def _answer(self):
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer

    @hookimpl
    def get_capability(self, execution_provider, graph_viewer, kernel_lookup):
        return self._answer()

    @hookimpl
    def compile(self, execution_provider, fused_nodes):
        return self._answer()

    @hookimpl
    def create_allocator(self, execution_provider, memory_info):
        return self._answer()

    @hookimpl
    def prepack(self, execution_provider, kernel, tensor, input_index, allocator):
        return self._answer()

    @hookimpl
    def get_graph_transformers(self, execution_provider, level):
        return self._answer()


ARGUMENTS = {
    "get_capability": (None, None, None),
    "compile": (None, [None]),
    "create_allocator": (None, None),
    "prepack": (None, None, None, 0, None),
    "get_graph_transformers": (None, 1),
}


@pytest.mark.parametrize("hook", ARGUMENTS)
@pytest.mark.parametrize("answer", [5, [None], np.ones(1)], ids=["number", "list of None", "array"])
def test_an_answer_of_another_kind_is_refused(manager, hook, answer):
    handle = manager.register(AnsweringProvider(answer))
    with pytest.raises(EPFail, match=rf"'AnsweringExecutionProvider'.*hook {hook} must give .*, gave "):
        getattr(handle, hook)(*ARGUMENTS[hook])


@pytest.mark.parametrize("hook", ARGUMENTS)
def test_a_hook_does_not_end_the_process(manager, hook):
    handle = manager.register(AnsweringProvider(SystemExit(3)))
    with pytest.raises(EPFail, match=f"hook {hook} would end the process, with exit code 3"):
        getattr(handle, hook)(*ARGUMENTS[hook])


def test_an_exception_keeps_its_type_and_says_which_hook_raised(manager):
    other = manager.register(OtherProvider())
    with pytest.raises(ValueError, match="compiler lost") as raised:
        other.compile(None, [])
    assert isinstance(raised.value, EPFail)
    assert type(raised.value.__cause__) is ValueError
    assert "raised in hook compile of execution provider 'OtherExecutionProvider'" in raised.value.text


def test_devices_are_asked_once_also_from_many_threads(manager):
    provider = MyProvider()
    manager.register(provider)
    threads = [threading.Thread(target=manager.available_providers) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert provider.asked == 1


def test_a_name_taken_is_refused_until_unregistered(manager):
    manager.register(MyProvider(), name="mine")
    for name in ("mine", "second"):
        with pytest.raises(ProviderRefusedError, match="is taken by 'MyExecutionProvider'"):
            manager.register(MyProvider(), name=name)
    manager.unregister("MyExecutionProvider")
    assert manager.register(MyProvider(), name="mine").entry_point_name == "mine"
    with pytest.raises(ProviderNotFoundError, match="registered are: mine"):
        manager.unregister("yours")


def test_registering_runs_the_same_checks(manager):
    class Bad(MyProvider):
        name = ""
        api_version = True

        def __eq__(self, other):
            return True

        __hash__ = None

        @hookimpl
        async def get_data_transfer(self, execution_provider):
            return None

        @hookimpl(wrapper=True)
        def get_kernel_registry(self, execution_provider):
            return (yield)

    with pytest.raises(ProviderRefusedError) as raised:
        manager.register(Bad(), name="bad")
    for text in ("api_version must be an int", "attribute 'name'", "defines __eq__", "is a coroutine", "is a wrapper"):
        assert text in str(raised.value)
    assert manager.provider_records() == ()


def test_an_observer_that_is_also_a_provider_does_not_take_the_provider_with_it(manager):
    provider = MyProvider()
    handle = manager.register(provider)
    with pytest.raises(ProviderRefusedError):
        manager.register_plugin(provider, name="again")
    assert handle.create_execution_provider(CPU_DEVICE, {}, {}).name == "MyExecutionProvider"


def test_observers_see_stages_and_wrap_provider_hooks(discovered):
    manager = discovered("good", "observer")
    calls = sys.modules["fake_observer"].CALLS
    calls.clear()
    plugins = manager.plugins()
    assert "Watcher" in plugins.names
    assert plugins.observes_stages
    plugins.on_stage_end("load", "graph")
    manager.handle("good").create_execution_provider(OrtDevice("fake"), {}, {})
    manager.register(MyProvider()).create_execution_provider(OrtDevice("mine"), {}, {})
    assert calls == [
        ("stage", "load", "graph"),
        ("before", "fake"),
        ("after", "GoodExecutionProvider"),
        ("before", "mine"),
        ("after", "MyExecutionProvider"),
    ]


def test_without_observers_nothing_is_called(manager):
    plugins = manager.plugins()
    assert not plugins.has_observers
    plugins.on_stage_end("load", None)
    plugins.on_node_run("n", "Abs", "p", 0, 0)
    assert plugins.get_external_data_loaders() == []


def test_observers_come_and_go(manager):
    class Nodes(PluginHooks):
        name = "Nodes"

        def __init__(self):
            self.seen = []

        @hookimpl
        def on_node_run(self, node_name, op_type, provider, start_ns, duration_ns):
            self.seen.append((node_name, op_type, provider, start_ns, duration_ns))

    observer = Nodes()
    manager.register_plugin(observer)
    assert manager.plugins().observes_nodes
    manager.plugins().on_node_run("n", "Abs", "p", 1, 2)
    assert observer.seen == [("n", "Abs", "p", 1, 2)]
    manager.unregister_plugin("Nodes")
    assert not manager.plugins().has_observers


def test_a_failing_observer_is_named(manager):
    class Failing(PluginHooks):
        name = "Failing"

        @hookimpl
        def on_stage_end(self, stage, product):
            raise RuntimeError("disk full")

    manager.register_plugin(Failing)
    with pytest.raises(RuntimeError, match="disk full") as raised:
        manager.plugins().on_stage_end("load", None)
    assert isinstance(raised.value, EPFail)
    assert type(raised.value.__cause__) is RuntimeError
    assert "raised in hook on_stage_end of one of the plugins Failing" in raised.value.text


def test_plugins_without_a_device_offer_external_data(discovered, monkeypatch):
    loaders = discovered("loader").plugins().get_external_data_loaders()
    assert "Loader" in [type(loader).__name__ for loader in loaders]
    monkeypatch.setenv("ORT_SDK_DISABLED_PLUGINS", "weights")
    assert "Weights" not in discovered("loader").plugins().names


def test_the_report_has_state_reason_and_devices(discovered, monkeypatch):
    monkeypatch.setattr("ort_sdk.plugins.report.OFFERED_PROVIDERS", [KnownProvider("absent", "AbsentExecutionProvider")])
    manager = discovered("good", "too_new", "no_device", "observer")
    report = provider_report(manager)
    json.dumps(report)
    rows = {row["entry_point"]: row for row in report["providers"]}
    assert rows["good"]["devices"] == ["fake:0"]
    assert rows["no_device"]["state"] == "unavailable"
    assert rows["too_new"]["state"] == "refused"
    assert [row["name"] for row in report["plugins"] if row["entry_point"] == "watcher"] == ["Watcher"]
    assert [row["name"] for row in report["not_installed"]] == ["AbsentExecutionProvider"]
    text = report_text(manager)
    for part in (
        "GoodExecutionProvider",
        "fake:0",
        "fake-too-new 9.0",
        "API version 99",
        "pip install ort-sdk-absent",
        "Watcher",
    ):
        assert part in text
