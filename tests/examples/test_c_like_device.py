"""The made-up device: ONNX's cases give the same with it as on the CPU alone, and most of them run on it."""

import importlib
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import ort_sdk as ort
from ort_sdk.api import InvalidArgument, OutOfMemory
from ort_sdk.plugins import plugin_manager
from ort_sdk.testing.case_runs import check_case
from ort_sdk.testing.cases import load_cases

pytestmark = pytest.mark.opencl
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "c_like_device"
STEP, PARTS = 24, 6
"""One case in four runs, in as many tests; the OpenCL provider's tests run all."""
LEAST_SHARE = 0.7
MOST_LINES = 120


def _reason():
    try:
        import pyopencl

        pyopencl.get_platforms()
    except Exception as error:  # noqa: BLE001 - no package, no driver: whichever it is, the test cannot run
        return str(error)
    return None


@pytest.fixture(scope="module")
def module():
    reason = _reason()
    if reason is not None and not os.environ.get("CI"):
        pytest.skip(f"Tally is OpenCL inside: {reason}")
    sys.path.insert(0, str(EXAMPLE))
    try:
        provider = importlib.import_module("tally_provider")
        importlib.import_module("tally_device")
    finally:
        sys.path.remove(str(EXAMPLE))
    plugin_manager().register(provider.TallyProvider)
    yield provider
    plugin_manager().unregister(provider.NAME)


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, PARTS))])
def test_cases_pass_and_run_on_the_device(module, part):
    failures, on_device = {}, 0
    cases = load_cases("node")[part::STEP]
    for case in cases:
        try:
            session = ort.InferenceSession(case.model_bytes(), providers=[module.NAME, "CPUExecutionProvider"])
            check_case(case, session)
        except Exception as error:  # noqa: BLE001 - collected, and shown together
            failures[case.name] = f"{type(error).__name__}: {error}"[:300]
            continue
        on_device += module.NAME in {row.provider for row in session.placements()}
    assert failures == {}
    assert on_device >= LEAST_SHARE * len(cases)


@pytest.mark.parametrize("name", ["test_split_equal_parts_1d_opset13", "test_split_1d_uneven_split_opset18"])
def test_parts_of_what_is_a_part_itself(module, name):
    """A program keeps its values in parts of an arena, which Split divides again; boards divide whole pieces only."""
    (case,) = (each for each in load_cases("node") if each.name == name)
    session = ort.InferenceSession(case.model_bytes(), providers=[module.NAME, "CPUExecutionProvider"])
    check_case(case, session)
    assert {row.provider for row in session.placements()} == {module.NAME}


def _gather():
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in "xy")
    index = helper.make_tensor_value_info("i", TensorProto.INT64, ["k"])
    nodes = [helper.make_node("Gather", ["x", "i"], ["g"]), helper.make_node("Neg", ["g"], ["y"])]
    graph = helper.make_graph(nodes, "g", [x, index], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def test_reports_reach_the_run(module):
    session = ort.InferenceSession(_gather(), providers=[module.NAME, "CPUExecutionProvider"])
    x = np.arange(5, dtype=np.float32)
    for _ in range(3):
        np.testing.assert_array_equal(session.run(None, {"x": x, "i": np.array([1, -1])})[0], [-1, -4])
        with pytest.raises(InvalidArgument, match="out of bounds"):
            session.run(None, {"x": x, "i": np.array([5])})


def test_no_room_is_an_error(module):
    with pytest.raises(OutOfMemory, match="allocating 1125899906842624 bytes on the board"):
        module.board().launcher.allocate(1 << 50)


def test_dialect_and_launcher_are_small():
    assert len((EXAMPLE / "tally_device.py").read_text(encoding="utf-8").splitlines()) < MOST_LINES
