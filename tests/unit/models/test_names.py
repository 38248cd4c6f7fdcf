"""Paths that mean the same file everywhere, and those that do not."""

from __future__ import annotations

import pytest

from packager.models.paths import check_distinct, check_path
from tests.support.cases import cases
from tests.support.refusals import raises_code


@cases("an_unsafe_path_is_refused")
def test_an_unsafe_path_is_refused(path: str, why: str) -> None:
    with raises_code("UnsafeName", match=why) as caught:
        check_path(path)
    assert caught.value.message.isprintable()
    assert caught.value.hint


def test_a_path_of_bytes_that_are_no_utf_8_is_refused() -> None:
    with raises_code("UnsafeName", match="not UTF-8") as caught:
        check_path("a\udcffb")
    assert caught.value.message.isprintable()


@pytest.mark.parametrize("path", ["config.json", "a/b c.txt", "тест/ü.json", "é" * 127])
def test_a_plain_path_is_accepted(path: str) -> None:
    check_path(path)


@cases("paths_that_collide_somewhere_are_refused")
def test_paths_that_collide_somewhere_are_refused(paths: tuple[str, ...]) -> None:
    with raises_code("UnsafeName", match=r"differs from .* only in case or in accents"):
        check_distinct(paths)


def test_files_of_one_directory_do_not_collide() -> None:
    check_distinct(("a/x", "a/y", "b"))
