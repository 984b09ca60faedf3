"""Placement: order of preference, claims, groups, rejections, copies between any two devices."""

import numpy as np
import pytest
from onnx import TensorProto, helper

import ort_sdk as ort
from ort_sdk.api import (
    CPU_DEVICE,
    ComputeCapability,
    ExecutionProvider,
    KernelRegistry,
    OrtDevice,
    ProviderHooks,
    hookimpl,
)
from ort_sdk.plugins import plugin_manager
from ort_sdk.testing.strict.provider import StrictExecutionProvider, StrictProvider
from tests.models_for_tests import model_bytes, value

node = helper.make_node


class HostProvider(ProviderHooks):
    """Relu and Add over NumPy; what it claims is set by the test."""

    name = "HostExecutionProvider"

    def __init__(self, name="HostExecutionProvider", claim=None, compiled=None):
        self.name = name
        self.claim = claim
        self.compiled = compiled
        self.registry = KernelRegistry(name)
        self.registry.kernel("Relu", 14, {"T": ["tensor(float)"]})(lambda _info: lambda x: np.maximum(x, 0))
        self.registry.kernel("Add", 14, {"T": ["tensor(float)"]}, when=self._small)(lambda _info: np.add)

    @staticmethod
    def _small(info):
        return None if (info.input_rank(0) or 0) < 3 else "rank below 3 only"

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
    def get_capability(self, execution_provider, graph_viewer, kernel_lookup):
        return None if self.claim is None else self.claim(graph_viewer, kernel_lookup)

    @hookimpl
    def compile(self, execution_provider, fused_nodes):
        return self.compiled(fused_nodes) if self.compiled else None


@pytest.fixture
def register():
    names = []

    def add(provider, name):
        plugin_manager().register(provider, name)
        names.append(name)

    yield add
    for name in names:
        plugin_manager().unregister(name)


def _session(model, providers, **config):
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    for key, text in config.items():
        options.add_session_config_entry(key.replace("__", "."), text)
    return ort.InferenceSession(model, options, providers=providers)


def _placed(session):
    return {inner.op_type: row.ep_name for row in session.get_provider_graph_assignment_info() for inner in row.get_nodes()}


CHAIN = [node("Relu", ["x"], ["r"]), node("Neg", ["r"], ["n"]), node("Add", ["n", "r"], ["y"])]
HOST = ["HostExecutionProvider", "CPUExecutionProvider"]


def test_nodes_go_to_the_first_provider_with_a_kernel(register):
    register(HostProvider(), "host")
    session = _session(model_bytes(CHAIN, [value("x", [2])], [value("y", [2])]), HOST)
    assert _placed(session) == {"Relu": HOST[0], "Neg": HOST[1], "Add": HOST[0]}
    np.testing.assert_array_equal(session.run(None, {"x": np.array([-1, 3], np.float32)})[0], [0, 0])


def test_a_predicate_sends_a_node_on_with_its_reason(register):
    register(HostProvider(), "host")
    session = _session(model_bytes(CHAIN, [value("x", [1, 1, 2])], [value("y", [1, 1, 2])]), HOST)
    reasons = {row.op_type: row.rejections.get("HostExecutionProvider") for row in session.placements()}
    assert reasons["Relu"] is None
    assert reasons["Neg"] == ("no kernel for this operator",)


def test_a_node_without_provider_lists_every_reason(register):
    register(HostProvider(), "host")
    model = model_bytes(
        [node("Relu", ["x"], ["y"], name="clamp")],
        [value("x", [2], TensorProto.DOUBLE)],
        [value("y", [2], TensorProto.DOUBLE)],
        opset=17,
    )
    session = _session(model, HOST)
    (row,) = session.placements()
    (reason,) = row.rejections["HostExecutionProvider"]
    assert "T allows tensor(float)" in reason
    assert "is tensor(double)" in reason
    unknown = model_bytes(
        [node("Wanted", ["x"], ["y"], domain="acme", name="custom")], [value("x")], [value("y")], domains=["acme"]
    )
    with pytest.raises(
        ort.api.NoKernelError, match=r"acme\.Wanted.*'custom'.*HostExecutionProvider: no kernel.*CPUExecutionProvider"
    ):
        _session(unknown, HOST)


def _group_claim(graph_viewer, kernel_lookup):
    wanted = tuple(inner for inner in graph_viewer.nodes if inner.op_type in ("Relu", "Add"))
    return [ComputeCapability(wanted, fuse=True, name="pair")]


def test_a_group_is_compiled(register):
    seen = []

    def compiled(fused_nodes):
        seen.extend(fused_nodes)
        return [lambda x: (np.maximum(x, 0) + x,) for _ in fused_nodes]

    register(HostProvider(claim=_group_claim, compiled=compiled), "host")
    nodes = [node("Relu", ["x"], ["r"]), node("Add", ["r", "x"], ["s"]), node("Neg", ["s"], ["y"])]
    session = _session(model_bytes(nodes, [value("x", [2])], [value("y", [2])]), HOST)
    np.testing.assert_array_equal(session.run(None, {"x": np.array([-1, 3], np.float32)})[0], [1, -6])
    (fused,) = seen
    assert [argument.name for argument in fused.graph.inputs] == ["x"]
    assert [inner.op_type for inner in fused.graph.nodes] == ["Relu", "Add"]


def test_a_group_reads_what_the_provider_asked_the_readers_of(register):
    """The graph remembers readers once it was asked; a group's nodes are none any more."""

    def claim(graph_viewer, kernel_lookup):
        assert [reader.op_type for reader in graph_viewer.consumers("x")] == ["Relu"]
        return _group_claim(graph_viewer, kernel_lookup)

    register(HostProvider(claim=claim, compiled=lambda _nodes: [lambda x, y: np.maximum(x, 0) + y]), "host")
    nodes = [node("Relu", ["x"], ["r"]), node("Add", ["r", "w"], ["y"])]
    session = _session(model_bytes(nodes, [value("x", [2]), value("w", [2])], [value("y", [2])]), HOST)
    feeds = {"x": np.array([-1, 3], np.float32), "w": np.array([1, 1], np.float32)}
    np.testing.assert_array_equal(session.run(None, feeds)[0], [1, 4])


def test_a_group_that_is_not_convex_is_dropped(register, caplog):
    """Relu → Neg → Add: the group {Relu, Add} would need its own output through Neg."""
    register(HostProvider(claim=_group_claim, compiled=lambda _nodes: pytest.fail("must not be compiled")), "host")
    with caplog.at_level("WARNING"):
        session = _session(model_bytes(CHAIN, [value("x", [2])], [value("y", [2])]), HOST)
    assert set(_placed(session).values()) == {"CPUExecutionProvider"}
    reasons = {row.op_type: row.rejections["HostExecutionProvider"] for row in session.placements()}
    assert reasons["Relu"] == reasons["Add"]
    assert "claimed it in a group that cannot be one node: a value leaves the group and comes back" in reasons["Relu"][0]
    assert "no kernel" in reasons["Neg"][0]
    (record,) = caplog.records
    assert "a claim of HostExecutionProvider is dropped" in record.getMessage()


def test_a_group_with_a_node_of_another_provider_is_explained(register):
    register(HostProvider(claim=lambda viewer, _: [ComputeCapability((viewer.nodes[0],))]), "host")
    second = HostProvider("SecondExecutionProvider", _group_claim, lambda _nodes: pytest.fail("must not be compiled"))
    register(second, "second")
    nodes = [node("Relu", ["x"], ["r"]), node("Add", ["r", "x"], ["y"])]
    session = _session(model_bytes(nodes, [value("x", [2])], [value("y", [2])]), [HOST[0], second.name, HOST[1]])
    reasons = {row.op_type: row.rejections for row in session.placements()}
    assert "placed already" in reasons["Add"]["SecondExecutionProvider"][0]


def test_a_group_of_no_nodes_is_an_error_of_its_provider(register):
    register(HostProvider(claim=lambda *_: [ComputeCapability((), fuse=True)]), "host")
    nodes = [node("Relu", ["x"], ["y"])]
    with pytest.raises(ort.api.EPFail, match=r"HostExecutionProvider.*get_capability claimed a group of no nodes"):
        _session(model_bytes(nodes, [value("x", [2])], [value("y", [2])]), HOST)


def test_a_wrong_number_of_compiled_kernels_is_an_error(register):
    register(HostProvider(claim=_group_claim, compiled=lambda _nodes: []), "host")
    nodes = [node("Relu", ["x"], ["r"]), node("Add", ["r", "x"], ["y"])]
    with pytest.raises(ort.api.EPFail, match=r"HostExecutionProvider.*compile gave 0 kernels for 1 groups"):
        _session(model_bytes(nodes, [value("x", [2])], [value("y", [2])]), HOST)


def test_bodies_are_partitioned_too(register):
    register(HostProvider(), "host")
    body = helper.make_graph([node("Relu", ["x"], ["t"])], "then", [], [value("t")])
    other = helper.make_graph([node("Neg", ["x"], ["e"])], "else", [], [value("e")])
    model = model_bytes(
        [node("If", ["c"], ["y"], then_branch=body, else_branch=other)],
        [value("c", [], TensorProto.BOOL), value("x", [2])],
        [value("y", [2])],
    )
    session = _session(model, HOST)
    assert _placed(session)["Relu"] == "HostExecutionProvider"
    x = np.array([-1, 3], np.float32)
    assert session.run(None, {"c": np.array(True), "x": x})[0].tolist() == [0, 3]
    assert session.run(None, {"c": np.array(False), "x": x})[0].tolist() == [1, -3]


class SecondStrictProvider(StrictProvider):
    """The second strict device, as a provider of its own."""

    name = "SecondStrictExecutionProvider"

    @hookimpl
    def get_supported_devices(self):
        return [OrtDevice("strict", 1)]

    @hookimpl
    def create_execution_provider(self, device, provider_options, session_options):
        created = super().create_execution_provider(device, provider_options, session_options)
        assert isinstance(created, StrictExecutionProvider)
        created.name = self.name
        return created


def _claim_by_name(letter):
    def claim(execution_provider, graph_viewer, kernel_lookup):
        return [
            ComputeCapability((inner,))
            for inner in graph_viewer.nodes
            if inner.name.startswith(letter) and kernel_lookup.lookup(inner) is not None
        ]

    return claim


class FirstNamed(StrictProvider):
    @hookimpl
    def get_capability(self, execution_provider, graph_viewer, kernel_lookup):
        return _claim_by_name("a")(execution_provider, graph_viewer, kernel_lookup)


class SecondNamed(SecondStrictProvider):
    @hookimpl
    def get_capability(self, execution_provider, graph_viewer, kernel_lookup):
        return _claim_by_name("b")(execution_provider, graph_viewer, kernel_lookup)


THREE = ["StrictExecutionProvider", "SecondStrictExecutionProvider", "CPUExecutionProvider"]


@pytest.fixture
def two_devices(register):
    first, second = FirstNamed(), SecondNamed()
    second.devices = first.devices
    register(first, "strict")
    register(second, "strict2")


def test_values_are_copied_between_any_two_devices(two_devices):
    rng = np.random.default_rng(0)
    weights = {"w": rng.standard_normal((3, 3)).astype(np.float32), "v": rng.standard_normal(3).astype(np.float32)}
    nodes = [
        node("MatMul", ["x", "w"], ["p"], name="a1"),
        node("Tanh", ["p"], ["q"], name="b1"),
        node("Add", ["q", "v"], ["r"], name="a2"),
        node("Mul", ["r", "p"], ["s"], name="b2"),
        node("Softmax", ["s"], ["t"], name="c1"),
        node("Add", ["t", "v"], ["u"], name="b3"),
        node("Sub", ["u", "p"], ["y"], name="a3"),
    ]
    model = model_bytes(nodes, [value("x", ["n", 3])], [value("y", ["n", 3]), value("p", ["n", 3])], weights)
    session = _session(model, THREE)
    assert len({row.provider for row in session.placements()}) == 3
    plain = _session(model, ["CPUExecutionProvider"])
    for batch in (2, 2, 2, 4, 2):
        x = rng.standard_normal((batch, 3)).astype(np.float32)
        for actual, wanted in zip(session.run(None, {"x": x}), plain.run(None, {"x": x}), strict=True):
            np.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=1e-6)


def test_bodies_read_values_of_other_devices(two_devices):
    then_branch = helper.make_graph([node("Mul", ["p", "x"], ["t"], name="b1")], "then", [], [value("t")])
    else_branch = helper.make_graph([node("Neg", ["p"], ["e"], name="a2")], "else", [], [value("e")])
    nodes = [
        node("Relu", ["x"], ["p"], name="a1"),
        node("If", ["c"], ["b"], then_branch=then_branch, else_branch=else_branch, name="if"),
        node("Add", ["b", "p"], ["y"], name="b2"),
    ]
    model = model_bytes(nodes, [value("c", [], TensorProto.BOOL), value("x", [3])], [value("y", [3])])
    session = _session(model, THREE)
    x = np.array([-1, 2, 3], np.float32)
    p = np.maximum(x, 0)
    for condition in (True, False, True, True, False):
        expected = p * x + p if condition else np.zeros(3)
        np.testing.assert_array_equal(session.run(None, {"c": np.array(condition), "x": x})[0], expected)


def test_a_loop_carries_values_of_a_device(two_devices):
    body = helper.make_graph(
        [
            node("Add", ["carried", "x"], ["next"], name="a1"),
            node("Mul", ["next", "x"], ["scan"], name="b1"),
            node("Identity", ["go"], ["again"], name="c1"),
        ],
        "body",
        [value("i", [], TensorProto.INT64), value("go", [], TensorProto.BOOL), value("carried", [2])],
        [value("again", [], TensorProto.BOOL), value("next", [2]), value("scan", [2])],
    )
    model = model_bytes(
        [node("Relu", ["x"], ["start"], name="b0"), node("Loop", ["n", "", "start"], ["last", "all"], body=body, name="loop")],
        [value("n", [], TensorProto.INT64), value("x", [2])],
        [value("last", [2]), value("all", ["n", 2])],
    )
    session = _session(model, THREE)
    x = np.array([1, 2], np.float32)
    for count in (0, 3, 3, 3, 1):
        last, scanned = session.run(None, {"n": np.array(count), "x": x})
        np.testing.assert_array_equal(last, x * (count + 1))
        np.testing.assert_array_equal(scanned, np.array([(k + 2) * x * x for k in range(count)], np.float32).reshape(-1, 2))


def test_fallback_to_the_cpu_can_be_forbidden(two_devices):
    nodes = [node("Relu", ["x"], ["y"], name="c1")]
    with pytest.raises(ort.api.Fail, match="assigned to the default CPU EP"):
        _session(model_bytes(nodes, [value("x", [2])], [value("y", [2])]), THREE[:2], session__disable_cpu_ep_fallback="1")


def test_a_fusion_takes_no_work_from_a_preferred_provider(register):
    """The device has MatMul and Add but no Gemm, which the CPU provider has."""

    class Products(HostProvider):
        def __init__(self):
            super().__init__("ProductsExecutionProvider")
            self.registry.kernel("MatMul", 13)(lambda _info: np.matmul)

    register(Products(), "products")
    model = model_bytes(
        [node("MatMul", ["x", "w"], ["p"]), node("Add", ["p", "b"], ["y"])],
        [value("x", [2, 3])],
        [value("y", [2, 4])],
        {"w": np.ones((3, 4), np.float32), "b": np.ones(4, np.float32)},
    )
    for providers, operators in (
        (["ProductsExecutionProvider", "CPUExecutionProvider"], {"MatMul", "Add"}),
        (["CPUExecutionProvider"], {"Gemm"}),
    ):
        session = ort.InferenceSession(model, providers=providers)
        assert {row.op_type for row in session.placements()} == operators
        np.testing.assert_array_equal(session.run(None, {"x": np.ones((2, 3), np.float32)})[0], np.full((2, 4), 4))
