"""What `packager check` says of the files in examples/check, word by word."""

from __future__ import annotations

import pytest

from tests.support.cases import read_tables
from tests.support.commandline import Packager
from tests.support.places import DATA, ROOT

EXAMPLES = ROOT / "examples" / "check"
EXPECTED = DATA / "check"
FILES: dict[str, list[str]] = read_tables(__file__)["files"]


def test_every_example_is_checked() -> None:
    assert {path.name for path in EXAMPLES.iterdir()} == set(FILES)


@pytest.mark.parametrize("name", FILES)
def test_every_line_is_told(name: str, packager: Packager, request: pytest.FixtureRequest) -> None:
    done = packager("check", f"examples/check/{name}", *FILES[name], cwd=ROOT)

    expected = EXPECTED / f"{name}.txt"
    if request.config.getoption("--update-golden"):
        expected.write_text(f"{done.out}{done.err}")
    assert f"{done.out}{done.err}" == expected.read_text()
    assert done.status == (3 if ": error " in done.out else 0)


def test_the_page_shows_what_is_printed() -> None:
    page = (ROOT / "docs" / "check.md").read_text()
    shown = page.partition("$ packager check examples/check/deployment.yaml\n")[2]
    lines = [line for line in shown.partition("```")[0].splitlines() if line != "…"]

    printed = (EXPECTED / "deployment.yaml.txt").read_text().splitlines()
    assert len(lines) == 4
    assert [line for line in lines if line not in printed] == []
