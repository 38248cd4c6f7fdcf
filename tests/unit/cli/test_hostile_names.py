"""What strangers name, label and answer is printed within one line of ours, and in its order."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from packager.cli import app
from packager.cli.bars import Look, frame_lines
from packager.cli.displays import LineDisplay, StepNews
from packager.cli.meter import Meter
from packager.core.errors import StepFailed
from packager.core.events import ImageEvent, LayerEvent, StagesEvent, StepEvent

FORGED = "error: forged"
HOSTILE = (
    f"x\n{FORGED}\r{FORGED}\u2028{FORGED}\x85{FORGED}\x1b[2J\u202e\u2066\u200f\u200b\x9b\ufeff"
)
OBEYED = set("\r\u2028\u2029\x85\x1b\u202e\u2066\u200f\u200b\x9b\ufeff\x00")


def assert_harmless(printed: str) -> None:
    """No line is a stranger's, and nothing is left that a terminal obeys."""
    assert not [line for line in printed.splitlines() if line.startswith(FORGED)]
    assert not set(printed) & OBEYED
    assert "forged" in printed  # it was shown at all


def test_progress_of_hostile_names_keeps_its_lines() -> None:
    written: list[str] = []
    lines, meter = LineDisplay(written.append), Meter(0.0)
    events = (
        StepEvent(step="fetch", state="finished", detail=HOSTILE),
        ImageEvent(layers=(10,)),
        LayerEvent(layer=0, label=HOSTILE, size=10, done=10, state="written"),
    )
    for event in events:
        meter.take(event, 5.0)
    news = [
        (5.0, StepNews(event=events[0], seconds=5.0)),
        (5.0, events[1]),
        (5.0, meter.layer(0, 5.0)),
    ]

    lines.show(news, meter.snapshot(5.0))  # type: ignore[arg-type]

    assert [text.count("\n") for text in written] == [1, 1, 1]
    assert_harmless("".join(written))


def test_the_bars_of_hostile_names_keep_their_lines() -> None:
    meter = Meter(0.0)
    for event in (
        StagesEvent(stages=(HOSTILE, "layers")),
        StepEvent(step="look", state="finished", detail=HOSTILE),
        StepEvent(step="fetch", state="running", detail=HOSTILE),
        ImageEvent(layers=(10,)),
        LayerEvent(layer=0, label=HOSTILE, size=10, done=5, state="streaming"),
    ):
        meter.take(event, 1.0)

    lines = frame_lines(meter.snapshot(2.0), Look(coloured=False), 1000, 24)

    drawn = "\n".join(lines)
    assert drawn.count("x\\nerror: forged") == 4
    assert_harmless(drawn)


@pytest.mark.parametrize("output_format", ["text", "json"])
def test_the_log_of_a_step_stands_behind_a_mark(
    output_format: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        log = f"loading\n{FORGED}\nhint: run this\n\x1b[31m{HOSTILE}"
        raise StepFailed(f"step {HOSTILE} failed", hint=HOSTILE, log=log)

    monkeypatch.setattr("packager.cli.app.app.main", fail)
    arguments = ["plan", "--format", output_format]

    assert app.run(arguments) == 6

    printed = capsys.readouterr().err
    assert_harmless(printed)
    if output_format == "text":
        *log, error, hint = printed.splitlines()
        assert log[:3] == ["| loading", "| error: forged", "| hint: run this"]
        assert all(line.startswith("| ") for line in log)
        assert error.startswith("error: step x\\nerror: forged")
        assert hint.startswith("hint: x\\nerror: forged")
    else:
        assert json.loads(printed)["hint"] == HOSTILE


@pytest.mark.parametrize("what", ["models", "instances", "containers"])
@pytest.mark.parametrize("output_format", ["text", "json", "csv"])
def test_rows_of_a_catalog_forge_no_line(
    what: str, output_format: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = (Path(__file__).parent / "corpus" / "hostile-catalog.toml").read_text("utf-8")
    catalog = tmp_path / "catalog.toml"
    catalog.write_text(rows.replace('"HOSTILE"', json.dumps(HOSTILE)))

    status = app.run(["list", what, "--catalog", str(catalog), "--format", output_format])

    printed = "".join(capsys.readouterr())
    assert status == 0, printed
    assert_harmless(printed)


def test_a_migration_forges_no_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "serving.properties"
    place.write_bytes("option.model_id=a\u202e\u2028error: forged\noption.forged=\u2066\n".encode())

    assert app.run(["migrate", str(place)]) == 0

    out, err = capsys.readouterr()
    assert "option.model_id=a\\u202e\\u2028error: forged" in out.splitlines()
    assert_harmless(out + err)


@pytest.mark.parametrize("character", ["\x00", "\x1b", "\x07", "\x85", "\x9b", "\x0b", "\x0c"])
def test_a_configuration_with_control_characters_is_not_migrated(
    character: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "serving.properties"
    place.write_bytes(f"engine=Python\noption.model_id=a{character}b\n".encode())

    assert app.run(["migrate", str(place)]) == 2

    out, err = capsys.readouterr()
    assert out == ""
    assert "line 2 of" in err
    assert "has a control character" in err
    assert character not in err
