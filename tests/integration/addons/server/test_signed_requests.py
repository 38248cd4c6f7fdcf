"""A server with keys, as it is beyond loopback: who signs is answered, and nobody else."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

from packager.addons.server.server import tls_context
from packager.addons.server.sigv4 import AccessKey
from tests.support.api_server import ApiServer, optimization_body
from tests.support.cases import cases
from tests.support.certificates import self_signed
from tests.support.raw_requests import JSON, post

ALICE = AccessKey("ALICE0001", "3e9f2b71c0d84a5596e1f7d2", "alice")
CREATE = "CreateOptimizationJob"
BODY = json.dumps(optimization_body("one")).encode()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ApiServer]:
    with ApiServer(tmp_path, keys=[ALICE], on_loopback=False) as running:
        yield running


def signed(
    server: ApiServer,
    operation: str,
    body: bytes,
    *,
    service: str = "sagemaker",
    region: str = "us-east-1",
) -> dict[str, str]:
    """Return what an AWS client sends with a body: the target, and the signature's headers."""
    ours = {"X-Amz-Target": f"SageMaker.{operation}", "Content-Type": JSON}
    request = AWSRequest(method="POST", url=f"{server.url}/", data=body, headers=ours)
    SigV4Auth(Credentials(ALICE.id, ALICE.secret), service, region).add_auth(request)
    found = dict(request.headers.items())
    return {
        "target": ours["X-Amz-Target"],
        "Authorization": found["Authorization"],
        "X_Amz_Date": found["X-Amz-Date"],
    }


def jobs(server: ApiServer) -> list[str]:
    listed = server.client("sagemaker", key=ALICE).list_optimization_jobs()
    return [each["OptimizationJobName"] for each in listed["OptimizationJobSummaries"]]


def test_whoever_signs_with_a_configured_key_is_answered(server: ApiServer) -> None:
    server.client("sagemaker", key=ALICE).create_optimization_job(**optimization_body("one"))

    assert jobs(server) == ["one"]
    assert server.client("sts", key=ALICE).get_caller_identity()["Account"] == "000000000000"
    assert " alice CreateOptimizationJob 200 " in server.requests[0]


CALLS: dict[str, Callable[[Any], Any]] = {
    "sagemaker": lambda client: client.create_optimization_job(**optimization_body("one")),
    "logs": lambda client: client.describe_log_streams(logGroupName="x"),
    "sts": lambda client: client.get_caller_identity(),
    "sagemaker-runtime": lambda client: client.invoke_endpoint(EndpointName="a", Body=b"x"),
}


@pytest.mark.parametrize("service", CALLS)
@cases("other_keys")
def test_other_keys_do_nothing(
    server: ApiServer, service: str, name: str | None, secret: str | None, code: str
) -> None:
    key = AccessKey(name or ALICE.id, secret or ALICE.secret)
    with pytest.raises(ClientError) as refused:
        CALLS[service](server.client(service, key=key))

    assert refused.value.response["Error"]["Code"] == code
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 403
    assert jobs(server) == []


def test_a_request_for_buckets_is_told_where_to_go(server: ApiServer) -> None:
    with pytest.raises(ClientError, match="AWS_ENDPOINT_URL_S3"):
        server.client("s3", key=ALICE).list_buckets()


def test_an_invocation_is_signed_as_well(server: ApiServer) -> None:
    runtime = server.client("sagemaker-runtime", key=ALICE)

    with pytest.raises(ClientError, match="not found") as refused:
        runtime.invoke_endpoint(EndpointName="none", Body=b"x" * 100_000, TargetVariant="a")
    assert refused.value.response["Error"]["Code"] == "ValidationError"


def test_a_request_is_taken_once(server: ApiServer) -> None:
    given = signed(server, CREATE, BODY)

    first = post(server.port, BODY, **given)
    server.jobs.stop("optimization", "one")
    server.jobs.delete("optimization", "one")
    again = post(server.port, BODY, **given)

    assert first.status == 200
    assert (again.status, again.document["__type"]) == (403, "InvalidSignatureException")
    assert "was made already" in again.document["message"]
    assert jobs(server) == []


def test_a_request_is_taken_once_by_the_next_server_too(tmp_path: Path) -> None:
    with ApiServer(tmp_path, keys=[ALICE], on_loopback=False) as server:
        given = {**signed(server, CREATE, BODY), "Host": f"127.0.0.1:{server.port}"}
        assert post(server.port, BODY, **given).status == 200
        server.jobs.stop("optimization", "one")
        server.jobs.delete("optimization", "one")
    with ApiServer(tmp_path, keys=[ALICE], on_loopback=False) as server:
        again = post(server.port, BODY, **given)

        assert (again.status, again.document["__type"]) == (403, "InvalidSignatureException")
        assert jobs(server) == []


def test_equal_requests_that_only_read_are_answered(server: ApiServer) -> None:
    """A client that polls twice within a second signs twice alike."""
    given = signed(server, "ListOptimizationJobs", b"{}")

    for _ in range(3):
        assert post(server.port, b"{}", **given).status == 200


@pytest.mark.parametrize("minutes", [-6, 6])
def test_a_wrong_clock_is_told(tmp_path: Path, minutes: int) -> None:
    now = datetime.now(UTC) + timedelta(minutes=minutes)
    with ApiServer(tmp_path, keys=[ALICE], on_loopback=False, now=now) as server:
        answer = post(server.port, BODY, **signed(server, CREATE, BODY))

        assert (answer.status, answer.document["__type"]) == (403, "InvalidSignatureException")
        assert "clock" in answer.document["message"]
        assert server.jobs.unfinished() == ()


@cases("changed", changed={}, scope={}, kind="InvalidSignatureException")
def test_a_changed_request_does_nothing(
    server: ApiServer, changed: dict[str, str], scope: dict[str, str], kind: str
) -> None:
    answer = post(server.port, BODY, **{**signed(server, CREATE, BODY, **scope), **changed})

    assert (answer.status, answer.document["__type"]) == (403, kind)
    assert jobs(server) == []


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return self_signed(tmp_path_factory.mktemp("tls"))


def test_it_is_all_the_same_over_tls(tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    import boto3

    context = tls_context(*certificate)
    with ApiServer(tmp_path, keys=[ALICE], on_loopback=False, tls=context) as server:
        client: Any = boto3.client(
            "sagemaker",
            endpoint_url=server.url,
            region_name="us-east-1",
            aws_access_key_id=ALICE.id,
            aws_secret_access_key=ALICE.secret,
            verify=str(certificate[0]),
        )

        assert server.url.startswith("https://")
        assert client.list_optimization_jobs()["OptimizationJobSummaries"] == []
        assert post(server.port, b"{}").status in (0, 400)  # plain HTTP


def test_old_tls_is_refused(tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    assert tls_context(*certificate).minimum_version == ssl.TLSVersion.TLSv1_2
