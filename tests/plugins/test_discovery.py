import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ort_sdk.api import ProviderNotFoundError, ProviderRefusedError, ProviderUnavailableError
from ort_sdk.plugins import ProviderState, plugin_manager, reset_manager
from ort_sdk.plugins.known import OFFERED_PROVIDERS, hardware_of, install_hint

REFUSED = {
    "misspelt": "'get_kernel_registri' is marked with @hookimpl and is no hook: did you mean 'get_kernel_registry'?",
    "defaulted": "'create_allocator' has the wrong signature: with a default memory_info; "
    "expected create_allocator(execution_provider, memory_info)",
    "keyword_only": "'create_allocator' has the wrong signature: keyword-only memory_info",
    "parameters": "'create_allocator' has the wrong signature: missing memory_info, extra kind",
    "unmarked": "'get_kernel_registry' is named like a hook and not marked with @hookimpl",
    "incomplete": "hook 'get_supported_devices' is missing",
    "too_new": "it is written for API version 99, this host has 1: upgrade ort-sdk",
}


def test_a_good_provider_is_loaded_with_its_distribution_and_version(discovered, record_of):
    manager = discovered("good")
    record = record_of(manager, "good")
    assert record.state is ProviderState.LOADED
    assert (record.provider_name, record.distribution, record.version) == ("GoodExecutionProvider", "fake-good", "1.0")
    assert manager.handle("good") is manager.handle("GoodExecutionProvider")


def test_an_entry_point_may_name_an_object(discovered):
    assert discovered("good_host").handle("also_good").name == "AlsoGoodExecutionProvider"


@pytest.mark.parametrize("name", REFUSED)
def test_a_contract_fault_refuses_the_provider_alone_and_says_the_difference(discovered, record_of, caplog, name):
    with caplog.at_level(logging.WARNING, "ort_sdk.plugins"):
        manager = discovered(name, "good", "good_host")
    record = record_of(manager, name)
    assert record.state is ProviderState.REFUSED
    assert REFUSED[name] in record.reason
    assert record.remedy
    assert REFUSED[name] in caplog.text
    assert {"good", "also_good"} <= {handle.entry_point_name for handle in manager.available_providers()}
    with pytest.raises(ProviderRefusedError, match=record.distribution):
        manager.handle(name)


def test_nothing_of_a_refused_provider_stays_registered(discovered):
    manager = discovered("misspelt", "good")
    good = manager.handle("good")
    assert not good.implements("get_kernel_registry")
    manager.discover()
    manager._provider_pm.check_pending()
    assert [name for name, _ in manager._provider_pm.list_name_plugin() if "misspelt" in name] == []


@pytest.mark.parametrize(
    ("name", "entry_point", "reason", "remedy"),
    [
        ("import_error", "broken", "No module named 'a_library_nobody_has'", "Install the module 'a_library_nobody_has'"),
        ("exits", "exits", "SystemExit: no licence", "Repair or uninstall"),
        ("no_device", "no_device", "no device", "driver"),
        ("device_error", "device_error", "OSError: driver 12 is too old", "driver"),
    ],
)
def test_a_provider_that_cannot_start_is_unavailable_and_loud_only_if_named(
    discovered, record_of, caplog, name, entry_point, reason, remedy
):
    with caplog.at_level(logging.INFO, "ort_sdk.plugins"):
        manager = discovered(name, "good")
        available = [handle.entry_point_name for handle in manager.available_providers()]
    assert "good" in available
    assert entry_point not in available
    record = record_of(manager, entry_point)
    assert record.state is ProviderState.UNAVAILABLE
    assert reason in record.reason
    assert remedy in record.remedy
    levels = [entry.levelname for entry in caplog.records if entry_point in entry.getMessage()]
    assert levels == ["INFO"]
    with pytest.raises(ProviderUnavailableError) as raised:
        manager.handle(entry_point)
    assert reason in str(raised.value)
    assert record.remedy in str(raised.value)


@pytest.mark.parametrize(
    ("names", "claim", "sources"),
    [
        (("same_entry_a", "same_entry_b"), "twin", ("fake-same-entry-a 1.0", "fake-same-entry-b 1.1")),
        (("same_name_a", "same_name_b"), "SameExecutionProvider", ("fake-same-name-a 2.0", "fake-same-name-b 2.1")),
    ],
)
def test_two_distributions_that_claim_a_name_are_both_refused(discovered, names, claim, sources):
    manager = discovered(*names, "good")
    with pytest.raises(ProviderRefusedError) as raised:
        manager.handle(claim)
    assert all(source in str(raised.value) for source in sources)
    refused = [record for record in manager.provider_records() if record.state is ProviderState.REFUSED]
    assert len(refused) == 2
    assert manager.handle("good")


def test_blocking_one_claimant_frees_the_name(discovered, monkeypatch):
    monkeypatch.setenv("ORT_SDK_DISABLED_PROVIDERS", "same_b")
    assert discovered("same_name_a", "same_name_b").handle("SameExecutionProvider").entry_point_name == "same_a"


def test_one_distribution_on_two_paths_is_one_provider(discovered, monkeypatch, tmp_path, record_of):
    copy = tmp_path / "fake_good-0.5.dist-info"
    copy.mkdir()
    (copy / "METADATA").write_text("Metadata-Version: 2.1\nName: fake-good\nVersion: 0.5\n")
    (copy / "entry_points.txt").write_text("[ort_sdk.providers]\ngood = fake_good:Provider\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    manager = discovered("good")
    assert record_of(manager, "good").version == "1.0"
    assert record_of(manager, "good").state is ProviderState.LOADED


def test_a_malformed_entry_point_file_is_refused_alone(discovered, record_of):
    manager = discovered("malformed", "good")
    record = record_of(manager, "fake-malformed")
    assert record.state is ProviderState.REFUSED
    assert "entry_points.txt of fake-malformed 1.0 cannot be read" in record.reason
    assert manager.handle("good")


@pytest.mark.parametrize("name", ["good", "GoodExecutionProvider", " other, good "])
def test_disabled_providers_are_blocked_by_either_name(discovered, record_of, monkeypatch, name):
    monkeypatch.setenv("ORT_SDK_DISABLED_PROVIDERS", name)
    manager = discovered("good", "good_host")
    assert record_of(manager, "good").state is ProviderState.BLOCKED
    assert record_of(manager, "also_good").state is ProviderState.LOADED
    with pytest.raises(ProviderUnavailableError, match="ORT_SDK_DISABLED_PROVIDERS names it"):
        manager.handle("good")


@pytest.mark.parametrize("name", ["good", "GoodExecutionProvider"])
def test_only_the_providers_to_load_are_loaded(discovered, record_of, monkeypatch, name):
    monkeypatch.setenv("ORT_SDK_LOAD_PROVIDERS", name)
    manager = discovered("good", "good_host")
    assert [handle.entry_point_name for handle in manager.available_providers()] == ["good"]
    assert record_of(manager, "also_good").state is ProviderState.BLOCKED


def test_a_blocked_provider_is_not_imported(discovered, record_of, monkeypatch):
    monkeypatch.setenv("ORT_SDK_LOAD_PROVIDERS", "good")
    manager = discovered("good", "exits")
    assert record_of(manager, "exits").state is ProviderState.BLOCKED


def test_a_provider_that_is_not_installed_gets_an_install_hint(discovered):
    manager = discovered("good")
    with pytest.raises(ProviderNotFoundError, match=r"GoodExecutionProvider.*pip install ort-sdk-cpu"):
        manager.handle("CoreMLExecutionProvider")
    with pytest.raises(ProviderNotFoundError, match=r"'GodExecutionProvider' is not installed.*spelling"):
        manager.handle("GodExecutionProvider")


def test_hints_name_distributions_of_this_project_only():
    folders = {path.parent.name for path in (Path(__file__).resolve().parents[2] / "providers").glob("*/pyproject.toml")}
    assert {known.entry_point_name for known in OFFERED_PROVIDERS} == folders
    assert install_hint("opencl") == "Install it: pip install ort-sdk-opencl"
    assert install_hint("CUDAExecutionProvider") == "Install it: pip install ort-sdk-cuda"
    assert "coreml" not in install_hint("CoreMLExecutionProvider")


def test_accelerators_come_first_and_the_cpu_provider_last(discovered):
    names = [handle.entry_point_name for handle in discovered("good_host", "good", "same_name_a").available_providers()]
    ours = [name for name in names if name in ("good", "also_good", "same_a")]
    assert ours == ["good", "same_a", "also_good"]
    assert "cpu" not in names or names[-1] == "cpu"


def test_the_process_manager_is_kept_until_reset(discovered):
    manager = plugin_manager()
    assert plugin_manager() is manager
    reset_manager()
    assert plugin_manager() is not manager


def test_visible_hardware_is_found_by_device_file(tmp_path):
    assert hardware_of(["cuda"], tmp_path) == ""
    (tmp_path / "nvidiactl").touch()
    assert hardware_of(["CUDAExecutionProvider"], tmp_path) == str(tmp_path / "nvidiactl")
    assert hardware_of(["good"], tmp_path) == ""


def test_importing_and_discovering_imports_nothing_heavy():
    good = Path(__file__).parent.parent / "data" / "fake_dists" / "good"
    code = (
        "import sys; from ort_sdk.plugins import plugin_manager; plugin_manager().discover(); "
        "heavy = {'onnx', 'google', 'rich', 'ml_dtypes', 'numba', 'cuda', 'cupy', 'pyopencl', 'PIL', 'scipy', 'onnxruntime'}; "
        "print(sorted(heavy & set(sys.modules)), [r.state.value for r in plugin_manager().provider_records()])"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(good), *sys.path]), "ORT_SDK_LOAD_PROVIDERS": "good"}
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert result.stdout.startswith("[] [")
    assert "loaded" in result.stdout
