"""`packager base ls`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from packager.cli import app
from packager.cli.commands import base as command
from packager.core.image import Platform

HOME = {("vllm-cpu", Platform()): Path("/bases/vllm-cpu-1")}


@pytest.mark.parametrize(("built", "place"), [(HOME, "/bases/vllm-cpu-1"), ({}, None)])
def test_programs_can_read_where_the_bases_are(
    built: dict[tuple[str, Platform], Path],
    place: str | None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(command, "find_built", lambda *asked: built.get(asked))

    assert app.run(["base", "ls", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == [
        {"name": "vllm-cpu", "platform": "linux/amd64", "place": place},
        {"name": "vllm-cpu", "platform": "linux/arm64", "place": None},
    ]

    assert app.run(["base", "ls"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    build = "not built: packager base build vllm-cpu --platform"
    assert first == f"vllm-cpu  linux/amd64  {place or f'{build} linux/amd64'}"
    assert second == f"vllm-cpu  linux/arm64  {build} linux/arm64"


@pytest.mark.parametrize(
    "words", ["base list", "keys list", "tools list", "tools remove", "jobs delete"]
)
def test_earlier_names_are_taken_and_not_listed(
    words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    group, earlier = words.split()

    assert app.run([group, earlier, "--help"]) == 0
    capsys.readouterr()
    assert app.run([group, "--help"]) == 0
    assert f"\n  {earlier} " not in capsys.readouterr().out
