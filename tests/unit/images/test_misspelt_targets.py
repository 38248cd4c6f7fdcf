"""Misspelt schemes, files and layouts are told at once, instead of asking Docker Hub for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from packager.core.errors import UsageError
from packager.core.references import RegistryTarget
from packager.images.target import parse_target
from tests.support.cases import cases

KNOWN = ("oci", "docker", "registry", "embedded", "scratch")


@cases("scheme")
def test_a_misspelt_scheme_is_guessed(text: str, meant: str) -> None:
    with pytest.raises(UsageError, match="is of no known kind") as caught:
        parse_target(text, KNOWN)

    assert caught.value.hint.startswith(f"did you mean {meant!r}?")


@cases("foreign")
def test_what_other_tools_call_an_image_is_refused_with_the_way(text: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_target(text, KNOWN)

    assert hint in caught.value.hint


@cases("registry")
def test_what_may_be_a_registry_is_one(text: str) -> None:
    assert isinstance(parse_target(text, KNOWN), RegistryTarget)


def test_a_layout_needs_its_scheme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("out").mkdir()
    assert isinstance(parse_target("out", KNOWN), RegistryTarget)
    Path("out", "oci-layout").touch()

    with pytest.raises(UsageError, match="'out' is a directory of this machine") as caught:
        parse_target("out", KNOWN)

    assert caught.value.hint == "did you mean 'oci:out'?"


def test_a_file_is_no_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("plan.json").touch()

    with pytest.raises(UsageError, match="is a file of this machine"):
        parse_target("plan.json", KNOWN)
