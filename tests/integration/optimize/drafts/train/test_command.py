"""`packager draft train`, as far as it goes without a library that trains."""

from __future__ import annotations

from pathlib import Path

from tests.support.cases import cases_of
from tests.support.commandline import TINY, Packager

cases = cases_of(__file__)

TRAIN = ("draft", "train", "--model", str(TINY), "--output", "head")


@cases("train")
def test_what_cannot_be_is_refused_before_any_work(
    packager: Packager, tmp_path: Path, asked: list[str], status: int, reason: str
) -> None:
    done = packager(*TRAIN, *asked, status=status)

    assert reason in done.err
    assert done.out == ""
    assert not (tmp_path / "head").exists()


def test_a_pickled_head_is_not_trained_on(packager: Packager, tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.mkdir()
    (given / "config.json").write_text("{}")
    (given / "medusa_lm_head.pt").write_bytes(b"\x80\x04.")

    done = packager(*TRAIN, "--method", "medusa", "--from", "given", status=65)

    assert "pickle" in done.err


def test_broken_rows_are_refused_on_request(packager: Packager, tmp_path: Path) -> None:
    (tmp_path / "data.jsonl").write_text('{"text": "one"}\n{"text": "two"}\nnot JSON\n')

    done = packager(*TRAIN, "--method", "medusa", "--data", "data.jsonl", "--broken", "refuse")

    assert done.status == 65
    assert "line 3" in done.err


def test_a_directory_with_other_files_is_left_alone(packager: Packager, tmp_path: Path) -> None:
    (tmp_path / "head").mkdir()
    (tmp_path / "head" / "notes.txt").touch()

    done = packager(*TRAIN, "--method", "medusa", status=2)

    assert "notes.txt" in done.err
