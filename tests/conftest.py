"""Tests are to see the kernels that compute in the end, from the first run on: sessions wait for them to be compiled."""

import os

os.environ.setdefault("ORT_SDK_COMPILATION", "wait")
