"""What `packager check` says of the files in examples/check, word by word."""

from __future__ import annotations

import pytest

from tests.support.commandline import Packager
from tests.support.places import DATA, ROOT

EXAMPLES = ROOT / "examples" / "check"
EXPECTED = DATA / "check"
FILES = {
    "serving.properties": ("--for=lmi:28",),
    "lmi.env": ("--for=lmi:27",),
    "vllm-sagemaker.env": ("--for=vllm:0.27.1",),
    "sglang.env": ("--for=sglang:0.5.17",),
    "tgi.env": ("--for=tgi:3.3.7",),
    "vllm.sh": ("--for=vllm:0.27.1",),
    "vllm-config.yaml": ("--for=vllm:0.27.1",),
    "deployment.yaml": (),
    "kserve.yaml": (),
    "compose.yaml": (),
    "Dockerfile": (),
}


def test_every_example_is_checked() -> None:
    assert {path.name for path in EXAMPLES.iterdir()} == set(FILES)


@pytest.mark.parametrize("name", FILES)
def test_the_example_is_told_of_line_by_line(
    name: str, packager: Packager, request: pytest.FixtureRequest
) -> None:
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
    assert len(lines) == 5
    assert [line for line in lines if line not in printed] == []
