"""Invocations by boto3, unmodified: what a container is given, and what a client is told."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, EventStreamError

from packager.addons.server import bodies, runtime
from packager.addons.server.endpoints.traffic import TrafficServer as Container
from tests.support.aws_clients import aws_client
from tests.support.cases import cases, read_tables, shows
from tests.support.doubles.endpoint_containers import FakeContainers
from tests.support.doubles.model_container import ModelServer
from tests.support.free_ports import free_port
from tests.support.hosting_server import Server, hosting
from tests.support.serve_services import config_body, hosting_operations, model_body


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with hosting(tmp_path, FakeContainers()) as found:
        yield found


@pytest.fixture
def endpoint(server: Server) -> Server:
    """A server with the endpoint `e` of one variant."""
    server.ask("CreateModel", **model_body("one"))
    create_endpoint(server, config_body("one"))
    return server


@pytest.fixture
def container(endpoint: Server) -> Container:
    return endpoint.services.endpoints.pools("endpoint", "e")["AllTraffic"].servers[0]


def create_endpoint(server: Server, config: dict[str, Any]) -> None:
    server.ask("CreateEndpointConfig", **config)
    name = config["EndpointConfigName"]
    server.ask("CreateEndpoint", EndpointName="e", EndpointConfigName=name)
    wait(server, "Endpoint", "e")


def wait(server: Server, kind: str, name: str) -> None:
    async def ready() -> None:
        describe = hosting_operations(server.services)[f"Describe{kind}"]
        async with asyncio.timeout(20):
            while (await describe({f"{kind}Name": name}))[f"{kind}Status"] != "InService":
                await asyncio.sleep(0.01)

    server.call(ready())


def client(server: Server) -> Any:
    config = Config(retries={"total_max_attempts": 1}, max_pool_connections=50)
    return aws_client("sagemaker-runtime", server.url, config=config)


def invoke(server: Server, body: bytes = b"{}", **members: Any) -> dict[str, Any]:
    """Invoke the endpoint; return the answer with its body read."""
    answer = client(server).invoke_endpoint(EndpointName="e", Body=body, **members)
    return {**answer, "Body": answer["Body"].read()}


def name_of(answer: dict[str, Any]) -> str:
    return str(json.loads(answer["Body"])["name"])


def refused(server: Server, body: bytes = b"{}", **members: Any) -> dict[str, Any]:
    with pytest.raises(ClientError) as error:
        client(server).invoke_endpoint(**{"EndpointName": "e", "Body": body, **members})
    return dict(error.value.response)


@contextmanager
def listening(**environment: str) -> Iterator[str]:
    """Serve a model on this machine's loopback; yield its address."""
    found = ModelServer("127.0.0.1", 0, {"NAME": "another service", **environment})
    threading.Thread(target=found.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{found.server_address[1]}"
    finally:
        found.shutdown()
        found.server_close()


def test_a_container_gets_the_body_and_the_headers_that_are_meant_for_it(endpoint: Server) -> None:
    given = read_tables(__file__)["given"]
    answer = invoke(endpoint, b'{"inputs": "hi"}', **given["members"])

    assert shows(answer, given["answer"])
    seen = json.loads(answer["Body"])
    assert seen["body"] == '{"inputs": "hi"}'
    headers = {name.lower(): value for name, value in seen["headers"].items()}
    assert shows(headers, given["headers"]), headers
    assert not {"authorization", "x-amz-date", "x-amz-security-token"} & headers.keys()


@cases("refused")
def test_what_fails_is_told_as_aws_tells_it(
    endpoint: Server, monkeypatch: pytest.MonkeyPatch, case: dict[str, Any]
) -> None:
    monkeypatch.setattr(runtime, "ANSWER_S", case.get("answer_s", runtime.ANSWER_S))

    answer = refused(endpoint, case.get("body", "{}").encode(), **case.get("members", {}))

    assert answer["ResponseMetadata"]["HTTPStatusCode"] == case["status"]
    assert shows(answer, case["shows"]), answer
    assert answer.get("OriginalMessage", "").startswith(case.get("begins", ""))
    assert case.get("says", "") in answer["Error"]["Message"]


@pytest.mark.parametrize("operation", ["invoke_endpoint", "invoke_endpoint_with_response_stream"])
def test_a_container_cannot_have_the_server_ask_others(endpoint: Server, operation: str) -> None:
    """What listens on this machine's loopback is reached by the server, and not by containers."""
    with listening() as secret, pytest.raises(ClientError) as error:
        body = json.dumps({"redirect": f"{secret}/"}).encode()
        getattr(client(endpoint), operation)(EndpointName="e", Body=body)

    assert error.value.response["Error"]["Code"] == "ModelError"
    assert error.value.response["OriginalStatusCode"] == 302


def test_a_health_check_follows_no_redirect(server: Server) -> None:
    with listening() as asked, listening(PING_TO=f"{asked}/") as away:
        assert not server.call(server.services.endpoints._fleet.answers(away))


def test_an_endpoint_that_is_not_in_service_takes_no_request(server: Server) -> None:
    server.ask("CreateModel", **model_body("one", READY_S="60"))
    server.ask("CreateEndpointConfig", **config_body("one"))
    server.ask("CreateEndpoint", EndpointName="e", EndpointConfigName="one")

    assert refused(server)["Error"]["Message"] == "Endpoint e of account 000000000000 is Creating."


@pytest.mark.extended
def test_the_largest_body_passes_and_one_byte_more_does_not(endpoint: Server) -> None:
    largest = b'{"size": 1}'.ljust(6 * 1024 * 1024)

    assert invoke(endpoint, largest)["Body"] == b"x"
    refusal = refused(endpoint, largest + b" ")
    assert refusal["ResponseMetadata"]["HTTPStatusCode"] == 413
    assert refusal["Error"]["Message"] == "The request's body has more than 6291456 bytes."


def test_the_largest_answer_passes(endpoint: Server) -> None:
    assert len(invoke(endpoint, b'{"size": 6291456}')["Body"]) == 6291456


def test_a_container_that_is_gone_is_a_model_error(endpoint: Server, container: Container) -> None:
    container.url = f"http://127.0.0.1:{free_port()}"

    told = "the connection to the container failed: ClientConnectorError"
    assert refused(endpoint)["OriginalMessage"] == told


def test_no_container_that_is_ready_is_unavailable(endpoint: Server, container: Container) -> None:
    container.is_ready = False

    answer = refused(endpoint)

    assert answer["Error"]["Code"] == "ServiceUnavailable"
    assert answer["ResponseMetadata"]["HTTPStatusCode"] == 503


def test_a_request_chooses_its_variant(server: Server) -> None:
    for name in ("one", "two"):
        server.ask("CreateModel", **model_body(name))
    a = {"VariantName": "a", "ModelName": "one", "InitialVariantWeight": 1.0}
    b = {"VariantName": "b", "ModelName": "two", "InitialVariantWeight": 0.0}
    create_endpoint(server, config_body("both", a, b))

    first, second = invoke(server), invoke(server, TargetVariant="b")

    assert (first["InvokedProductionVariant"], name_of(first)) == ("a", "one")
    assert (second["InvokedProductionVariant"], name_of(second)) == ("b", "two")


def test_a_request_names_its_component(server: Server) -> None:
    server.ask("CreateModel", **model_body("one"))
    role = "arn:aws:iam::000000000000:role/packager"
    create_endpoint(server, config_body("bare", {"VariantName": "v"}, ExecutionRoleArn=role))
    server.ask(
        "CreateInferenceComponent",
        InferenceComponentName="c",
        EndpointName="e",
        Specification={"ModelName": "one"},
        RuntimeConfig={"CopyCount": 1},
    )
    wait(server, "InferenceComponent", "c")

    assert name_of(invoke(server, InferenceComponentName="c")) == "one"
    other, none = refused(server, InferenceComponentName="d"), refused(server)
    assert other["Error"]["Message"] == "Inference component d of endpoint e was not found."
    assert none["Error"]["Message"].startswith("Inference Component Name header is required")


def stream(server: Server, body: bytes) -> Any:
    return client(server).invoke_endpoint_with_response_stream(
        EndpointName="e", Body=body, Accept="text/event-stream"
    )


def test_a_stream_arrives_while_the_container_writes_it(endpoint: Server) -> None:
    answer = stream(endpoint, b'{"stream": 3, "gap": 0.2}')

    assert answer["ContentType"] == "text/event-stream"
    assert answer["InvokedProductionVariant"] == "AllTraffic"
    parts = [event["PayloadPart"]["Bytes"] for event in answer["Body"]]
    assert parts == [b"data: 0\n\n", b"data: 1\n\n", b"data: 2\n\n"]


@cases("early_ends")
def test_a_stream_that_ends_early_ends_with_its_reason(
    endpoint: Server, monkeypatch: pytest.MonkeyPatch, body: bytes, most_s: float, told: str
) -> None:
    monkeypatch.setattr(runtime, "STREAM_S", most_s)
    answer = stream(endpoint, body)

    with pytest.raises(EventStreamError) as error:
        list(answer["Body"])

    assert error.value.response["Error"]["Code"] == "ModelStreamError"
    assert error.value.response["Error"]["Message"].startswith(told)


def test_an_error_before_a_stream_is_a_model_error(endpoint: Server) -> None:
    with pytest.raises(ClientError) as error:
        stream(endpoint, b'{"status": 422}')

    assert error.value.response["OriginalStatusCode"] == 422
    assert error.value.response["ResponseMetadata"]["HTTPStatusCode"] == 424


def test_a_left_stream_leaves_no_request_behind(endpoint: Server, container: Container) -> None:
    answer = stream(endpoint, b'{"stream": 200, "gap": 0.02}')
    next(iter(answer["Body"]))
    assert container.in_flight == 1

    answer["Body"].close()

    assert endpoint.call(container.drained(10.0))


def test_no_request_fails_while_an_endpoint_is_updated(endpoint: Server) -> None:
    endpoint.ask("CreateModel", **model_body("two"))
    endpoint.ask("CreateEndpointConfig", **config_body("two"))
    own, stop = client(endpoint), threading.Event()

    def load(number: int) -> list[str]:
        names = []
        body = json.dumps({"sleep": 0.01 * (number % 3)}).encode()
        while not stop.is_set():
            answer = own.invoke_endpoint(EndpointName="e", Body=body)
            names.append(json.loads(answer["Body"].read())["name"])
        return names

    with ThreadPoolExecutor(8) as threads:
        loads = [threads.submit(load, number) for number in range(8)]
        try:
            for name in ("two", "one", "two"):
                endpoint.ask("UpdateEndpoint", EndpointName="e", EndpointConfigName=name)
                wait(endpoint, "Endpoint", "e")
        finally:
            stop.set()
        names = [name for one in loads for name in one.result()]

    assert set(names) == {"one", "two"}
    assert name_of(invoke(endpoint)) == "two"


@contextmanager
def sent(endpoint: Server, path: str, length: int, body: bytes) -> Iterator[socket.socket]:
    """Send a request by hand, of a length that its body may not have."""
    port = int(endpoint.url.rpartition(":")[2])
    head = f"POST /endpoints/e/{path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {length}\r\n"
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(head.encode() + b"\r\n" + body)
        yield connection


def test_a_client_may_vanish_within_a_stream(endpoint: Server, container: Container) -> None:
    body = b'{"stream": 400, "gap": 0.001}'
    with sent(endpoint, "invocations-response-stream", len(body), body) as connection:
        assert connection.recv(1024)
        reset = struct.pack("ii", 1, 0)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)

    assert endpoint.call(container.drained(20))
    assert container.in_flight == 0


def test_too_large_answers_are_refused(endpoint: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "MAX_HELD_BYTES", 100_000)

    for _ in range(3):  # what an answer took is given back
        assert invoke(endpoint, b'{"size": 90000}')
    told = refused(endpoint, b'{"size": 100000}')

    assert told["Error"]["Code"] == "ServiceUnavailable"
    assert told["ResponseMetadata"]["HTTPStatusCode"] == 503
    assert invoke(endpoint, b'{"size": 90000}')
