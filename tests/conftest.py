"""What all tests share: what outlives a file of tests is kept from the garbage collector, which many tests call.

It would look through what was collected, and through what compilers keep, again and again.
"""

import gc
from collections.abc import Iterator

import pytest


def pytest_collection_finish() -> None:
    _keep_from_collector()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    yield
    if nextitem is None or nextitem.path != item.path:
        _keep_from_collector()


def _keep_from_collector() -> None:
    gc.collect()
    gc.freeze()
