"""What a terminal shows of a build, at chosen moments and widths, on a clock that the tests set."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from packager.cli.bars import Bars, Look, frame_lines, look_of
from packager.cli.live import AboveArea, LiveArea, does_rewrap, size_of
from packager.cli.meter import Meter, Snapshot
from packager.core.events import Event, ImageEvent, LayerEvent, StagesEvent, StepEvent
from packager.core.reports.cells import cell_width
from tests.support.cases import as_type, cases, read_tables
from tests.support.places import ROOT
from tests.support.screens import Screen

EXPECTED = ROOT / "tests" / "golden" / "screens"
CORPUS = Path(__file__).parent / "corpus"
KINDS = {one.__name__: one for one in (StepEvent, StagesEvent, ImageEvent, LayerEvent)}
WIDTHS = (40, 80, 200)


@pytest.fixture
def compared(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a screen with the reviewed one; `--update-golden` writes it."""

    def compare(name: str, shown: str) -> None:
        place = EXPECTED / f"{name}.txt"
        if request.config.getoption("update_golden"):
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(shown)
        assert shown == place.read_text(), "review it; `pytest --update-golden` accepts it"

    return compare


def step(name: str, state: str = "started", detail: str = "", **more: int) -> StepEvent:
    return StepEvent(step=name, state=state, detail=detail, **more)  # type: ignore[arg-type]


BUILD: list[tuple[float, Event]] = [
    (told.pop("at"), as_type(told, KINDS[told.pop("event")]))
    for told in map(json.loads, (CORPUS / "screens.jsonl").read_text("utf-8").splitlines())
]
MOMENTS = {"model": 1.8, "quantize": 93.0, "layers": 371.0, "publish": 385.0}


def meter_at(moment: float) -> Meter:
    meter = Meter(0.0)
    for at, event in BUILD:
        if at <= moment:
            meter.take(event, at)
    return meter


def snapshot_at(moment: float) -> Snapshot:
    return meter_at(moment).snapshot(moment)


def bars_of(screen: Screen, look: Look | None = None) -> tuple[Bars, LiveArea]:
    area = LiveArea(screen.stream, screen.size, is_rewrapped=False)
    return Bars(area, look or Look(), screen.size), area


@pytest.mark.parametrize("columns", WIDTHS)
def test_a_build_at_chosen_moments(columns: int, compared: Callable[[str, str], None]) -> None:
    screen = Screen(columns)
    bars, _ = bars_of(screen)
    told = ""
    for name, moment in MOMENTS.items():
        bars.show([], snapshot_at(moment))
        told += f"--- {name}\n{screen.shown()}"

    compared(f"build-{columns}", told)
    bars.close()
    assert screen.everything() == "\n"


@pytest.mark.parametrize("columns", [1, *range(18, 30), *range(30, 61, 5), 79, 80, 81, 120, 200])
@pytest.mark.parametrize("moment", MOMENTS.values(), ids=list(MOMENTS))
def test_no_line_is_too_long_and_no_number_is_cut(columns: int, moment: float) -> None:
    now = snapshot_at(moment)
    whole = " ".join(frame_lines(now, Look(coloured=False), 1000, 24))
    numbers = set(re.findall(r"\d[\d.:]*(?: [kMGT]?B(?:/s)?| s| %)?", whole))

    for line in frame_lines(now, Look(coloured=False), columns, 24):
        assert cell_width(line) < columns
        figures = line.partition("  ")[2].partition("…")[0]
        for number in re.findall(r"(?<![\w.@:/-])\d[\d.:]*(?: [kMGT]B(?:/s)?| s| %)", figures):
            assert number in numbers


@pytest.mark.parametrize("lines", [2, 3, 5, 8])
def test_a_low_window_shows_what_is_under_way_and_folds_the_rest(lines: int) -> None:
    screen = Screen(80, lines)
    bars, _ = bars_of(screen)
    for moment in range(0, 390, 3):
        bars.show([], snapshot_at(float(moment)))
    shown = screen.shown()
    bars.close()

    assert "publish" in shown
    assert screen.everything() == "\n"  # nothing has scrolled off


def test_stages_without_room_are_counted() -> None:
    shown = "\n".join(frame_lines(snapshot_at(93.0), Look(coloured=False), 80, 5))

    assert shown.splitlines() == read_tables(__file__)["printed"]


def test_what_others_write_stands_above_and_stays() -> None:
    screen = Screen(80)
    bars, area = bars_of(screen)
    bars.show([], snapshot_at(1.8))
    above = AboveArea(screen.stream, area)

    above.write("warning: mind ")
    above.write("the gap\nof 3 ")
    during = screen.shown()
    above.write("metres\n")
    bars.close()

    assert during.splitlines()[0] == "warning: mind the gap"
    assert "✓    1.5 s  base" in during
    assert screen.everything() == "warning: mind the gap\nof 3 metres\n"


def test_half_a_line_is_written_in_the_end() -> None:
    screen = Screen(80)
    _, area = bars_of(screen)
    above = AboveArea(screen.stream, area)

    area.draw(["a line"])
    above.write("no end")
    above.flush()
    during = screen.shown()
    area.close()
    above.flush()

    assert (during, screen.everything()) == ("a line\n", "no end\n")


@pytest.mark.parametrize(("before", "after"), [(80, 40), (40, 80), (200, 80), (80, 20)])
def test_a_resized_window_keeps_what_stood_above_and_nothing_stale(before: int, after: int) -> None:
    screen = Screen(before)
    screen.feed("$ packager build\n")
    bars, _ = bars_of(screen)
    bars.show([], snapshot_at(371.0))
    screen.resize(after)
    bars.show([], snapshot_at(371.0))
    alone = Screen(after)
    bars_of(alone)[0].show([], snapshot_at(371.0))

    assert screen.shown() == "$ packager build\n" + alone.shown()
    bars.close()
    assert screen.everything() == "$ packager build\n"


def test_lines_that_a_terminal_wraps_anew_are_counted_as_it_does() -> None:
    size = [80]
    screen = Screen(80)
    area = LiveArea(screen.stream, lambda: (size[0], 24), is_rewrapped=True)
    area.draw(["x" * 79, "short"])
    size[0] = 30

    area.draw(["new"])

    assert "\x1b[4A" in screen.raw  # three rows of the long line, and one


def test_the_cursor_is_never_hidden_and_stands_at_the_beginning_of_a_line() -> None:
    screen = Screen(80)
    bars, _ = bars_of(screen)
    bars.show([], snapshot_at(371.0))

    assert (screen.is_cursor_shown, screen.cursor_column) == (True, 0)
    assert "\x1b[?" not in screen.raw


@cases("colours_are_left_out_where_unwanted")
def test_colours_are_left_out_where_unwanted(environment: dict[str, str], coloured: bool) -> None:
    screen = Screen(80)
    bars, _ = bars_of(screen, look_of(screen.stream, environment))
    bars.show([], snapshot_at(93.0))

    assert bool(re.search(r"\x1b\[[0-9;]*m", screen.raw)) == coloured
    assert screen.styles("quantize") == ({"bold"} if coloured else set())


@pytest.mark.parametrize("moment", MOMENTS.values(), ids=list(MOMENTS))
def test_an_encoding_without_our_marks_gets_ascii(moment: float) -> None:
    look = Look(encoding="ascii", coloured=False)
    lines = frame_lines(snapshot_at(moment), look, 80, 24)

    assert all(line.isascii() for line in lines)
    assert max(map(len, lines)) < 80


def test_hundreds_of_jobs_fit_the_window() -> None:
    meter = Meter(0.0)
    names = tuple(f"quantize org/model-{number} 0123456789ab" for number in range(300))
    meter.take(StagesEvent(stages=names), 0.0)
    for name in names[:100]:
        meter.take(step(name, "finished", "built"), 1.0)
    for name in names[100:104]:
        meter.take(step(name, detail="llmcompressor"), 2.0)

    lines = frame_lines(meter.snapshot(3.0), Look(coloured=False), 80, 12)

    assert len(lines) == 11
    assert sum("▸" in line for line in lines) == 4
    assert lines[0].endswith("stages")
    assert lines[-1].endswith("more")


@cases("most_terminals_wrap_old_lines_anew")
def test_most_terminals_wrap_old_lines_anew(environment: dict[str, str], does: bool) -> None:
    assert does_rewrap(environment) == does


@cases("a_stream_that_is_no_terminal_has_the_size_that_the_environment_says")
def test_a_stream_that_is_no_terminal_has_the_size_that_the_environment_says(
    environment: dict[str, str], size: tuple[int, int], tmp_path: Path
) -> None:
    with (tmp_path / "file").open("w") as stream:
        assert size_of(stream, environment) == size
