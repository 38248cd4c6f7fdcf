"""Logs in pages: their ends, in whole lines, and nothing that a browser or a reader obeys."""

from __future__ import annotations

import os
from pathlib import Path

from packager.addons.server.pages.logs import log_part, log_tail


def test_a_line_is_shown_when_it_is_whole(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.write_bytes(b"one\ntw")

    assert log_part(log, 0) == ("one\n", 4)
    with log.open("ab") as file:
        file.write(b"o\n")
    assert log_part(log, 4) == ("two\n", 8)


def test_a_line_longer_than_a_part_comes_in_parts(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.write_bytes(b"abcdef\n")

    assert log_part(log, 0, most=4) == ("abcd", 4)
    assert log_part(log, 4, most=4) == ("ef\n", 7)


def test_the_end_of_a_long_log_begins_with_a_line(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.write_bytes(b"first\nsecond\nthird\n")

    assert log_tail(log, most=9) == ("third\n", 19)


def test_control_characters_of_a_log_are_escaped(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.write_bytes("\x1b[31mred\u202e\n\xff".encode() + b"\xff\n")

    assert log_part(log, 0)[0] == "\\x1b[31mred\\u202e\nÿ\ufffd\n"


def test_what_is_no_file_is_an_empty_log(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/etc/passwd")

    assert log_tail(tmp_path / "none") == ("", 0)
    assert log_part(tmp_path / "pipe", 0) == ("", 0)
    assert log_part(tmp_path / "link", 0) == ("", 0)
