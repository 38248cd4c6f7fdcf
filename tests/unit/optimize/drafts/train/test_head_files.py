"""What a training left is read strictly, and goes to its place whole or not at all."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from packager.core.errors import NotFound, OutputFailed, StepFailed, UsageError
from packager.core.image import FileRange
from packager.core.model import ModelFile
from packager.optimize.drafts.train.head_files import (
    check_answers,
    check_head_place,
    read_training,
    write_head,
)
from tests.unit.core.test_training import FIGURES


def left(place: Path, **contents: str) -> tuple[ModelFile, ...]:
    """Files of a step; `_json` in a name stands for its ending."""
    place.mkdir(exist_ok=True)
    files = []
    for name, text in contents.items():
        path = place / name.replace("_json", ".json").replace("held_out", "held-out")
        path.write_text(text)
        content = FileRange(path=str(path), offset=0, length=len(text))
        files.append(ModelFile(path=path.name, role="other", content=content))
    return tuple(files)


def names(place: Path) -> list[str]:
    return sorted(path.name for path in place.iterdir())


def test_figures_are_read(tmp_path: Path) -> None:
    files = left(tmp_path / "step", training_json=json.dumps(FIGURES))

    assert read_training(files).acceptance == (0.5, 0.25)


@pytest.mark.parametrize("text", ["", "{}", json.dumps({**FIGURES, "steps": "many"})])
def test_broken_figures_are_no_figures(tmp_path: Path, text: str) -> None:
    with pytest.raises(StepFailed, match="cannot be read"):
        read_training(left(tmp_path / "step", training_json=text))


def test_missing_figures_are_missed(tmp_path: Path) -> None:
    with pytest.raises(StepFailed, match=r"left no training\.json"):
        read_training(left(tmp_path / "step", config_json="{}"))


def test_a_model_that_answers_nothing_teaches_nothing(tmp_path: Path) -> None:
    check_answers(left(tmp_path / "one", train_jsonl="{}", held_out_jsonl="{}"))
    with pytest.raises(StepFailed, match="answered nothing"):
        check_answers(left(tmp_path / "two", train_jsonl="", held_out_jsonl="{}"))


def test_a_head_is_put_where_nothing_was(tmp_path: Path) -> None:
    files = left(tmp_path / "step", config_json="{}", training_json="{}")
    place = tmp_path / "head"

    check_head_place(place)
    write_head(files, place)

    assert names(place) == ["config.json", "training.json"]
    assert names(tmp_path) == ["head", "step"], "nothing half done is left beside it"


def test_an_earlier_head_is_replaced(tmp_path: Path) -> None:
    place = tmp_path / "head"
    write_head(left(tmp_path / "one", config_json="old", training_json="{}"), place)

    check_head_place(place)
    write_head(left(tmp_path / "two", config_json="new"), place)

    assert names(place) == ["config.json"]
    assert (place / "config.json").read_text() == "new"
    assert names(tmp_path) == ["head", "one", "two"]


def test_a_failed_write_leaves_the_earlier_head(tmp_path: Path) -> None:
    place = tmp_path / "head"
    write_head(left(tmp_path / "one", config_json="old"), place)
    files = left(tmp_path / "two", config_json="new", other_json="{}")
    (tmp_path / "two" / "other.json").unlink()

    with pytest.raises(NotFound):
        write_head(files, place)

    assert (place / "config.json").read_text() == "old"
    assert names(tmp_path) == ["head", "one", "two"]


def test_files_of_somebody_else_are_left_alone(tmp_path: Path) -> None:
    place = tmp_path / "head"
    place.mkdir()
    (place / "thesis.tex").touch()

    with pytest.raises(UsageError, match=r"thesis\.tex"):
        check_head_place(place)


def test_a_directory_that_cannot_be_replaced_is_refused_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "volume"
    place.mkdir()
    check_head_place(place)

    with monkeypatch.context() as inside:
        inside.chdir(place)
        with pytest.raises(UsageError, match=r"'\.' cannot be replaced") as refused:
            check_head_place(Path())
    assert "'head'" in (refused.value.hint or "")
    monkeypatch.setattr(os.path, "ismount", lambda path: Path(path) == place)
    with pytest.raises(UsageError, match="cannot be replaced"):
        check_head_place(place)


def test_a_place_that_is_no_directory_or_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path)

    for name in ("file", "link"):
        with pytest.raises(UsageError, match="is not a directory"):
            check_head_place(tmp_path / name)
    with pytest.raises(OutputFailed, match="cannot be made"):
        check_head_place(tmp_path / "nowhere/head")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_that_may_not_be_written_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(OutputFailed):
        check_head_place(tmp_path / "head")
