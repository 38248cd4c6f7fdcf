"""The shipped locks: whole, hashed, and in step with what is asked for."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.support.cases import cases
from tests.unit.optimize.steps.test_locks import locked, renew, run_renew
from tests.unit.optimize.steps.test_locks import recipe as recipe


def test_a_tools_locks_are_written_in_one_command(
    recipe: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_renew(monkeypatch, "--check") == 1
    assert not (recipe / "lock.txt").exists()

    assert run_renew(monkeypatch) == 0

    assert {path.name for path in recipe.iterdir()} == {
        *("direct.txt", "lock.txt", "lock-gpu.txt"),
        *("lock-torch.txt", "lock-torch-cpu.txt", "lock-torch-cuda.txt"),
    }
    (torch,) = renew.read_pins((recipe / "lock-torch.txt").read_text())
    (cpu,) = renew.read_pins((recipe / "lock-torch-cpu.txt").read_text())
    assert (torch.version, set(torch.hashes)) == ("2.13.0", {"b" * 64, *cpu.hashes})
    assert cpu.version == "2.13.0+cpu"
    assert "6746dbcbeb526eb61330b76b41ff1b4eb848951103a892eeb080dfa2b264667b" in cpu.hashes
    assert "colorama" not in (recipe / "lock.txt").read_text()
    assert "containers/tools/mine/requirements/lock.txt: tqdm +4.0" in capsys.readouterr().out
    assert run_renew(monkeypatch, "--check") == 0


MISSING = """
import importlib.metadata as metadata, json
from packaging.requirements import Requirement
for found in metadata.distributions():
    for text in found.requires or ():
        wanted = Requirement(text)
        if wanted.marker and not wanted.marker.evaluate({"extra": ""}):
            continue
        try:
            has = metadata.version(wanted.name)
        except metadata.PackageNotFoundError:
            has = None
        if has is None or not wanted.specifier.contains(has, prereleases=True):
            print(json.dumps([found.metadata["Name"], text, has]))
"""


@pytest.mark.live
@cases("environments")
def test_nothing_is_missing(fixture: str, alone: set[str], request: pytest.FixtureRequest) -> None:
    """The lock is whole: whatever an installed package asks for is there, in a version it takes."""
    python = request.getfixturevalue(fixture)

    done = subprocess.run([python, "-c", MISSING], capture_output=True, text=True, check=True)

    missing = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row for row in missing if row[0] not in alone] == []


@pytest.mark.live
@pytest.mark.parametrize(
    ("fixture", "name"), [("quantizing", "llmcompressor"), ("training", "draft-heads")]
)
def test_versions_are_the_locks(fixture: str, name: str, request: pytest.FixtureRequest) -> None:
    python: Path = request.getfixturevalue(fixture)
    document = json.loads((python.parents[1] / "made.json").read_text())
    pins = locked(name)

    there = {re.sub(r"[-_.]+", "-", one).lower(): v for one, v in document["versions"].items()}
    del there["python"]
    there.pop("pip", None)
    if document["versions"].get("setuptools") not in pins.get("setuptools", ()):
        there.pop("setuptools", None)  # the environment's own, before Python 3.12

    assert document["hashes"] == "verified"
    assert {one: v for one, v in there.items() if v not in pins.get(one, ())} == {}
