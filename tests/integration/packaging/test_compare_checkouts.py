"""scripts/compare-checkouts: what it calls equal, and what it does not."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from tests.support.cases import cases_of
from tests.support.places import SCRIPTS
from tests.support.workers import load

cases = cases_of(__file__)

pytestmark = pytest.mark.extended

ROOT = SCRIPTS.parent
script = load(SCRIPTS / "compare-checkouts")


def answer(document: object, *, status: int = 0, said: str = "") -> object:
    return script.Answer(status=status, documents={"stdout": document}, said=said)


@cases("other_facts", status=0)
def test_another_fact_differs_beside_another_sentence_too(after: str, status: int) -> None:
    """`after` is JSON: the order of its fields is one of the facts."""
    before = answer({"tp": 2, "dp": 1, "message": "fits"})
    assert script.judge(before, answer(json.loads(after), status=status))[0] == "DIFFERS"


def test_a_copy_of_another_version_answers_the_same_and_a_broken_one_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "copy"
    for name in ("packager", "artifact_cache"):
        shutil.copytree(ROOT / name, copy / name)  # times are kept: what is compiled fits

    def compared() -> tuple[int, dict[str, int]]:
        words = ["compare-checkouts", copy, ROOT, "--python", sys.executable, "list families"]
        monkeypatch.setattr(sys, "argv", [*map(str, words)])
        status = script.main()
        document = json.loads(capsys.readouterr().out.splitlines()[-1])
        return status, {name: document[name] for name in ("same", "words", "differs")}

    version = copy / "packager/__init__.py"
    version.write_text(version.read_text("utf-8") + '\n__version__ = "9.9.9"\n', "utf-8")

    assert compared() == (0, {"same": 1, "words": 0, "differs": 0})

    (copy / "packager/__main__.py").write_text("print([])\n", "utf-8")

    assert compared() == (1, {"same": 0, "words": 0, "differs": 1})
