"""Where logs of steps are kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from packager.core.errors import OutputFailed
from packager.optimize.steps.logs import KEPT, new_log


def test_the_oldest_logs_make_room(tmp_path: Path) -> None:
    for number in range(KEPT + 3):
        (tmp_path / f"20260101T0000{number:02}Z-train-0.log").touch()

    new_log(tmp_path, "train").touch()

    assert len([*tmp_path.iterdir()]) == KEPT
    assert not (tmp_path / "20260101T000000Z-train-0.log").exists()


def test_a_place_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(OutputFailed, match="file/logs"):
        new_log(tmp_path / "file" / "logs", "train")
