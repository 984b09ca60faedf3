"""Memory that bound kernels need while they run: in the arena for their step alone, on the host and on devices."""

import numpy as np
import pytest

import ort_sdk
from ort_sdk.api import EPFail
from ort_sdk.testing.strict import provider as strict_provider
from ort_sdk.testing.strict.memory import StrictArray
from ort_sdk.testing.strict.provider import STRICT_PROVIDER, StrictProvider
from tests.run.device_chains import chain_model, registered, session_on

COUNT = 1000
BYTES = 4 * COUNT
ROUNDED = 4096
CHAIN = chain_model(["Neg", "Exp", "Neg", "Sin"] * 3, [COUNT])
ASKED = []


class WithWorkspace(strict_provider.BindableStrictKernel):
    """Asks for twice the bytes of its output, and fills all of it in each call."""

    def workspace_bytes(self, inputs, outputs):
        ASKED.append(([slot.shape for slot in inputs], [slot.shape for slot in outputs], [slot.array for slot in outputs]))
        return 2 * BYTES

    def bind(self, inputs, outputs, workspace):
        launch, cell = super().bind(inputs, outputs), workspace.cell
        assert isinstance(workspace, StrictArray)
        assert (workspace.shape, workspace.dtype) == ((2 * BYTES,), np.uint8)

        def call():
            self._device.queue.submit(lambda: cell.fill(np.full(2 * BYTES, 7, np.uint8)), "workspace")
            launch()
            self._device.queue.submit(lambda: cell.fill(np.full(2 * BYTES, 9, np.uint8)), "workspace")

        return call


def wanted_of(x):
    for _ in range(3):
        x = np.sin(-np.exp(-x))
    return x


def test_steps_share_the_memory_of_their_workspaces(monkeypatch):
    monkeypatch.setattr(strict_provider, "BindableStrictKernel", WithWorkspace)
    ASKED.clear()
    with registered(StrictProvider(), "strict"):
        session = session_on(CHAIN, STRICT_PROVIDER)
        for seed in range(5):
            x = np.random.default_rng(seed).standard_normal(COUNT).astype(np.float32)
            np.testing.assert_array_equal(session.run(None, {"x": x})[0], wanted_of(x))
        (row,) = session.program_report()
        # Two values and a workspace live together.
        assert (row.bound_count, row.device_bytes) == (14, 2 * ROUNDED + 8192)
    assert ASKED[0] == ([(COUNT,)], [(COUNT,)], [None])
    assert len(ASKED) == 12


def test_no_bytes_are_no_workspace(monkeypatch):
    class Without(strict_provider.BindableStrictKernel):
        def workspace_bytes(self, inputs, outputs):
            return 0

        def bind(self, inputs, outputs, workspace):
            assert workspace is None
            return super().bind(inputs, outputs)

    monkeypatch.setattr(strict_provider, "BindableStrictKernel", Without)
    with registered(StrictProvider(), "strict"):
        session = session_on(CHAIN, STRICT_PROVIDER)
        for _ in range(3):
            session.run(None, {"x": np.ones(COUNT, np.float32)})
        assert session.program_report()[0].device_bytes == 2 * ROUNDED


@pytest.mark.parametrize("answer", [-1, 2.0, None, "8", True])
def test_what_is_no_number_of_bytes_is_refused(monkeypatch, answer):
    monkeypatch.setattr(WithWorkspace, "workspace_bytes", lambda *_: answer)
    monkeypatch.setattr(strict_provider, "BindableStrictKernel", WithWorkspace)
    with registered(StrictProvider(), "strict"):
        session = session_on(CHAIN, STRICT_PROVIDER)
        session.run(None, {"x": np.ones(COUNT, np.float32)})
        with pytest.raises(EPFail, match=r"workspace_bytes of StrictExecutionProvider's kernel of Neg node 'node v0' must give"):
            session.run(None, {"x": np.ones(COUNT, np.float32)})


def test_an_allocator_without_blocks_gives_one_array_to_all_steps(monkeypatch):
    given = set()

    class Shared(WithWorkspace):
        def bind(self, inputs, outputs, workspace):
            given.add(id(workspace))
            return super().bind(inputs, outputs, workspace)

    monkeypatch.setattr(strict_provider, "BindableStrictKernel", Shared)
    monkeypatch.delattr(strict_provider.StrictAllocator, "grow_block")
    with registered(StrictProvider(), "strict"):
        session = session_on(CHAIN, STRICT_PROVIDER)
        for seed in range(4):
            x = np.random.default_rng(seed).standard_normal(COUNT).astype(np.float32)
            np.testing.assert_array_equal(session.run(None, {"x": x})[0], wanted_of(x))
        (row,) = session.program_report()
        assert (row.bound_count, row.device_bytes, len(given)) == (14, 0, 1)


class HostKernel:
    """Negates by way of a workspace that it uses up."""

    deterministic, shape_inputs = True, ()

    def __init__(self):
        self.workspace = None

    def compute(self, x):
        return -x

    def workspace_bytes(self, inputs, outputs):
        (shape,) = [slot.shape for slot in outputs]
        return 4 * shape[0]

    def bind(self, inputs, outputs, workspace):
        assert workspace.dtype == np.uint8
        assert workspace.ctypes.data % 64 == 0
        copy = self.workspace = workspace.view(np.float32)

        def call():
            copy[...] = inputs[0].array
            np.negative(copy, out=outputs[0].array)
            workspace.fill(0xFF)

        return call


def test_workspaces_on_the_host_are_in_its_arena():
    session = ort_sdk.InferenceSession(chain_model(["Cosh"] * 6, [COUNT]), providers=["CPUExecutionProvider"])
    for step in session._state.plan.steps:
        step.kernel = HostKernel()
        step.compute = step.kernel.compute
    for seed in range(5):
        x = np.random.default_rng(seed).standard_normal(COUNT).astype(np.float32)
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], x)
    spaces = [step.kernel.workspace for step in session._state.plan.steps]
    assert all(space.shape == (COUNT,) for space in spaces)
    assert len({space.ctypes.data for space in spaces}) < len(spaces)
