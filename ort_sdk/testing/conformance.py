"""``ProviderConformance``: all suites of the kit in one class."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from ort_sdk.api import KernelRegistry

from .cases import load_cases
from .kernel_cases import node_cases, whole_model_cases
from .retyped import double_cases
from .suites.allocator import AllocatorSuite
from .suites.data_transfer import DataTransferSuite
from .suites.external_data import ExternalDataSuite
from .suites.kernels import KernelSuite
from .suites.prepack import PrepackSuite, packed_cases
from .suites.provider import DiscoverySuite
from .suites.session import SessionSuite
from .suites.suite import ProviderSuite, expected_failures, registry_for_collection, stored_types, wanted_name

__all__ = ["ProviderConformance"]

PARAMETERS: dict[str, Callable[[KernelRegistry | None], list[str]]] = {
    "node_case": lambda registry: list(node_cases(registry)),
    "double_case": lambda registry: double_cases(node_cases(registry), registry),
    "packed_case": packed_cases,
    "whole_model": lambda registry: list(whole_model_cases(registry)),
}
"""Fixture → names of the cases for a provider's kernels."""


class ProviderConformance(
    DiscoverySuite, AllocatorSuite, DataTransferSuite, ExternalDataSuite, KernelSuite, PrepackSuite, SessionSuite
):
    """Everything a provider must do, as tests.

    Subclass it and name the provider::

        class TestNpu(ProviderConformance):
            provider_name = "npu"
            xfails = "tests/xfails.txt"

            def read_back(self, tensor):
                return npu.peek(tensor)

    The behaviours are numbered in ``docs/reference/provider-behaviour.md``; each test says which it is about.
    """

    @classmethod
    def pytest_generate_tests(cls, metafunc: pytest.Metafunc) -> None:
        """Make a test for each element type, or for each case that the provider's kernels match."""
        parameters = PARAMETERS.keys() & set(metafunc.fixturenames)
        if not parameters and "element_type" not in metafunc.fixturenames:
            return
        suite: Any = cls  # mypy takes the class's own __hash__ for that of its instances
        registry = registry_for_collection(suite, wanted_name(cls, metafunc.config))
        for fixture in parameters:
            metafunc.parametrize(fixture, PARAMETERS[fixture](registry))
        if "element_type" in metafunc.fixturenames:
            types = stored_types(registry) if cls.element_types is None else cls.element_types
            metafunc.parametrize("element_type", sorted(types), ids=lambda member: member.onnx_name)

    def test_expected_failures_are_tests(self, request: pytest.FixtureRequest) -> None:
        """Each line of the file of expected failures names a test of this class, and a case there is."""
        for name in expected_failures(type(self), request.config):
            method, _, parameter = name.partition("[")
            assert hasattr(self, method), f"expected failure '{name}': the kit has no such test"
            if method in CASE_TESTS:
                assert parameter.rstrip("]") in case_names(self), f"expected failure '{name}': there is no such case"


CASE_TESTS = frozenset({"test_node_case", "test_node_case_in_double", "test_packing_changes_no_result", "test_whole_model"})


def case_names(suite: ProviderSuite) -> Sequence[str]:
    """Names of all cases the suite may run."""
    assert suite.subject is not None
    return [case.name for kind in ("node", "simple", "pytorch-converted", "pytorch-operator") for case in load_cases(kind)]
