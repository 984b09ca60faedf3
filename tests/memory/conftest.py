import onnx
import pytest

import ort_sdk
from ort_sdk.plugins import plugin_manager
from tests.memory.models import product_model
from tests.memory.packing import PackingProvider


@pytest.fixture
def provider():
    """A provider whose kernels pack, registered for one test."""
    made = PackingProvider()
    plugin_manager().register(made)
    yield made
    plugin_manager().unregister(made.name)


@pytest.fixture
def start(provider):
    """Makes a session on it."""

    def make(source, config=None, *, saved_to=None, **kwargs):
        options = kwargs.pop("options", None) or ort_sdk.SessionOptions()
        for key, value in (config or {}).items():
            options.add_session_config_entry(key, str(value))
        if saved_to is not None:
            options.optimized_model_filepath = str(saved_to)
        return ort_sdk.InferenceSession(source, options, providers=[provider.name], **kwargs)

    return make


@pytest.fixture
def model_path(tmp_path):
    """A model with its weight in an external file."""
    folder = tmp_path / "model"
    folder.mkdir()
    path = folder / "product.onnx"
    onnx.save_model(product_model(), path, save_as_external_data=True, location="product.data", size_threshold=0)
    return path
