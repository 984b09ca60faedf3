"""Plugin of pytest: a test fails if objects of ours, which it dropped, are left for Python's cyclic garbage collector.

``python -m pytest -p ort_sdk.testing.garbage_plugin …``. Cycles through a test's own variables (a caught error's traceback) are
the test's.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from .garbage import collected, is_through_ours, shortest_cycles

__all__ = ["pytest_runtest_call"]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Run the test with the collector off, and look at what it left.

    Raises:
        AssertionError: a reference cycle of ours.
    """
    with collected() as garbage:
        result = yield
    cycles = shortest_cycles(garbage, is_through_ours)
    assert not cycles, f"{item.nodeid} left reference cycles:\n" + "\n".join(cycles[:10])
    return result
