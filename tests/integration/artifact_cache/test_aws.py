"""Sessions of boto3 share descriptions of services, and nothing of a user's."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.config import Config
from botocore.loaders import JSONFileLoader
from urllib3 import HTTPResponse

from artifact_cache.aws import aws_client, aws_session
from artifact_cache.s3.client import call_s3, s3_client_of


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


@pytest.mark.parametrize("place", ["https://s3.example", "https://s3.eu-west-1.amazonaws.com"])
def test_trailers_of_checksums_are_for_aws_alone(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over TLS botocore sends its own CRC32 behind the body, which other servers do not know."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    session, sent = aws_session(), []

    def make(**own: Any) -> Any:
        return aws_client("s3", session, endpoint_url=place, config=Config(**own))

    def answer(request: AWSPreparedRequest, **_: Any) -> AWSResponse:
        sent.append(request.headers)
        return AWSResponse(request.url, 200, {}, HTTPResponse(BytesIO(), preload_content=False))

    client = s3_client_of(make)
    client.meta.events.register("before-send.s3", answer)
    call_s3(client, "put_object", Bucket="b", Key="plain", Body=b"a")
    call_s3(client, "put_object", Bucket="b", Key="summed", Body=b"a", ChecksumCRC32="6Le+Qw==")

    assert [("X-Amz-Trailer" in one) for one in sent] == ["amazonaws" in place, False]
    assert "x-amz-checksum-crc32" in sent[1]
