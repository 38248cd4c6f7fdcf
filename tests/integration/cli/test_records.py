"""Records of builds: where they go, what happens where they cannot, and which are taken back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from packager.core.errors import UsageError
from packager.core.files.atomic import home_dir
from tests.support.cases import read_tables
from tests.support.commandline import TINY, Packager

BUILD = ("build", "--model", str(TINY), "--instance", "local", "--base", "scratch", "-q")


def test_a_build_ends_well_without_a_state_directory(packager: Packager, tmp_path: Path) -> None:
    (tmp_path / "full").write_bytes(b"")  # a file, where a directory would have to be made

    done = packager(
        *BUILD, "--output", "oci:out", env={"XDG_STATE_HOME": str(tmp_path / "full")}, status=0
    )

    assert done.out.startswith(f"oci:{tmp_path}/out:latest@sha256:")
    assert done.err.startswith("warning: the image is there, a copy of its record is not")
    assert (tmp_path / "out.record.json").is_file()


def test_a_build_ends_well_without_a_record_beside_it(packager: Packager, tmp_path: Path) -> None:
    (tmp_path / "out.record.json").mkdir()

    done = packager(*BUILD, "--output", "oci:out", status=0)

    assert "out.record.json" in done.err
    assert not list(tmp_path.glob(".*.tmp"))


def test_an_unwritable_record_file_is_refused_at_once(packager: Packager, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")

    done = packager(*BUILD, "--output", "oci:out", "--record", "file/record.json", status=74)

    assert "not a directory" in done.err
    assert not (tmp_path / "out").exists()


def test_a_record_of_another_version_is_not_misread(packager: Packager, tmp_path: Path) -> None:
    packager(*BUILD, "--output", "oci:out")
    path = tmp_path / "out.record.json"
    record = json.loads(path.read_bytes())
    path.write_text(json.dumps({**record, "schema_version": 99}))

    done = packager("build", "--from-record", "out.record.json", status=2)

    assert "is a record of version 99; this packager reads versions 1 to 7" in done.err


def test_a_user_without_a_home_is_told_to_set_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(cls: type[Path]) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", classmethod(unknown))

    with pytest.raises(UsageError) as caught:
        home_dir()
    assert "set HOME" in caught.value.hint


def test_a_record_says_what_the_container_needs(packager: Packager, tmp_path: Path) -> None:
    packager(
        *("build", "--model", str(TINY), "--instance", "ml.g5.xlarge", "--base", "scratch", "-q"),
        *("--family", "sglang", "--output", "oci:out"),
        status=0,
    )
    record = json.loads((tmp_path / "out.record.json").read_bytes())

    assert record["runtime"] == read_tables(__file__)["runtime"]
