"""Suite: every kernel on ONNX's own cases (behaviours K1 to K4)."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pytest

from ort_sdk.api import HostArray
from ort_sdk.testing.case_runs import check_case, run_repeatedly
from ort_sdk.testing.cases import load_cases
from ort_sdk.testing.compare import assert_same
from ort_sdk.testing.kernel_cases import case_operators, label, node_cases, reached_operators
from ort_sdk.testing.retyped import as_double, double_model

from .suite import ProviderSuite

__all__ = ["KernelSuite"]

MIN_REASON = 10


class KernelSuite(ProviderSuite):
    """Whether each kernel gives what ONNX says, again and again, and whether there is a case to say it.

    Class attributes a subclass may set:

    ``kernels_without_cases``
        operator or pattern (``com.microsoft::*``) → why ONNX's cases reach no kernel of it, and what tests it instead.
    """

    kernels_without_cases: ClassVar[Mapping[str, str]] = {}

    def test_node_case(self, node_case: str) -> None:
        """K1, K2, K3."""
        case = node_cases(self.subject.registry)[node_case]
        check_case(case, self.open_session(case.model_bytes()))

    def test_node_case_in_double(self, double_case: str) -> None:
        """K1, K2, K3, for kernels that are registered for double too."""
        case = node_cases(self.subject.registry)[double_case]
        found = double_model(case)
        assert found is not None
        model, inputs, outputs = found
        session = self.open_session(model)
        for given, expected in case.data_sets():
            feeds = dict(zip(case.feed_names(), as_double(given, inputs), strict=False))
            for results in run_repeatedly(session, feeds):
                for index, (actual, wanted) in enumerate(zip(results, as_double(expected, outputs), strict=True)):
                    atol = max(case.atol, single_rounding(wanted))
                    assert_same(actual, wanted, rtol=case.rtol, atol=atol, what=f"output {index}")

    def test_every_operator_has_a_case(self) -> None:
        """K4."""
        unreached = self.unreached_operators()
        unexplained = [f"{operator}: {why}" for operator, why in unreached.items() if not self._explained(operator)]
        assert not unexplained, (
            "kernels that no case of ONNX reaches; if a case should, correct the registration, "
            "otherwise say why and what tests them in kernels_without_cases:\n" + "\n".join(unexplained)
        )

    def test_reasons_are_given_for_kernels_without_cases_only(self) -> None:
        """K4."""
        unreached = self.unreached_operators()
        for pattern, reason in self.kernels_without_cases.items():
            assert len(reason) >= MIN_REASON, f"kernels_without_cases[{pattern!r}] gives no reason"
            assert fnmatch.filter(unreached, pattern), f"kernels_without_cases[{pattern!r}] explains nothing: remove it"

    def unreached_operators(self) -> dict[str, str]:
        """Operators with a kernel that no case reaches → what was found.

        A kernel for one version of an operator is content with cases of another version: ONNX keeps cases for the newest.
        """
        registry = self.subject.registry
        if registry is None:
            pytest.skip(f"{self.subject.name} has no kernels: it only compiles groups")
        reached = {operator for case in load_cases("node") for operator in reached_operators(case, registry)}
        in_corpus = {operator for case in load_cases("node") for operator in case_operators(case)}
        versions = {operator: _versions(operator, self) for operator in registry.operators() if operator not in reached}
        return {
            label(operator): f"versions {', '.join(found)} match no node of any case"
            if operator in in_corpus
            else "no case has the operator"
            for operator, found in versions.items()
            if operator not in in_corpus or not self._only_old(operator)
        }

    def _only_old(self, operator: tuple[str, str]) -> bool:
        """Whether all kernels of an operator are for versions that no case has."""
        registry = self.subject.registry
        candidates = () if registry is None else registry.candidates(*operator)
        newest = newest_case_version(operator)
        return all(newest is None or not info.kernel_def.matches_version(newest) for info in candidates)

    def _explained(self, operator: str) -> bool:
        return any(fnmatch.fnmatchcase(operator, pattern) for pattern in self.kernels_without_cases)


def single_rounding(expected: HostArray) -> float:
    """How far the expected output of a case, which was computed in single precision, may itself be off."""
    largest = np.abs(expected[np.isfinite(expected)]).max(initial=0.0) if expected.dtype.kind == "f" else 0.0
    return float(largest * np.finfo(np.float32).eps)


def _versions(operator: tuple[str, str], suite: ProviderSuite) -> list[str]:
    registry = suite.subject.registry
    return [] if registry is None else [info.kernel_def.version_text() for info in registry.candidates(*operator)]


def newest_case_version(operator: tuple[str, str]) -> int | None:
    """Newest since-version of an operator among the node cases; None if there is none."""
    import onnx

    from ort_sdk.api import find_schema

    versions = []
    for case in load_cases("node"):
        if operator in case_operators(case):
            model = onnx.ModelProto.FromString(case.model_bytes())
            imports = {row.domain or "": row.version for row in model.opset_import}
            schema = find_schema(operator[1], imports.get(operator[0], 0), operator[0])
            versions.append(0 if schema is None else schema.since_version)
    return max(versions, default=None)
