"""Tests are to see the kernels that compute in the end, from the first run on: sessions wait for them to be compiled."""

import logging
import os

os.environ.setdefault("ORT_SDK_COMPILATION", "wait")


def pytest_runtest_setup():
    """Tests count what is logged by default: ``onnxruntime.quantization`` lets the root logger log more when it is imported."""
    logging.getLogger().setLevel(logging.WARNING)
