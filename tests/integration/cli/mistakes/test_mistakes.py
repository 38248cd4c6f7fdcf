"""Each mistake of the table ends with its status, and says what, where, and what to do.

The texts are compared whole: `docs/reference/mistakes.md` is made from the same table.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from pathlib import Path

import pytest

from packager.cli import app
from tests.integration.cli.mistakes.rows import Mistake, read_mistakes
from tests.integration.cli.mistakes.situations import SITUATIONS
from tests.support.commandline import TINY, Packager

MISTAKES = read_mistakes()
# What of the environment decides how a hub, a registry or a bucket is asked.
UNSET = (
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "HF_TOKEN", "HF_ENDPOINT"),
    *("HF_HUB_OFFLINE", "AWS_ENDPOINT_URL", "AWS_PROFILE", "AWS_ACCESS_KEY_ID", "DOCKER_HOST"),
)


@pytest.fixture
def here(tmp_path: Path, own_place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with the example in it; nothing of the user's is seen."""
    (tmp_path / "examples").mkdir()
    (tmp_path / "examples" / "tiny-llama").symlink_to(TINY)
    for name in UNSET:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setenv("HF_HOME", str(own_place / "hf"))
    monkeypatch.setenv("HOME", str(own_place))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("mistake", MISTAKES, ids=[one.about for one in MISTAKES])
def test_a_mistake_is_explained(
    mistake: Mistake,
    here: Path,
    packager: Packager,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, text in mistake.files.items():
        (here / name).write_text(text)
    with SITUATIONS[mistake.situation](here) as found:
        values = {"here": str(here), **found}
        there = set(here.iterdir())
        program, *arguments = shlex.split(filled(mistake.command, values))
        environment = {name: filled(text, values) for name, text in mistake.env.items()}
        if environment:  # libraries read it when they are imported
            done = packager(*arguments, env=environment)
            status, out, err = done.status, done.out, done.err
        else:
            status = app.run(arguments)
            out, err = capsys.readouterr()

    assert program == "packager"
    assert (status, out) == (mistake.status, "")
    assert err == filled(mistake.told, values)
    assert set(here.iterdir()) == there


@pytest.mark.parametrize("mistake", MISTAKES, ids=[one.about for one in MISTAKES])
def test_a_message_ends_with_one_error_and_one_hint(mistake: Mistake) -> None:
    lines = mistake.told.splitlines()

    assert [line.partition(": ")[0] for line in lines[-2:]] == ["error", "hint"]
    assert sum(line.startswith(("error:", "hint:")) for line in lines) == 2
    for line in lines[-2:]:
        assert re.fullmatch(
            r"(error|hint): [^A-Z\s].*[^.]|(error|hint): [A-Z][A-Z0-9].*[^.]", line
        ), line
    findings = [line for line in lines if line.startswith("error    ")]
    assert len([line for line in lines if line.startswith("         hint: ")]) >= len(findings)


def test_no_mistake_stands_in_the_table_twice() -> None:
    assert len(MISTAKES) >= 65
    commands = Counter(
        (one.command, one.situation, str(one.env), str(one.files)) for one in MISTAKES
    )
    assert [command for command, times in commands.items() if times > 1] == []


def filled(text: str, values: dict[str, str]) -> str:
    """Put values in the place of `{name}`; other braces stay."""
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", value)
    return text
