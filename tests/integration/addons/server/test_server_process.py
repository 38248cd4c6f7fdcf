"""`packager serve` as a process: its address, its end, and what is there after it was killed."""

from __future__ import annotations

import json
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import boto3
import pytest

from tests.support.api_server import optimization_body
from tests.support.cases import read_tables
from tests.support.commandline import Started, start_packager
from tests.support.running_jobs import until

ENVIRONMENT = read_tables(__file__)
KEYS: dict[str, str] = ENVIRONMENT["keys"]


@contextmanager
def serving(state: Path, *options: str, **environment: str) -> Iterator[Started]:
    if "--listen" not in options:
        options = (*options, "--listen", "127.0.0.1:0")
    process = start_packager(
        *("serve", "--instance", "local", *options),
        env={"XDG_STATE_HOME": str(state), **ENVIRONMENT["no_s3"], **environment},
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        process.close()


def address(process: Started) -> str:
    return process.stdout.readline().strip()


def client(url: str, **key: str) -> Any:
    given = {"aws_access_key_id": "any", "aws_secret_access_key": "any", **key}
    return boto3.client("sagemaker", endpoint_url=url, region_name="us-east-1", **given)


def names(url: str) -> list[str]:
    listed = client(url).list_optimization_jobs()["OptimizationJobSummaries"]
    return [each["OptimizationJobName"] for each in listed]


def test_the_address_is_on_stdout_and_how_to_use_it_on_stderr(tmp_path: Path) -> None:
    with serving(tmp_path) as process:
        url = address(process)
        assert names(url) == []
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=30)

    assert process.returncode == 0
    assert out == ""
    assert f"  export AWS_ENDPOINT_URL_SAGEMAKER={url}\n" in err
    assert err.endswith("the server has ended; jobs that run go on\n")


def test_programs_read_the_address_as_json(tmp_path: Path) -> None:
    with serving(tmp_path, "--format", "json", "--region", "eu-west-1", **KEYS) as process:
        text = ""
        while not text.endswith("\n}\n"):
            text += process.stdout.readline()
        told = json.loads(text)

    assert told["signatures_required"] is True
    assert told["environment"] == {
        "AWS_ENDPOINT_URL_SAGEMAKER": told["url"],
        "AWS_ENDPOINT_URL_SAGEMAKER_RUNTIME": told["url"],
        "AWS_DEFAULT_REGION": "eu-west-1",
    }
    assert KEYS["PACKAGER_SERVE_SECRET_ACCESS_KEY"] not in text


def test_a_job_of_a_killed_server_is_looked_after_by_the_next(tmp_path: Path) -> None:
    with serving(tmp_path) as process:
        url = address(process)
        client(url).create_optimization_job(**optimization_body("one"))
        process.kill()

    with serving(tmp_path) as process:
        url = address(process)
        assert names(url) == ["one"]
        describe = partial(client(url).describe_optimization_job, OptimizationJobName="one")
        until(lambda: describe()["OptimizationJobStatus"] in ("FAILED", "STOPPED"), within_s=120)
        told = describe()

    assert told["OptimizationJobStatus"] == "FAILED"
    assert told["FailureReason"]


def test_one_server_uses_a_state_directory(tmp_path: Path) -> None:
    with serving(tmp_path) as first:
        url = address(first)
        with serving(tmp_path) as second:
            _, err = second.communicate(timeout=30)

        assert second.returncode == 2
        assert f"a server runs at '{url}' already" in err
        assert names(url) == []


def test_a_port_that_is_taken_is_told(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with serving(tmp_path, "--listen", f"127.0.0.1:{port}") as process:
            _, err = process.communicate(timeout=30)

    assert process.returncode == 69
    assert f"another program listens at '127.0.0.1:{port}'" in err


def test_beyond_loopback_a_signature_is_needed(tmp_path: Path) -> None:
    from botocore.exceptions import ClientError

    with serving(tmp_path, "--listen", "0.0.0.0:0", "--insecure-http", **KEYS) as process:
        url = address(process).replace("0.0.0.0", "127.0.0.1")
        with pytest.raises(ClientError, match="UnrecognizedClientException"):
            names(url)
        key_id, secret = KEYS.values()
        ours = client(url, aws_access_key_id=key_id, aws_secret_access_key=secret)
        assert ours.list_optimization_jobs()["OptimizationJobSummaries"] == []


def test_beyond_loopback_nothing_is_served_without_keys(tmp_path: Path) -> None:
    with serving(tmp_path, "--listen", "0.0.0.0:0", "--insecure-http") as process:
        out, err = process.communicate(timeout=30)

    assert (process.returncode, out) == (2, "")
    assert "no access keys are configured" in err


def test_a_request_that_is_being_answered_is_answered_at_the_end(tmp_path: Path) -> None:
    body = json.dumps(optimization_body("one")).encode()
    head = (
        f"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n"
        "X-Amz-Target: SageMaker.CreateOptimizationJob\r\n"
        "Content-Type: application/x-amz-json-1.1\r\n\r\n"
    )
    with serving(tmp_path) as process:
        host, _, port = address(process).removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(head.encode() + body)
            time.sleep(0.1)  # the first one reads AWS's model and the catalog, for a second
            process.send_signal(signal.SIGTERM)
            assert connection.recv(4096).startswith(b"HTTP/1.1 200 ")
        assert process.wait(30) == 0
