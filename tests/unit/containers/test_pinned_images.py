"""Images that others publish are named by digest, and renewed by one command."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from packager.optimize.steps.tools.definition import ToolFile
from tests.support.cases import cases
from tests.support.places import SCRIPTS
from tests.support.workers import load

renew = load(SCRIPTS / "renew-images")
CONTAINERS = SCRIPTS.parent / "containers"
DOCKERFILES = sorted(CONTAINERS.glob("**/Dockerfile"))
OLD, NEW = "sha256:" + "0" * 64, "sha256:" + "1" * 64


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.parent.name)
def test_a_dockerfile_starts_from_digests_only(path: Path) -> None:
    text = path.read_text()
    defaults = dict(re.findall(r"^ARG (\w+)=(\S+)$", text, re.M))
    images = [
        re.sub(r"\$\{(\w+)\}", lambda match: defaults[match[1]], image)
        for image in re.findall(r"^FROM (\S+)", text, re.M)
    ]

    assert images
    assert [image for image in images if not renew.PINNED.fullmatch(image)] == []


def test_a_tools_image_starts_from_a_digest() -> None:
    assert renew.PINNED.fullmatch(ToolFile(summary="any").image)


def test_the_tools_dockerfile_and_the_docker_executor_start_from_one_image() -> None:
    text = (CONTAINERS / "tools/common/Dockerfile").read_text()

    assert f"ARG BASE={ToolFile(summary='any').image}\n" in text


def test_every_pinned_image_is_found_by_the_script() -> None:
    found = {match[0] for path in renew.files() for match in renew.PINNED.findall(path.read_text())}

    assert found == {
        "debian:bookworm-slim",
        "python:3.11-slim-bookworm",
        "python:3.12-slim-bookworm",
    }


@cases("a_moved_tag_is_pinned_anew_and_told")
def test_a_moved_tag_is_pinned_anew_and_told(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "Dockerfile"
    path.write_text(text.format(OLD))

    assert renew.renew([path], lambda name: NEW, write=False)
    assert path.read_text() == text.format(OLD)
    assert renew.renew([path], lambda name: NEW, write=True)

    assert path.read_text() == text.format(NEW)
    assert f"Dockerfile: a.example/b/c:1.2-x {OLD} -> {NEW}" in capsys.readouterr().out
    assert not renew.renew([path], lambda name: NEW, write=True)
