"""Options of a capture: where its rows go, and what they cannot mean."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from packager.cli.capture_options import owner_of, take_capture
from tests.support.cases import cases_of
from tests.support.refusals import raises_code

cases = cases_of(__file__)


def given(**changes: Any) -> dict[str, Any]:
    return {"capture": None, "capture_share": None, "capture_redact": None, **changes}


def test_a_directory_is_made_for_its_user_alone(tmp_path: Path) -> None:
    place = tmp_path / "rows"
    found = take_capture(given(capture=str(place), capture_share=0.5))

    assert found is not None
    assert (found.directory, found.share) == (place, 0.5)
    assert place.stat().st_mode & 0o777 == 0o700
    assert owner_of(place) == f"{place.stat().st_uid}:{place.stat().st_gid}"
    assert take_capture(given()) is None


@cases("refused")
def test_what_captures_nothing_is_refused(options: dict[str, Any]) -> None:
    with raises_code("UsageError"):
        take_capture(given(**options))


def test_a_program_must_be_one(tmp_path: Path) -> None:
    plain = tmp_path / "redact.py"
    plain.write_text("")
    with raises_code("UsageError", match="is not executable"):
        take_capture(given(capture=str(tmp_path), capture_redact=plain))
