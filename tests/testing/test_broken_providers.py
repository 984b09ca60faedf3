"""The kit catches each fault put into a provider, by the test that is there for it, and passes the sound one."""

import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

FOLDER = Path(__file__).parent

CAUGHT_BY = {
    "AliasingUpload": "test_the_source_may_change_after_the_run",
    "ReadingLate": "test_the_source_may_change_when_a_copy_returns",
    "OverlappingViews": "test_views_of_a_block_are_as_asked_and_keep_it",
    "MovingBlock": "test_a_block_that_grows_keeps_its_views",
    "AliasingDownload": "test_results_on_the_host_belong_to_the_caller",
    "Unsynchronised": "test_contents_are_there_when_a_copy_to_the_host_returns",
    "Boastful": "test_it_says_where_it_reaches",
    "Truncating": "test_round_trip",
    "OneArrayForAll": "test_arrays_in_use_share_no_memory",
    "Limitless": "test_too_much_is_refused_and_less_still_works",
    "Rounding": "test_arrays_are_as_asked",
    "WrongResult": "test_node_case",
    "WrongType": "test_node_case_in_double",
    "Unreachable": "test_every_operator_has_a_case",
    "Remembering": "test_replayed_runs_equal_runs_step_by_step",
    "SharingABuffer": "test_concurrent_runs_equal_sequential_ones",
    "BadlyPacked": "test_packing_changes_no_result",
    "OffsetIgnored": "test_it_reads_exactly_the_range",
    "NewRegistryEachTime": "test_its_registry_is_built_once",
    "BindingWhatIsThere": "test_its_bound_copies_move_what_the_slots_hold",
    "CopyingViews": "test_its_views_show_the_memory_of_their_arrays",
    "Swallowing": "test_its_run_scope_lets_errors_through",
    "Hasty": "test_its_work_is_done_when_it_says_so",
    "Sharing": "test_it_knows_its_arrays_memory",
    "CopyingTensors": "test_it_takes_the_tensors_that_it_gives",
    "LeavingMemory": "test_it_copies_several_arrays_to_the_host",
}

REFUSED = {
    "WrongSignature": "hook 'create_allocator' has the wrong signature: missing execution_provider",
    "Unmarked": "not marked with @hookimpl",
    "WithoutTransfer": "must return a DataTransfer",
}
"""Fault → what every test says."""


BLOCKS = [test for fault, test in CAUGHT_BY.items() if fault in ("OverlappingViews", "MovingBlock")]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """Suite → outcome → messages by test."""
    report = tmp_path_factory.mktemp("report") / "report.xml"
    chosen = ["TestSound", *(f"TestSoundBlocks::{test}" for test in BLOCKS)]
    chosen += [f"Test{fault}::{test}" for fault, test in CAUGHT_BY.items()]
    chosen += [f"Test{fault}::{test}" for fault in REFUSED for test in ("test_it_is_loaded", "test_its_registry_is_built_once")]
    nodes = [f"{FOLDER / 'broken_providers.py'}::{name}" for name in chosen]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", *nodes]
    subprocess.run(command, capture_output=True, text=True, check=False)
    found = defaultdict(lambda: defaultdict(dict))
    for case in ET.parse(report).iter("testcase"):  # noqa: S314 - written by pytest just now
        children = [child for child in case if child.tag in ("failure", "error", "skipped")]
        outcome = children[0].tag if children else "passed"
        message = children[0].get("message", "") if children else ""
        found[case.get("classname").rpartition(".")[2].removeprefix("Test")][outcome][case.get("name")] = message
    return found


def test_the_sound_provider_passes(outcomes):
    sound = outcomes["Sound"]
    assert not sound["failure"]
    assert not sound["error"]
    assert len(sound["passed"]) > 100


def test_sound_blocks_pass(outcomes):
    assert {name.partition("[")[0] for name in outcomes["SoundBlocks"]["passed"]} == set(BLOCKS)
    assert set(outcomes["SoundBlocks"]) == {"passed"}


@pytest.mark.parametrize("fault", CAUGHT_BY)
def test_a_fault_is_caught(outcomes, fault):
    caught = {name.partition("[")[0] for name in outcomes[fault]["failure"]}
    assert CAUGHT_BY[fault] in caught


@pytest.mark.parametrize("fault", REFUSED)
def test_a_provider_that_cannot_be_opened_fails_every_test(outcomes, fault):
    assert not outcomes[fault]["passed"]
    messages = outcomes[fault]["error"].values()
    assert len(messages) == 2
    assert all(REFUSED[fault] in message for message in messages)
