"""The page of numbered behaviours and the conformance kit name the same ones."""

import inspect
import re
from pathlib import Path

from ort_sdk.testing import ProviderConformance

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "provider-behaviour.md"
NUMBER = re.compile(r"\b[PADEKWS]\d+\b")


def kit_tests():
    return [value for name, value in inspect.getmembers(ProviderConformance, inspect.isfunction) if name.startswith("test_")]


def test_every_behaviour_is_tested_and_every_test_has_one():
    described = set(re.findall(r"^\| ([PADEKWS]\d+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    tested = {number for test in kit_tests() for number in NUMBER.findall(test.__doc__ or "")}
    assert described == tested
    unnumbered = {test.__name__ for test in kit_tests() if not NUMBER.search(test.__doc__ or "")}
    assert unnumbered == {"test_expected_failures_are_tests"}
