"""The array library's provider: ONNX's cases give the same with it as on the CPU alone, and most of them run on it."""

import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import ort_sdk as ort
from ort_sdk.api import CPU_DEVICE, InvalidArgument, TensorElementType
from ort_sdk.plugins import plugin_manager
from ort_sdk.testing.case_runs import assert_expected, run_repeatedly
from ort_sdk.testing.cases import load_cases

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "array_api_provider"
LEAST_CASES = 1500
LEAST_NODES = 4500


@pytest.fixture(scope="module")
def module():
    sys.path.insert(0, str(EXAMPLE))
    try:
        import array_api_provider
    finally:
        sys.path.remove(str(EXAMPLE))
    plugin_manager().register(array_api_provider.ArrayApiProvider)
    yield array_api_provider
    plugin_manager().unregister(array_api_provider.NAME)


def run_case(case, providers):
    """Placements of a case, after checking its results."""
    session = ort.InferenceSession(case.model_bytes(), providers=providers)
    for inputs, expected in case.data_sets():
        for outputs in run_repeatedly(session, dict(zip(case.feed_names(), inputs, strict=False))):
            assert_expected(case, outputs, expected)
    return [row.provider for row in session.placements()]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_cases_pass_and_run_on_the_library(module):
    cases = nodes = 0
    failures = {}
    for case in load_cases("node"):
        try:
            count = run_case(case, [module.NAME, "CPUExecutionProvider"]).count(module.NAME)
        except Exception as error:  # noqa: BLE001 - collected, and shown together
            failures[case.name] = f"{type(error).__name__}: {error}"[:300]
            continue
        nodes += count
        cases += count > 0
    assert failures == {}
    assert cases >= LEAST_CASES
    assert nodes >= LEAST_NODES


def test_it_describes_the_librarys_arrays(module):
    transfer = module.ArrayApiDataTransfer()
    array = transfer.copy(np.zeros((2, 3), np.int16), CPU_DEVICE, module.DEVICE)
    execution_provider = module.ArrayApiExecutionProvider(module.NAME, module.DEVICE)
    assert execution_provider.describe(array) == (TensorElementType.INT16, (2, 3))


def test_types_the_library_lacks_are_refused_by_name(module):
    with warnings.catch_warnings(), pytest.raises(InvalidArgument, match=r"float16\[2\] to array-api:0"):
        module.ArrayApiDataTransfer().copy(np.zeros(2, np.float16), CPU_DEVICE, module.DEVICE)


def test_it_is_small():
    assert len((EXAMPLE / "array_api_provider.py").read_text(encoding="utf-8").splitlines()) < 100
