"""Suite: packed constants (behaviour W1)."""

from __future__ import annotations

from ort_sdk.api import KernelRegistry
from ort_sdk.config_keys import DISABLE_PREPACKING
from ort_sdk.testing.case_runs import assert_expected, is_random, run_repeatedly, with_constant_inputs
from ort_sdk.testing.kernel_cases import case_operators, node_cases

from .suite import ProviderSuite

__all__ = ["PrepackSuite"]


class PrepackSuite(ProviderSuite):
    """Whether kernels give the same with constants packed and as they are."""

    def test_packing_changes_no_result(self, packed_case: str) -> None:
        """W1."""
        case = node_cases(self.subject.registry)[packed_case]
        model = with_constant_inputs(case)
        assert model is not None
        inputs, expected = next(case.data_sets())
        feeds = {case.feed_names()[0]: inputs[0]}
        for disabled in ("0", "1"):
            session = self.open_session(model, {DISABLE_PREPACKING: disabled})
            for outputs in run_repeatedly(session, feeds):
                assert_expected(case, outputs, expected)


def packed_cases(registry: KernelRegistry | None) -> list[str]:
    """Names of one case per operator, of one node with more than one input: the first that has them."""
    chosen: dict[frozenset[tuple[str, str]], str] = {}
    for name, case in node_cases(registry).items():
        operators = case_operators(case)
        if len(operators) == 1 and operators not in chosen and not is_random(case) and with_constant_inputs(case) is not None:
            chosen[operators] = name
    return list(chosen.values())
