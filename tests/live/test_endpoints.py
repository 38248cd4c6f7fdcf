"""Endpoints on a real Docker Engine, by boto3, from `packager serve` as users start it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError, WaiterError

from packager.addons.server.endpoints.containers import OWNER_LABEL
from tests.live.api_server import ApiServer, api_server
from tests.live.tiny_images import commit_files
from tests.live.waiting import wait_until
from tests.support.cases import read_tables
from tests.support.doubles.s3 import Bucket, bucket_server
from tests.support.places import ROOT
from tests.support.serve_services import config_body, model_body

TABLES = read_tables(__file__)

pytestmark = [pytest.mark.live, pytest.mark.timeout(600)]

IMAGE = "packager-test-model-container:1"
WAIT = {"Delay": 0.2, "MaxAttempts": 600}


@pytest.fixture(scope="session")
def image(docker_host: str, python_base: str) -> str:
    """An image with the double of a model server as its entry point."""
    import docker

    source = (ROOT / "tests/support/doubles/model_container.py").read_bytes()
    return commit_files(
        docker.DockerClient(base_url=docker_host),
        IMAGE,
        {"opt/model_container.py": source},
        base=python_base,
        changes='ENTRYPOINT ["/usr/bin/python3", "/opt/model_container.py"]',
    )


@pytest.fixture
def bucket() -> Iterator[Bucket]:
    with bucket_server() as url:
        yield Bucket(url)


@pytest.fixture
def api(tmp_path: Path, engine: str, image: str, bucket: Bucket) -> Iterator[ApiServer]:
    with api_server(tmp_path, **bucket.environment) as server:
        yield server


def deploy(api: ApiServer, name: str, **container: Any) -> None:
    """Make a model, a configuration and an endpoint of one name."""
    client = api.client("sagemaker")
    body = model_body(name, IMAGE)
    body["PrimaryContainer"] |= container
    client.create_model(**body)
    client.create_endpoint_config(**config_body(name))
    client.create_endpoint(EndpointName=name, EndpointConfigName=name)


def wait(api: ApiServer, name: str, state: str = "endpoint_in_service") -> None:
    api.client("sagemaker").get_waiter(state).wait(EndpointName=name, WaiterConfig=WAIT)


def ask(api: ApiServer, name: str, **members: Any) -> dict[str, Any]:
    """Return what the container says that it has seen."""
    client = api.client("sagemaker-runtime")
    answer = client.invoke_endpoint(**{"EndpointName": name, "Body": b"{}", **members})
    seen: dict[str, Any] = json.loads(answer["Body"].read())
    return seen


def containers_of(name: str) -> list[Any]:
    import docker

    found = docker.from_env().containers.list(all=True, ignore_removed=True)
    return [one for one in found if one.labels.get(OWNER_LABEL, "").startswith(f"endpoint/{name}/")]


@pytest.mark.capability("sagemaker")
def test_an_endpoint_from_its_creation_to_its_end(api: ApiServer) -> None:
    client = api.client("sagemaker")
    deploy(api, "one")
    wait(api, "one")

    assert ask(api, "one")["arguments"] == ["serve"]
    (container,) = containers_of("one")
    bound = container.attrs["HostConfig"]["PortBindings"]["8080/tcp"]
    assert [place["HostIp"] for place in bound] == ["127.0.0.1"]
    stream = api.client("sagemaker-runtime").invoke_endpoint_with_response_stream(
        EndpointName="one", Body=b'{"stream": 3, "gap": 0.1}'
    )
    parts = [event["PayloadPart"]["Bytes"] for event in stream["Body"]]
    assert b"".join(parts) == b"data: 0\n\ndata: 1\n\ndata: 2\n\n"
    logs = api.client("logs").filter_log_events(logGroupName="/aws/sagemaker/Endpoints/one")
    assert [event["message"] for event in logs["events"]] == ["the model is ready"]

    client.delete_endpoint(EndpointName="one")
    wait(api, "one", "endpoint_deleted")

    assert containers_of("one") == []
    with pytest.raises(ClientError, match="Endpoint one of account 000000000000 not found"):
        ask(api, "one")


def test_traffic_is_captured_while_a_canary_takes_its_share(api: ApiServer, bucket: Bucket) -> None:
    client = api.client("sagemaker")
    capture = {
        "InitialSamplingPercentage": 100,
        "DestinationS3Uri": f"{bucket.url}/captured",
        "CaptureOptions": [{"CaptureMode": "InputAndOutput"}],
        "CaptureContentTypeHeader": {"JsonContentTypes": ["application/json"]},
    }
    routing = TABLES["routing"]
    for name in ("one", "two"):
        client.create_model(**model_body(name, IMAGE))
        client.create_endpoint_config(**config_body(name, DataCaptureConfig=capture))
    client.create_endpoint(EndpointName="one", EndpointConfigName="one")
    wait(api, "one")
    client.update_endpoint(
        EndpointName="one",
        EndpointConfigName="two",
        DeploymentConfig={"BlueGreenUpdatePolicy": {"TrafficRoutingConfiguration": routing}},
    )

    names = []
    while client.describe_endpoint(EndpointName="one")["EndpointStatus"] == "Updating":
        body = b'{"messages": [{"role": "user", "content": "Write to jo@example.org"}]}'
        names.append(ask(api, "one", Body=body, ContentType="application/json")["name"])
    client.delete_endpoint(EndpointName="one")
    wait(api, "one", "endpoint_deleted")

    def rows() -> list[dict[str, Any]]:
        found = [name for name in bucket.names() if name.startswith("captured/one/AllTraffic/")]
        return [json.loads(line) for name in found for line in bucket.get(name).splitlines()]

    wait_until(lambda: len(rows()) == len(names))
    assert set(names) == {"one", "two"}
    told = {row["captureData"]["endpointInput"]["data"] for row in rows()}
    assert told == {'{"messages": [{"role": "user", "content": "Write to [EMAIL]"}]}'}


def test_an_update_under_load_fails_no_request(api: ApiServer) -> None:
    client, runtime = api.client("sagemaker"), api.client("sagemaker-runtime")
    deploy(api, "one")
    client.create_model(**model_body("two", IMAGE))
    client.create_endpoint_config(**config_body("two"))
    wait(api, "one")
    stop = threading.Event()

    def load(number: int) -> list[str]:
        names = []
        body = json.dumps({"sleep": 0.1 * (number % 2)}).encode()
        while not stop.is_set():
            answer = runtime.invoke_endpoint(EndpointName="one", Body=body)
            names.append(json.loads(answer["Body"].read())["name"])
        return names

    with ThreadPoolExecutor(8) as threads:
        loads = [threads.submit(load, number) for number in range(8)]
        try:
            client.update_endpoint(EndpointName="one", EndpointConfigName="two")
            wait(api, "one")
            wait_until(lambda: len(containers_of("one")) == 1, 60)
        finally:
            stop.set()
        names = [name for one in loads for name in one.result()]

    assert set(names) == {"one", "two"}
    assert ask(api, "one")["name"] == "two"


def test_a_server_killed_in_the_middle_of_an_update_ends_it(api: ApiServer) -> None:
    client = api.client("sagemaker")
    deploy(api, "one")
    client.create_model(**model_body("two", IMAGE, READY_S="3"))
    client.create_endpoint_config(**config_body("two"))
    wait(api, "one")
    client.update_endpoint(EndpointName="one", EndpointConfigName="two")
    wait_until(lambda: [one.status for one in containers_of("one")] == ["running"] * 2, 60)
    there = {one.id for one in containers_of("one")}

    api.kill()
    api.start()
    wait(api, "one")

    assert ask(api, "one")["name"] == "two"
    found = api.client("sagemaker").describe_endpoint(EndpointName="one")
    assert found["EndpointConfigName"] == "two"
    wait_until(lambda: len(containers_of("one")) == 1, 60)
    assert {one.id for one in containers_of("one")} < there  # it was adopted


def source(uri: str) -> dict[str, Any]:
    kind = {"S3Uri": uri, "S3DataType": "S3Prefix", "CompressionType": "None"}
    return {"S3DataSource": kind}


def test_model_data_are_where_a_container_looks_for_them(api: ApiServer, bucket: Bucket) -> None:
    bucket.put("tiny/config.json", b"{}")
    bucket.put("tiny/sub/weights.bin", b"w")
    bucket.put("draft/config.json", b"d")

    deploy(
        api,
        "one",
        ModelDataSource=source(f"{bucket.url}/tiny/"),
        AdditionalModelDataSources=[
            {"ChannelName": "draft_model", **source(f"{bucket.url}/draft/")}
        ],
    )
    wait(api, "one")

    seen = ask(api, "one")
    assert seen["files"] == TABLES["model_data_are_where_a_container_looks_for_them"]
    mounts = containers_of("one")[0].attrs["Mounts"]
    assert [mount["RW"] for mount in mounts] == [False, False]


def failure_of(api: ApiServer, name: str) -> str:
    with pytest.raises(WaiterError):
        wait(api, name)
    found = api.client("sagemaker").describe_endpoint(EndpointName=name)
    assert found["EndpointStatus"] == "Failed"
    reason: str = found["FailureReason"]
    return reason


def test_a_container_that_ends_fails_the_endpoint_with_its_log(api: ApiServer) -> None:
    deploy(api, "one", Environment={"FAIL": "1"})

    assert failure_of(api, "one") == (
        "the container ended with status 3: ValueError: no such weight; "
        "the endpoint's log has what the container wrote"
    )
    logs = api.client("logs").filter_log_events(logGroupName="/aws/sagemaker/Endpoints/one")
    assert [event["message"] for event in logs["events"]][-1] == "ValueError: no such weight"


def test_an_image_that_is_nowhere_fails_the_endpoint(api: ApiServer) -> None:
    deploy(api, "local", Image="packager-test-nothing:1")
    deploy(api, "remote", Image="127.0.0.1:9/nothing:1")

    assert failure_of(api, "local").startswith(
        "the Docker Engine has no image 'packager-test-nothing:1', and its name says no registry"
    )
    assert failure_of(api, "remote").startswith("the image '127.0.0.1:9/nothing:1' cannot be")


def test_a_container_that_dies_is_started_again(api: ApiServer) -> None:
    deploy(api, "one")
    wait(api, "one")
    with pytest.raises(ClientError, match="ModelError"):
        ask(api, "one", Body=b'{"exit": 3}')

    def answers() -> bool:
        with suppress(ClientError):
            return ask(api, "one")["name"] == "one"
        return False

    wait_until(answers, 60)
