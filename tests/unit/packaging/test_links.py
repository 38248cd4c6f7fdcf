"""Links between pages lead to files and headings that are there."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from tests.support.places import ROOT
from tests.support.reference_pages import REFERENCE, is_page, read_page, written_pages

PAGES = [*written_pages(ROOT / "docs"), *REFERENCE]
PAGES += [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
PAGES += [ROOT / "artifact_cache/README.md"]


@cache
def anchors(page: Path) -> frozenset[str]:
    """Return the anchors of a page's headings, as code hosts make them."""
    text = re.sub(r"^```.*?^```", "", read_page(page), flags=re.M | re.S)
    found: list[str] = []
    for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE):
        plain = re.sub(r"\]\([^)]*\)", "", heading).lower()
        anchor = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        found.append(f"{anchor}-{found.count(anchor)}" if anchor in found else anchor)
    return frozenset(found)


def broken(page: Path, text: str) -> list[str]:
    """Return the links of a page that lead nowhere; those to other hosts are not followed."""
    text = re.sub(r"^ *```.*?^ *```$", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"`[^`\n]*`", "", text)
    wrong = []
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not is_page(target) or (anchor and anchor not in anchors(target)):
            wrong.append(link)
    return wrong


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    assert broken(page, read_page(page)) == []


def test_links_that_lead_nowhere_are_found() -> None:
    page = ROOT / "docs/README.md"
    text = (
        "[a](plan.md) [b](plan.md#what-a-plan-says) [c](#documentation) [d](https://example.com/x)"
    )

    assert broken(page, text) == []
    assert broken(page, "[a](plans.md) [b](plan.md#nothing) [c](#none)") == [
        "plans.md", "plan.md#nothing", "#none",
    ]  # fmt: skip


def test_every_page_can_be_reached_from_the_index() -> None:
    reached: set[Path] = set()
    waiting = [ROOT / "docs/README.md"]
    while waiting:
        page = waiting.pop()
        if page in reached or page.suffix != ".md":
            continue
        reached.add(page)
        links = re.findall(r"\]\(([^)#:\s]+)", read_page(page))
        found = ((page.parent / link).resolve() for link in links)
        waiting += [link for link in found if link.is_file() or is_page(link)]

    assert [str(page.relative_to(ROOT)) for page in PAGES if page not in reached] == []
