"""Commands of pages that need a Docker Engine or tools, run as they stand.

`PACKAGER_DOCS=long` also runs those that take minutes.  The others of these pages, which
tests/integration/packaging runs by themselves, are run before them, as a reader would.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.document_runs import opened, run_page
from tests.support.documents import blocks, pages
from tests.support.places import ROOT

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("engine")]

LONG = os.environ.get("PACKAGER_DOCS") == "long"
STAGES = frozenset({"files", "here", "live", *(["long"] if LONG else [])})
FIXTURES = {"docker": ("engine", "serving_base"), "quantizing": ("quantizing_fast",)}
FIXTURES["training"] = ("training",)
README = [  # one model is run, asked, measured and stopped there
    pytest.mark.capability("run"),
    pytest.mark.capability("measure"),
    pytest.mark.capability("documents"),
]
LIVE = [
    page for page in pages() if any(block.needs and block.stage in STAGES for block in blocks(page))
]


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(ROOT / "README.md", marks=README),
        *(page for page in LIVE if page.name != "README.md"),
    ],
    ids=lambda path: path.relative_to(ROOT).as_posix(),
)
@pytest.mark.timeout(1800)
def test_commands_print_what_the_page_shows(
    path: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    needs = {need for block in blocks(path) if block.stage in STAGES for need in block.needs}
    tools: dict[str, str] = {}  # workers that need not load their libraries
    for need in sorted(needs):
        for name in FIXTURES[need]:
            found = request.getfixturevalue(name)
        tools |= found if need == "quantizing" else {}

    with opened(path, tmp_path, tools) as page:
        run_page(page, STAGES)

    if request.config.getoption("--update-docs"):
        page.update()
        page.differences.clear()
    if told := page.failures + page.differences:
        pytest.fail("\n\n".join(told), pytrace=False)
