import importlib
import logging

import pytest


@pytest.fixture(params=["onnxruntime", "ort_sdk"])
def ort(request):
    """The package under test, and the one it must agree with: each test runs with both."""
    logger = logging.getLogger("ort_sdk")
    level = logger.level
    module = importlib.import_module(request.param)
    module.set_default_logger_severity(4)
    yield module
    logger.setLevel(level)


@pytest.fixture
def session(ort):
    """Makes a session on the CPU."""

    def make(source, options=None, **kwargs):
        return ort.InferenceSession(source, options, providers=["CPUExecutionProvider"], **kwargs)

    return make
