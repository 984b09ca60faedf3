"""One provider with every hook, in sessions: what is asked, with what, and what its answers do."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from ort_sdk import InferenceSession, RunOptions, SessionOptions
from ort_sdk.api import (
    CPU_DEVICE,
    NOT_PACKED,
    ComputeCapability,
    EPFail,
    ExecutionProvider,
    InvalidArgument,
    KernelRegistry,
    OpKernel,
    OrtMemoryInfo,
    PluginHooks,
    PrePackedWeights,
    ProviderHooks,
    RuntimeException,
    hookimpl,
)
from ort_sdk.plugins import plugin_manager

EXAMPLE = "com.example"


class MatMul(OpKernel):
    """Keeps its second input transposed and contiguous."""

    def __init__(self, info):
        self.packed = None

    def compute(self, a, b):
        return a @ (b if self.packed is None else self.packed.T)

    def prepack(self, tensor, input_index, allocator):
        return PrePackedWeights((np.ascontiguousarray(tensor.numpy().T),)) if input_index == 1 else NOT_PACKED

    def use_prepacked(self, weights, input_index):
        self.packed = weights.buffers[0]


class SwishPass:
    """Mul(x, Sigmoid(x)) becomes the provider's own Swish."""

    name = "SwishFusion"

    def apply(self, graph, context):
        changed = False
        for node in list(graph.nodes):
            sigmoid = graph.producer(node.inputs[1]) if node.op_type == "Mul" else None
            if sigmoid is None or sigmoid.op_type != "Sigmoid" or sigmoid.inputs[0] != node.inputs[0]:
                continue
            swish = node.copy(graph)
            swish.op_type, swish.domain, swish.inputs, swish.since_version = "Swish", EXAMPLE, [node.inputs[0]], 1
            graph.nodes[graph.nodes.index(node)] = swish
            graph.nodes.remove(sigmoid)
            graph.touch()
            changed = True
        return changed


class RecordingProvider(ProviderHooks):
    name = "RecordingExecutionProvider"
    execution_provider_class = ExecutionProvider
    allocator = None

    def __init__(self):
        self.asked = []
        self.registry = KernelRegistry(self.name)
        self.registry.kernel("MatMul", 13, {"T": ["tensor(float)"]})(MatMul)
        self.registry.kernel("Mul", 14, {"T": ["tensor(float)"]})(lambda info: np.multiply)
        self.registry.kernel("Sigmoid", 13, {"T": ["tensor(float)"]})(lambda info: lambda x: 1 / (1 + np.exp(-x)))
        self.registry.kernel("Swish", 1, domain=EXAMPLE)(lambda info: lambda x: x / (1 + np.exp(-x)))

    @hookimpl
    def get_supported_devices(self):
        return [CPU_DEVICE]

    @hookimpl
    def create_execution_provider(self, device, provider_options, session_options):
        self.asked.append(("create_execution_provider", dict(provider_options)))
        return self.execution_provider_class(self.name, device, provider_options)

    @hookimpl
    def get_kernel_registry(self, execution_provider):
        return self.registry

    @hookimpl
    def get_capability(self, execution_provider, graph_viewer, kernel_lookup):
        nodes = [node for node in graph_viewer.nodes if kernel_lookup.lookup(node) is not None]
        return [ComputeCapability((node,)) for node in nodes]

    @hookimpl
    def get_graph_transformers(self, execution_provider, level):
        self.asked.append(("get_graph_transformers", level))
        return [SwishPass()] if level == 2 else None

    @hookimpl
    def prepack(self, execution_provider, kernel, tensor, input_index, allocator):
        self.asked.append(("prepack", input_index))

    @hookimpl
    def create_allocator(self, execution_provider, memory_info):
        return self.allocator

    @hookimpl
    def get_external_data_loader(self, execution_provider):
        return None

    @hookimpl
    def on_session_initialization_end(self, execution_provider):
        self.asked.append(("on_session_initialization_end",))

    @hookimpl
    def on_run_start(self, execution_provider, run_options):
        self.asked.append(("on_run_start", dict(run_options)))

    @hookimpl
    def on_run_end(self, execution_provider, run_options):
        self.asked.append(("on_run_end", dict(run_options)))


class Observer(PluginHooks):
    name = "observer"

    def __init__(self):
        self.stages = []
        self.nodes = []

    @hookimpl
    def on_stage_end(self, stage, product):
        self.stages.append(stage)

    @hookimpl
    def on_node_run(self, node_name, op_type, provider, start_ns, duration_ns):
        self.nodes.append((op_type, provider))

    @hookimpl
    def get_external_data_loader(self):
        return None


@pytest.fixture
def provider():
    manager = plugin_manager()
    made = RecordingProvider()
    manager.register(made)
    made.observer = Observer()
    manager.register_plugin(made.observer)
    yield made
    manager.unregister(made.name)
    manager.unregister_plugin("observer")


WEIGHT = np.arange(6, dtype=np.float32).reshape(2, 3) / 7


def swish_model():
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"], name="product"),
        helper.make_node("Sigmoid", ["m"], ["s"]),
        helper.make_node("Mul", ["m", "s"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "swish",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 3])],
        [onnx.numpy_helper.from_array(WEIGHT, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def swish(x):
    m = x @ WEIGHT
    return m / (1 + np.exp(-m))


def test_every_hook_of_a_session_is_asked_and_its_answer_used(provider):
    session = InferenceSession(swish_model(), providers=[(provider.name, {"speed": 9})])
    x = np.array([[1, -2], [0.5, 3]], np.float32)
    for _ in range(3):
        np.testing.assert_allclose(session.run(None, {"x": x})[0], swish(x), rtol=1e-6)
    assert ("create_execution_provider", {"speed": "9"}) in provider.asked
    assert [row[1] for row in provider.asked if row[0] == "get_graph_transformers"] == [1, 2, 3]
    assert ("prepack", 1) in provider.asked


def test_a_pass_of_the_provider_changes_the_plan(provider):
    plan = InferenceSession(swish_model(), providers=[provider.name])._state.plan
    assert [step.op_type for step in plan.steps] == ["MatMul", "Swish"]


def test_a_pass_of_the_provider_can_be_disabled(provider):
    session = InferenceSession(swish_model(), providers=[provider.name], disabled_optimizers=["SwishFusion"])
    assert [step.op_type for step in session._state.plan.steps] == ["MatMul", "Sigmoid", "Mul"]


def test_a_packed_input_is_passed_as_none(provider):
    plan = InferenceSession(swish_model(), providers=[provider.name])._state.plan
    assert plan.steps[0].inputs[1] == 0
    assert len(plan.constants) == 0


class HostAllocator:
    memory_info = OrtMemoryInfo(CPU_DEVICE)

    def allocate(self, shape, element_type):
        return np.empty(shape, element_type.numpy_dtype)

    def release(self, array):
        pass


def run_thrice(provider):
    """So often that there is a program."""
    session = InferenceSession(swish_model(), providers=[provider.name])
    for _ in range(3):
        session.run(None, {"x": np.ones((2, 2), np.float32)})


def raising(*_arguments):
    raise ValueError("lost")


@pytest.mark.parametrize(
    ("ability", "text"),
    [
        ("packing_identity", "while input 1 of ai.onnx::MatMul was packed for RecordingExecutionProvider"),
        ("prepack", "while input 1 of ai.onnx::MatMul was packed for RecordingExecutionProvider"),
        ("use_prepacked", "while input 1 of ai.onnx::MatMul was packed for RecordingExecutionProvider"),
        ("bind", "while RecordingExecutionProvider bound MatMul node 'product'"),
        ("when", "raised in the predicate of a kernel of RecordingExecutionProvider for ai.onnx::MatMul"),
        ("fuse_steps", "raised in fuse_steps of RecordingExecutionProvider"),
        ("join_calls", "raised in join_calls of RecordingExecutionProvider"),
    ],
)
def test_what_a_provider_raises_outside_of_runs_says_where(provider, ability, text):
    class Raising(MatMul):
        deterministic, shape_inputs = True, ()

        def bind(self, inputs, outputs):
            return lambda: None

    class RaisingProvider(ExecutionProvider):
        pass

    setattr(RaisingProvider if ability in ("fuse_steps", "join_calls") else Raising, ability, raising)
    provider.registry = KernelRegistry(provider.name)
    when = raising if ability == "when" else None
    provider.registry.kernel("MatMul", 13, {"T": ["tensor(float)"]}, when=when)(Raising)
    provider.execution_provider_class = RaisingProvider
    provider.allocator = HostAllocator()
    with pytest.raises(ValueError, match="lost") as raised:
        run_thrice(provider)
    assert isinstance(raised.value, EPFail)
    assert type(raised.value.__cause__) is ValueError
    assert text in raised.value.text


@pytest.mark.parametrize("answer", [None, 5])
def test_packed_weights_that_are_none_are_refused(provider, answer):
    class Odd(MatMul):
        def prepack(self, tensor, input_index, allocator):
            return answer

    provider.registry = KernelRegistry(provider.name)
    provider.registry.kernel("MatMul", 13, {"T": ["tensor(float)"]})(Odd)
    with pytest.raises(RuntimeException, match="prepack must give PrePackedWeights or NOT_PACKED, gave"):
        InferenceSession(swish_model(), providers=[provider.name])


def test_start_and_end_of_session_and_runs_are_notified(provider):
    session = InferenceSession(swish_model(), providers=[provider.name])
    assert provider.asked[-1] == ("on_session_initialization_end",)
    options = RunOptions()
    options.add_run_config_entry("acme.speed", "9")
    feeds = {"x": np.ones((1, 2), np.float32)}
    provider.asked.clear()
    session.run(None, feeds, options)
    assert provider.asked == [("on_run_start", {"acme.speed": "9"}), ("on_run_end", {"acme.speed": "9"})]
    provider.asked.clear()
    with pytest.raises(InvalidArgument):
        session.run(None, {"x": np.ones((1, 3), np.float32)})
    assert [row[0] for row in provider.asked] in (["on_run_start", "on_run_end"], [])


def test_observers_see_stages_and_profiled_nodes(provider, tmp_path):
    options = SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "profile")
    session = InferenceSession(swish_model(), options, providers=[provider.name])
    assert provider.observer.stages == ["load", "optimized", "partition", "plan"]
    session.run(None, {"x": np.ones((1, 2), np.float32)})
    assert provider.observer.nodes == [("MatMul", provider.name), ("Swish", provider.name)]
    session.end_profiling()
