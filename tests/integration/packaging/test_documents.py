"""Every command of README and of the pages, run as it stands, and its output compared.

`--update-docs` writes the output anew instead, for review as text.  What needs a Docker Engine
or tools is run by tests/live/test_documents.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.document_runs import opened, run_page
from tests.support.documents import blocks, pages
from tests.support.places import ROOT

HERE = frozenset({"files", "here"})
NO_ENGINE = {"DOCKER_HOST": "unix:///nonexistent/docker.sock"}
WITH_COMMANDS = [page for page in pages() if any(block.stage == "here" for block in blocks(page))]


@pytest.mark.extended
@pytest.mark.parametrize("path", WITH_COMMANDS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_commands_print_what_the_page_shows(
    path: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with opened(path, tmp_path, NO_ENGINE) as page:
        run_page(page, HERE)

    if request.config.getoption("--update-docs"):
        page.update()
        page.differences.clear()
    if told := page.failures + page.differences:
        pytest.fail("\n\n".join(told), pytrace=False)
