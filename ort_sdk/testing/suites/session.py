"""Suite: the provider in sessions (behaviours S1 to S7)."""

from __future__ import annotations

import gc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from ort_sdk.api import KernelCreateInfo, KernelInfo, KernelRegistry, OrtSdkError
from ort_sdk.config_keys import DISABLE_PROGRAMS
from ort_sdk.testing.case_runs import RUNS, check_case, is_random
from ort_sdk.testing.cases import ModelCase
from ort_sdk.testing.collection import only_new_objects
from ort_sdk.testing.compare import assert_same
from ort_sdk.testing.garbage import assert_no_garbage
from ort_sdk.testing.kernel_cases import node_cases, whole_model_cases

from .suite import ProviderSuite

__all__ = ["SessionSuite"]

THREADS = 4
FEEDS = 6


class SessionSuite(ProviderSuite):
    """Whether whole models, several sessions, several threads and errors go well."""

    def test_whole_model(self, whole_model: str) -> None:
        """S1."""
        case = whole_model_cases(self.subject.registry)[whole_model]
        check_case(case, self.open_session(case.model_bytes()))

    @only_new_objects()
    def test_two_sessions_do_not_disturb_each_other(self) -> None:
        """S2."""
        case = self.small_case()
        first, second = self.open_session(case.model_bytes()), self.open_session(case.model_bytes())
        alternatives = feeds_of(case)
        wanted = [first.run(None, feeds) for feeds in alternatives]
        for feeds, result in zip(alternatives, wanted, strict=True):
            assert_all_same(second.run(None, feeds), result)
        del first
        gc.collect()
        for feeds, result in zip(alternatives, wanted, strict=True):
            assert_all_same(second.run(None, feeds), result)

    @only_new_objects()
    def test_results_outlive_their_session(self) -> None:
        """S3."""
        case = self.small_case()
        session = self.open_session(case.model_bytes())
        (feeds, *_) = feeds_of(case)
        held = session.run(None, feeds)
        wanted = [np.array(value, copy=True) for value in held]
        del session
        gc.collect()
        for other in feeds_of(case):
            self.open_session(case.model_bytes()).run(None, other)
        assert_all_same(held, wanted)

    def test_concurrent_runs_equal_sequential_ones(self) -> None:
        """S4."""
        case = self.small_case()
        session = self.open_session(case.model_bytes())
        alternatives = feeds_of(case) * THREADS
        wanted = [session.run(None, feeds) for feeds in alternatives]
        with ThreadPoolExecutor(THREADS) as pool:
            results = list(pool.map(lambda feeds: session.run(None, feeds), alternatives))
        for result, expected in zip(results, wanted, strict=True):
            assert_all_same(result, expected)

    def test_replayed_runs_equal_runs_step_by_step(self) -> None:
        """S5."""
        case = self.small_case()
        replaying = self.open_session(case.model_bytes())
        for feeds in feeds_of(case):
            # A session of its own, so that a kernel that remembers earlier runs shows.
            wanted = self.open_session(case.model_bytes(), {DISABLE_PROGRAMS: "1"}).run(None, feeds)
            for _ in range(RUNS):
                assert_all_same(replaying.run(None, feeds), wanted)

    @pytest.mark.parametrize("fault", ["raises", "gives nothing"])
    def test_a_faulty_kernel_is_named(self, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """S6."""
        case = self.small_case()
        (feeds, *_) = feeds_of(case)
        made: list[KernelInfo] = []
        registry = faulty_registry(self.subject.registry, FAULTS[fault], made)
        with monkeypatch.context() as patched:
            patched.setattr(self.subject.handle, "get_kernel_registry", lambda _: registry)
            session = self.open_session(case.model_bytes())
        if not made:
            pytest.skip(f"{self.subject.name} compiles the node, so there is no kernel to break")
        for _ in range(RUNS):
            with pytest.raises(OrtSdkError) as raised:
                session.run(None, feeds)
            text = str(raised.value)
            assert self.subject.name in text, f"the provider is not named: {text}"
            assert made[0].op_type in text, f"the operator is not named: {text}"
        sound = self.open_session(case.model_bytes())
        assert_all_same(sound.run(None, feeds), next(case.data_sets())[1], case)

    def test_a_dropped_session_is_free_at_once(self) -> None:
        """S7."""
        case = self.small_case()
        model, (feeds, *_) = case.model_bytes(), feeds_of(case)
        package = type(self.subject.execution_provider).__module__.split(".")[0]

        def use() -> None:
            session = self.open_session(model)
            for _ in range(RUNS + 1):
                session.run(None, feeds)

        assert_no_garbage(use, f"a session of {self.subject.name}", [package])

    def small_case(self) -> ModelCase:
        """A case of one node that the provider runs, on floating-point inputs alone."""
        for case in node_cases(self.subject.registry).values():
            if not is_random(case) and _is_small(case):
                return case
        pytest.skip(f"no case of ONNX is one node that {self.subject.name} runs on floating-point inputs")


def _is_small(case: ModelCase) -> bool:
    inputs, outputs = next(case.data_sets())
    return (
        len(case.op_types()) == 1
        and len(outputs) == 1
        and all(isinstance(value, np.ndarray) and value.dtype.kind == "f" and value.size for value in (*inputs, *outputs))
    )


def feeds_of(case: ModelCase) -> list[dict[str, Any]]:
    """The case's feeds, and others of the same shapes."""
    inputs, _ = next(case.data_sets())
    names = case.feed_names()
    return [
        {name: (value / (1 + index)).astype(value.dtype) for name, value in zip(names, inputs, strict=True)}
        for index in range(FEEDS)
    ]


def assert_all_same(actual: list[Any], expected: list[Any], case: ModelCase | None = None) -> None:
    """Assert that two runs gave the same, to the last bit unless a case says how near is near enough."""
    assert len(actual) == len(expected)
    for index, (one, other) in enumerate(zip(actual, expected, strict=True)):
        rtol, atol = (0.0, 0.0) if case is None else (case.rtol, case.atol)
        assert_same(one, other, rtol=rtol, atol=atol, what=f"output {index}")


def _raises(*_: Any) -> Any:
    raise ValueError("broken on purpose")


def _gives_nothing(*_: Any) -> Any:
    return ()


FAULTS: dict[str, Callable[..., Any]] = {"raises": _raises, "gives nothing": _gives_nothing}


def faulty_registry(
    registry: KernelRegistry | None, compute: Callable[..., Any], made: list[KernelInfo]
) -> KernelRegistry | None:
    """The same kernel definitions, whose kernels all are ``compute``; ``made`` collects the nodes they are made for."""
    if registry is None:
        return None
    sound = registry

    def create(info: KernelInfo) -> Any:
        made.append(info)
        return compute

    def source(domain: str, op_type: str) -> list[KernelCreateInfo]:
        return [KernelCreateInfo(row.kernel_def, create) for row in sound.candidates(domain, op_type)]

    broken = KernelRegistry(registry.provider_name)
    broken.add_source(source, registry.operators())
    return broken
