"""Paths that mean the same file everywhere, and those that do not."""

from __future__ import annotations

import pytest

from packager.models.paths import check_distinct, check_path
from packager.models.refusals import UnsafeName
from tests.support.cases import cases_of

cases = cases_of(__file__)


@pytest.mark.parametrize(
    ("path", "why"),
    [
        pytest.param("/etc/passwd", "absolute", id="absolute"),
        pytest.param("../config.json", "'..' is not a name", id="climbs"),
        pytest.param("a/../../b", "'..' is not a name", id="climbs-inside"),
        pytest.param("a//b", "'' is not a name", id="empty-part"),
        pytest.param("./a", "'.' is not a name", id="dot"),
        pytest.param("", "'' is not a name", id="empty"),
        pytest.param("a\\b", "backslash", id="backslash"),
        pytest.param("a\nb", "control character", id="newline"),
        pytest.param("a\0b", "control character", id="nul"),
        pytest.param("a\x1b[2Jb", "control character", id="terminal-escape"),
        pytest.param("a\u202egnp.exe", "control character", id="text-direction"),
        pytest.param("a\udcffb", "not UTF-8", id="not-utf8"),
        pytest.param("é" * 128, "longer than 255 bytes", id="too-long"),
    ],
)
def test_an_unsafe_path_is_refused(path: str, why: str) -> None:
    with pytest.raises(UnsafeName, match=why) as caught:
        check_path(path)
    assert caught.value.message.isprintable()
    assert caught.value.hint


@pytest.mark.parametrize("path", ["config.json", "a/b c.txt", "тест/ü.json", "é" * 127])
def test_a_plain_path_is_accepted(path: str) -> None:
    check_path(path)


@cases("paths_that_collide_somewhere_are_refused")
def test_paths_that_collide_somewhere_are_refused(paths: tuple[str, ...]) -> None:
    with pytest.raises(UnsafeName, match=r"differs from .* only in case or in accents"):
        check_distinct(paths)


def test_files_of_one_directory_do_not_collide() -> None:
    check_distinct(("a/x", "a/y", "b"))
