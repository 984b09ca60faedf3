from pathlib import Path

import pytest

from ort_sdk.plugins import reset_manager
from ort_sdk.plugins.manager import DISABLED_PLUGINS, DISABLED_PROVIDERS, LOAD_PROVIDERS, PluginManager

FAKE_DISTS = Path(__file__).parent.parent / "data" / "fake_dists"


@pytest.fixture
def discovered(monkeypatch):
    """Makes a manager that discovers the named fake distributions, beside whatever is installed."""
    for variable in (DISABLED_PROVIDERS, LOAD_PROVIDERS, DISABLED_PLUGINS):
        monkeypatch.delenv(variable, raising=False)
    reset_manager()

    def make(*names):
        for name in reversed(names):
            assert any((FAKE_DISTS / name).glob("*.dist-info")), name
            monkeypatch.syspath_prepend(str(FAKE_DISTS / name))
        manager = PluginManager()
        manager.discover()
        return manager

    yield make
    reset_manager()


@pytest.fixture
def record_of():
    def find(manager, entry_point_name):
        records = [*manager.provider_records(), *manager.plugin_records()]
        return next(record for record in records if record.entry_point_name == entry_point_name)

    return find
