"""Every link between the repository's pages leads somewhere."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HIDDEN = {".tox", "build", "dist", "node_modules", *(mark.parent.name for mark in ROOT.glob("*/pyvenv.cfg"))}
"""Folders of others, virtual environments among them."""
LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)
PAGES = sorted(page for page in ROOT.rglob("*.md") if not HIDDEN & set(page.relative_to(ROOT).parts))


def slug(heading: str) -> str:
    """The anchor that repository hosts make of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def anchors(page: Path) -> set[str]:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return {slug(heading) for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)}


def broken(page: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = page if not path else page.parent / path
    if not target.resolve().is_relative_to(ROOT) or not target.exists():
        return True
    return bool(anchor) and target.suffix == ".md" and anchor not in anchors(target)


def test_there_are_pages():
    assert ROOT / "README.md" in PAGES


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page):
    links = LINK.findall(CODE.sub("", page.read_text(encoding="utf-8")))
    local = [link for link in links if not re.match(r"[a-z]+:", link)]
    assert [link for link in local if broken(page, link)] == []
