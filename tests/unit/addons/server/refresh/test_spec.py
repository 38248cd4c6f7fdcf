"""The file of a refresh: what it needs, and what it may not say; and what starts it each hour."""

from __future__ import annotations

import configparser
import shlex
from pathlib import Path

import pytest

from packager.addons.server.refresh.spec import read_refresh_file
from packager.addons.server.refresh.units import unit_text
from tests.support.cases import cases_of
from tests.support.refusals import raises_code

cases = cases_of(__file__)

LEAST = 'name = "tiny"\nmodel = "m"\ntraffic = "rows"\nimage = "tiny"\n'


def test_the_least_file_has_defaults(tmp_path: Path) -> None:
    place = tmp_path / "tiny.toml"
    place.write_text(LEAST + "[gate]\nworst_set = -0.1\n")

    spec = read_refresh_file(place)

    assert (spec.method, spec.instance, spec.drift) == ("eagle3", "local", None)
    assert (spec.gate.worst_set, spec.gate.first_token) == (-0.1, 0.10)
    assert (spec.watch.seconds, spec.watch.requests, spec.collect.conversations) == (600, 200, 200)


@cases("refused")
def test_what_cannot_be_meant_is_refused(tmp_path: Path, more: str, match: str) -> None:
    place = tmp_path / "tiny.toml"
    place.write_text(LEAST + more)
    with raises_code("UsageError", match=match):
        read_refresh_file(place)


@pytest.mark.parametrize("name", ["tiny.toml", "a b.toml", "50%.toml", "$HOME.toml"])
def test_units_start_the_command_for_any_name(name: str) -> None:
    file = Path("/srv") / name
    words = ["/usr/bin/packager", "draft", "refresh", str(file), "--quiet"]

    line = unit_text("cron", "tiny", file, "/usr/bin/packager", Path("/var/log/r.log"))
    fields = line.rstrip("\n").split(" ", 5)
    assert shlex.split(fields[5].replace("\\%", "%"))[:5] == words
    assert "%" not in line.replace("\\%", "")

    text = unit_text("systemd", "tiny", file, "/usr/bin/packager", Path("/var/log/r.log"))
    service, timer = text.split("# ~/.config/systemd/user/packager-refresh-tiny.timer\n")
    read = configparser.RawConfigParser()
    read.read_string(service)
    start = read["Service"]["ExecStart"].replace("%%", "%").replace("$$", "$")
    assert shlex.split(start) == words
    assert read["Service"]["SuccessExitStatus"] == "7"
    assert "OnCalendar=hourly" in timer
