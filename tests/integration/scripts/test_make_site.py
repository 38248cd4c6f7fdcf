"""The site of docs/: built without a warning, whole, and readable without a network."""

from __future__ import annotations

import importlib.util
import re
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from tests.conftest import unavailable
from tests.support.cases import cases
from tests.support.places import ROOT, SCRIPTS
from tests.support.processes import run_python
from tests.support.reference_pages import REFERENCE, written_pages

# What a browser loads by itself, wherever it stands.
LOADED = re.compile(r"<(?:script|link|img|iframe|source)\b[^>]*\b(?:src|href)=[\"']?(https?:)?//")
PAGES = [*written_pages(ROOT / "docs"), *REFERENCE]
IMPORTED = re.compile(r"url\(\s*[\"']?(?:https?:)?//|@import\s+[\"'](?:https?:)?//")


@pytest.fixture(scope="module")
def script() -> ModuleType:
    loader = SourceFileLoader("make_site", str(SCRIPTS / "make-site"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("make_site", loader))
    loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if importlib.util.find_spec("zensical") is None:
        unavailable("zensical (`pip install '.[docs]'`)")
    place = tmp_path_factory.mktemp("site") / "site"
    done = run_python(SCRIPTS / "make-site", place, env={"NO_COLOR": "1"})
    assert done.stdout == f"{place}\n", done.stderr
    return place


def test_every_page_is_on_the_site(site: Path) -> None:
    pages = [path.relative_to(ROOT / "docs") for path in PAGES]
    names = [page.with_name("index.md") if page.name == "README.md" else page for page in pages]

    assert len(names) > 50
    assert [str(name) for name in names if not (site / name.with_suffix(".html")).is_file()] == []


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    found = [
        f"{path.relative_to(site)}: {match[0]}"
        for pattern, suffix in ((LOADED, "html"), (IMPORTED, "css"))
        for path in site.rglob(f"*.{suffix}")
        for match in pattern.finditer(path.read_text(encoding="utf-8"))
    ]

    assert found == []


def test_links_of_the_site_lead_to_its_pages(site: Path) -> None:
    """zensical looks at the links of pages; here are those that it made."""
    broken = []
    for path in site.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        for link in re.findall(r"<a\b[^>]*\bhref=[\"']?([^\"'\s>]+)", text):
            name = link.partition("#")[0]
            if name and not re.match(r"[a-z]+:|/", name) and not (path.parent / name).exists():
                broken.append(f"{path.relative_to(site)}: {link}")

    assert broken == []


def test_navigation_has_every_page_but_single_decisions() -> None:
    settings = yaml.safe_load(re.sub(r"!!python/\S+", "", (ROOT / "mkdocs.yml").read_text()))
    held = {page for section in settings["nav"] for pages in section.values() for page in pages}
    docs = {path.relative_to(ROOT / "docs").as_posix() for path in PAGES}

    assert {page for page in docs - held if not page.startswith("decisions/0")} == set()


def test_a_link_that_leads_nowhere_is_an_error(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], site: Path
) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/index.md").write_text("# Page\n\n[a](nowhere.md)\n")
    (tmp_path / "mkdocs.yml").write_text("site_name: x\n")

    assert script.build(tmp_path) != 0
    assert "nowhere.md" in capsys.readouterr().err


@cases("links_fit_the_site")
def test_links_fit_the_site(script: ModuleType, page: str, text: str, fits: str) -> None:
    assert script.fitted(text, page) == fits
