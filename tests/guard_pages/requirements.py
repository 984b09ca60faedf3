"""What tests with guard pages need of the machine."""

import os
import shutil
import sys

import pytest

CAN_GUARD = sys.platform == "linux" and (shutil.which(os.environ.get("CC", "cc")) is not None or "CI" in os.environ)
needs_guard_pages = pytest.mark.skipif(not CAN_GUARD, reason="guard pages need Linux and a C compiler")
