"""Amazon ECR: passwords from AWS's own API, for a registry that wants them as Basic."""

from __future__ import annotations

import base64
import json
import logging
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import boto3
import pytest
from botocore.exceptions import ClientError
from moto.server import ThreadedMotoServer

from packager.core.errors import AccessDenied, UsageError
from packager.images.registry import ecr
from packager.images.registry.client import RegistryClient
from packager.images.registry.clients import RegistryClients
from packager.images.registry.credential import Credentials
from packager.images.registry.credentials import find_credentials
from packager.images.registry.ecr import ecr_credentials, has_fixed_tag, is_ecr
from packager.images.registry.transport import Transport
from tests.support.cases import cases
from tests.support.doubles.registry import FakeRegistry, sha256
from tests.support.known import known

HOST = "123456789012.dkr.ecr.eu-west-1.amazonaws.com"
SECRET = "secret-canary"
PASSWORD = "123456789012-auth-token"  # moto's


@pytest.fixture(scope="module")
def aws_server() -> Iterator[str]:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    yield "http://{}:{}".format(*server.get_host_and_port())
    server.stop()


@pytest.fixture
def aws(aws_server: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_ENDPOINT_URL_ECR", aws_server)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDCANARY")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return aws_server


@cases("host")
def test_hosts_of_ecr_are_told_from_others(host: str, known: bool) -> None:
    assert is_ecr(host) is known


def test_aws_gives_a_password_that_is_renewed_in_time(aws: str) -> None:
    found = known(find_credentials(HOST))

    assert (found.user, found.password) == ("AWS", PASSWORD)
    assert found.renew_at == datetime(2015, 1, 1, tzinfo=UTC).timestamp() - 600  # moto's day
    assert PASSWORD not in repr(found)


def test_docker_login_goes_first(aws: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    auth = base64.b64encode(b"AWS:of-docker-login").decode()
    (tmp_path / "config.json").write_text(json.dumps({"auths": {HOST: {"auth": auth}}}))

    found = known(find_credentials(HOST))

    assert found.password == "of-docker-login"


def test_the_password_opens_a_registry(aws: str) -> None:
    with FakeRegistry(auth="basic", account=("AWS", PASSWORD)) as registry:
        digest = registry.put("a/b", b"layer")
        client = RegistryClients(find_credentials=lambda host: ecr_credentials(HOST)).at(
            registry.host
        )
        assert client.head_blob("a/b", digest) == 5
        client.cancel_upload("a/b", client.start_upload("a/b"))


class Passwords:
    """Gives out new passwords, each of which the registry takes until the next one."""

    def __init__(self, registry: FakeRegistry, lasts_s: float) -> None:
        self.registry = registry
        self.lasts_s = lasts_s
        self.given = 0

    def __call__(self, host: str) -> Credentials:
        self.given += 1
        self.registry.quirks.account = ("AWS", f"password-{self.given}")
        return Credentials(
            user="AWS", password=f"password-{self.given}", renew_at=time.time() + self.lasts_s
        )

    def client(self) -> RegistryClient:
        transport = Transport(sleep=lambda seconds: None)
        return RegistryClients(find_credentials=self, transport=transport).at(self.registry.host)


@cases("a_password_is_asked_for_again_when_it_is_needed")
def test_a_password_is_asked_for_again_when_it_is_needed(
    lasts_s: float, revoked: bool, given: int
) -> None:
    with FakeRegistry(auth="basic") as registry:
        passwords = Passwords(registry, lasts_s)
        client = passwords.client()
        client.head_blob("a/b", sha256(b""))
        before = passwords.given
        if revoked:
            registry.quirks.account = ("AWS", "revoked")
        for _ in range(2):
            client.head_blob("a/b", sha256(b""))

    assert passwords.given == given if lasts_s > 0 else passwords.given > before


def test_missing_aws_credentials_are_said(
    aws: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))

    with pytest.raises(AccessDenied) as failed:
        ecr_credentials(HOST)

    assert failed.value.message == f"no password for '{HOST}': there are no AWS credentials"
    assert "ecr:GetAuthorizationToken" in failed.value.hint
    assert ecr_credentials("public.ecr.aws") is None


@cases("an_answer_without_a_password_is_explained_without_it")
def test_an_answer_without_a_password_is_explained_without_it(
    monkeypatch: pytest.MonkeyPatch,
    answer: dict[str, object],
    error: dict[str, str] | None,
    reason: str,
) -> None:
    class Service:
        def get_authorization_token(self) -> dict[str, object]:
            if error:
                raise ClientError({"Error": error}, "GetAuthorizationToken")
            return answer

    monkeypatch.setattr(ecr, "_client", lambda *arguments: Service())

    with pytest.raises(AccessDenied, match=reason) as failed:
        ecr_credentials(HOST)

    said = f"{failed.value.message} {failed.value.hint} {failed.value.__cause__!r}"
    assert SECRET not in said


def test_ecr_says_whether_a_tag_may_be_moved(aws: str) -> None:
    made = boto3.client("ecr", region_name="eu-west-1")
    made.create_repository(repositoryName="team/fixed", imageTagMutability="IMMUTABLE")
    made.create_repository(repositoryName="team/moves")

    names = ("team/fixed", "team/moves", "team/absent")
    assert [has_fixed_tag(HOST, name, "1") for name in names] == [True, False, False]
    assert not has_fixed_tag("ghcr.io", "team/fixed", "1")


@cases("exclusions")  # moto knows none
def test_tags_are_excluded_from_the_setting(
    monkeypatch: pytest.MonkeyPatch, setting: str, filters: tuple[str, ...], fixed: tuple[str, ...]
) -> None:
    excluded = [{"filterType": "WILDCARD", "filter": one} for one in filters]
    answer = {"imageTagMutability": setting, "imageTagMutabilityExclusionFilters": excluded}

    class Service:
        def describe_repositories(self, **asked: object) -> dict[str, object]:
            return {"repositories": [answer]}

    monkeypatch.setattr(ecr, "_client", lambda *arguments, **more: Service())

    assert tuple(tag for tag in ("dev-1", "1.0") if has_fixed_tag(HOST, "a/b", tag)) == fixed


def test_without_boto3_the_way_to_get_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)

    with pytest.raises(UsageError, match="boto3 is not installed") as failed:
        ecr_credentials(HOST)

    assert "pip install 'boto3>=1.36'" in failed.value.hint
