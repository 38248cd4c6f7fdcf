"""Sessions of boto3 share descriptions of services, and nothing of a user's."""

from __future__ import annotations

from pathlib import Path

import pytest
from botocore.loaders import JSONFileLoader

from artifact_cache.aws import aws_session


@pytest.fixture(autouse=True)
def no_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))


def test_a_second_session_reads_no_description_again(monkeypatch: pytest.MonkeyPatch) -> None:
    aws_session().client("s3", region_name="eu-west-1")
    read: list[str] = []
    load_file = JSONFileLoader.load_file
    monkeypatch.setattr(
        JSONFileLoader, "load_file", lambda self, path: read.append(path) or load_file(self, path)
    )

    made = aws_session().client("s3", region_name="us-west-2")

    assert read == []
    assert made.meta.region_name == "us-west-2"


def test_each_session_has_credentials_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for name in ("first", "second"):
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", name)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        monkeypatch.setenv("AWS_DEFAULT_REGION", f"{name}-region")
        session = aws_session()
        found.append((session.get_credentials().access_key, session.region_name))

    assert found == [("first", "first-region"), ("second", "second-region")]


def test_descriptions_elsewhere_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """AWS_DATA_PATH has services that botocore does not know."""
    (tmp_path / "own/2026-01-01").mkdir(parents=True)
    (tmp_path / "own/2026-01-01/service-2.json").write_text("{}")
    assert "own" not in aws_session().get_available_services()

    monkeypatch.setenv("AWS_DATA_PATH", str(tmp_path))

    assert "own" in aws_session().get_available_services()


def test_places_of_descriptions_do_not_add_up() -> None:
    """boto3 adds its own to those of each session, and all are looked through."""
    places = [
        aws_session()._session.get_component("data_loader").search_paths.copy() for _ in range(3)
    ]

    assert places[0] == places[1] == places[2]
