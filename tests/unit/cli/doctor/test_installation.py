"""`packager version`: what is installed."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import pytest

from artifact_cache.distribution import DISTRIBUTION
from packager.cli.app import run
from packager.cli.doctor import installation
from packager.cli.doctor.installation import (
    Extra,
    data_digest,
    describe_installation,
    installation_report,
    packages_of_extra,
)
from packager.core import share
from packager.core.reports.text import report_lines
from packager.core.version import __version__
from tests.support.cases import read_tables

METADATA = read_tables(__file__)["metadata"]


def install(site: Path, name: str, version: str, *lines: str) -> None:
    """Make the metadata of an installed distribution."""
    place = site / f"{name}-{version}.dist-info"
    place.mkdir()
    text = METADATA.format(name=name, version=version) + "".join(f"{line}\n" for line in lines)
    (place / "METADATA").write_text(text, encoding="utf-8")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    return tmp_path


@pytest.mark.parametrize("asked", [("--json",), ("--format", "json")], ids=" ".join)
def test_the_version_is_told_as_a_document(
    asked: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["version", *asked]) == 0

    told = json.loads(capsys.readouterr().out)
    assert told["packager"] == __version__
    assert told["python"]["version"] == sys.version.split()[0]
    assert told["platform"]["system"].startswith("linux/")
    assert len(told["data"]["sha256"]) == 64
    assert told["data"]["tables"]["instances"]["rows"] > 100
    assert told["data"]["engines"]["vllm"][0] == "0.7.3"
    assert "0.10.2" in told["data"]["engines"]["vllm"]


def test_versions_of_engines_stand_in_their_order() -> None:
    versions = describe_installation().engines["vllm"]

    assert versions.index("0.8.4") < versions.index("0.10.2") < versions.index("0.33.0")


def test_the_text_begins_with_the_version_and_ends_with_what_is_absent() -> None:
    extras = (
        Extra(name="zstd", packages={"zstandard": "0.25.0"}),
        Extra(name="ray", packages={"ray": None}),
    )
    lines = report_lines(installation_report(replace(describe_installation(), extras=extras)))

    assert lines[0] == f"packager {__version__}"
    assert lines[-2:] == ["extras     zstd (zstandard 0.25.0)", "absent     ray"]


def test_an_extra_of_another_package_is_looked_up_there(site: Path) -> None:
    install(site, "ours", "1", "Provides-Extra: ssh", "Requires-Dist: far[ssh]>=7; extra == 'ssh'")
    install(site, "far", "7.2", "Provides-Extra: ssh", "Requires-Dist: wire>=3; extra == 'ssh'")

    assert dict(packages_of_extra("ours", "ssh")) == {"far": "7.2", "wire": None}

    install(site, "wire", "3.1")
    assert dict(packages_of_extra("ours", "ssh")) == {"far": "7.2", "wire": "3.1"}


def test_what_is_needed_anyway_belongs_to_no_extra(site: Path) -> None:
    needed = ("Requires-Dist: click>=8; python_version >= '3.0'", "Requires-Dist: click>=8")
    extra = ("Provides-Extra: s3", "Requires-Dist: boto3; extra == 's3'")
    install(site, "ours", "1", *needed, *extra)

    assert dict(packages_of_extra("ours", "s3")) == {"boto3": None}


def test_extras_for_developers_are_not_told() -> None:
    names = set(metadata.metadata(DISTRIBUTION).get_all("Provides-Extra") or ())
    assert {"test", "lint"} <= names

    found = {extra.name for extra in describe_installation().extras}
    assert found == names - {"test", "lint", "docs"}


def test_a_checkout_that_pip_has_not_seen_has_no_extras(site: Path) -> None:
    assert describe_installation().extras == ()


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Take a directory for that of packager."""
    found = tmp_path / "packager"
    found.mkdir()
    monkeypatch.setattr(installation, "PACKAGE", found)
    monkeypatch.setattr(share, "PACKAGE", found)
    return found


def test_another_byte_in_a_table_is_another_digest(package: Path) -> None:
    table = package / "catalog" / "data" / "rows.csv"
    table.parent.mkdir(parents=True)
    table.write_text("a,1\n")

    before = data_digest()
    (package / "catalog" / "code.py").write_text("pass\n")
    assert data_digest() == before
    table.write_text("a,2\n")
    assert data_digest() != before


def test_templates_and_containers_have_the_names_of_a_checkout_in_a_wheel(
    tmp_path: Path, package: Path
) -> None:
    (tmp_path / "templates" / "deploy").mkdir(parents=True)
    (tmp_path / "templates" / "deploy" / "a.j2").write_text("a\n")
    in_checkout = data_digest()

    (package / "_share").mkdir()
    (tmp_path / "templates").rename(package / "_share" / "templates")

    assert data_digest() == in_checkout
