"""Bodies that are nearly right, for every operation: each is answered or refused, none is a bug."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from packager.addons.deploy.sagemaker.shapes import service_model, skeleton
from packager.addons.server.operations.table import OperationTable
from tests.faults.documents.mutations import damage
from tests.support.api_server import ApiServer
from tests.support.raw_requests import post

BODIES = 25  # of each operation
VALUES: tuple[Any, ...] = (
    *(None, True, 0, -1, 1, 2**63, 1e300, -1e300, 1795448668.849, [], {}, [{}], {"a": "b"}),
    *("", "one", "a" * 300, "\x00\n\u202e", "s3://bucket/prefix/", "ml.g5.xlarge"),
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with ApiServer(tmp_path_factory.mktemp("state")) as running:
        yield running


def good(shape: dict[str, Any], chosen: random.Random, depth: int = 0) -> Any:
    """Return a value that the model of AWS may well allow."""
    shapes = service_model()["shapes"]
    kind = shape["type"]
    if kind == "structure":
        required = shape.get("required", ())
        names = [
            name
            for name in shape["members"]
            if name in required or (chosen.random() < 0.4 and depth < 5)
        ]
        if shape.get("union"):
            names = [chosen.choice(list(shape["members"]))]
        return {n: good(shapes[shape["members"][n]["shape"]], chosen, depth + 1) for n in names}
    if kind == "list":
        member = shapes[shape["member"]["shape"]]
        count = max(shape.get("min", 0), chosen.randint(0, 2))
        return [good(member, chosen, depth + 1) for _ in range(count)]
    if kind == "map":
        return {"OPTION_TENSOR_PARALLEL_DEGREE": "1"} if chosen.random() < 0.5 else {}
    if kind == "boolean":
        return chosen.random() < 0.5
    if kind in ("integer", "long", "float", "double"):
        return max(shape.get("min", 0), min(shape.get("max", 100), chosen.randint(0, 5000)))
    if kind == "timestamp":
        return chosen.choice([0, 1795448668, 1795448668.5])
    if "enum" in shape:
        return chosen.choice(shape["enum"])
    return text_of(str(shape.get("pattern", "")), chosen)


def text_of(pattern: str, chosen: random.Random) -> str:
    if "arn:" in pattern:
        return "arn:aws:iam::000000000000:role/anyone"
    if "s3" in pattern or "https" in pattern:
        return "s3://bucket/prefix/"
    return chosen.choice(["one", "two", "three", "tiny:1", "lmi"])


def test_every_operation_answers_or_refuses_whatever_it_is_asked(server: ApiServer) -> None:
    chosen = random.Random(2026)
    names = OperationTable(server.services).names()
    assert len(names) > 35
    seen: dict[str, int] = {}
    for _ in range(BODIES):
        for name in names:
            shape = service_model()["shapes"][service_model()["operations"][name]["input"]["shape"]]
            body = json.dumps(good(shape, chosen)).encode()
            if chosen.random() < 0.7:
                body = damage(body, chosen)
            answer = post(server.port, body, target=f"SageMaker.{name}")
            kind = answer.document.get("__type", "answered") if answer.body else "nothing"
            assert answer.status in (200, 400, 413, 503), (name, body[:2000], server.failures)
            seen[kind] = seen.get(kind, 0) + 1

    assert server.failures == []
    assert seen["answered"] > 50
    assert seen["ValidationException"] > 100
    assert "InternalFailure" not in seen


def test_times_that_no_calendar_has_are_refused(server: ApiServer) -> None:
    tried = 0
    for name in OperationTable(server.services).names():
        members = service_model()["operations"][name]["input"]["shape"]
        for member, reference in service_model()["shapes"][members]["members"].items():
            if service_model()["shapes"][reference["shape"]]["type"] != "timestamp":
                continue
            for value in (1e300, -1, 253402300800):
                body = json.dumps({member: value}).encode()
                answer = post(server.port, body, target=f"SageMaker.{name}")
                assert answer.document["__type"] == "SerializationException", (name, member)
                tried += 1
    assert server.failures == []
    assert tried > 60


def test_skeletons_of_the_aws_cli_are_refused_in_its_words(server: ApiServer) -> None:
    for name in OperationTable(server.services).names():
        body = json.dumps(skeleton(name), default=str).encode()
        answer = post(server.port, body, target=f"SageMaker.{name}")

        assert answer.status in (200, 400), (name, answer.body)
    assert server.failures == []


def test_logs_refuse_what_they_do_not_know(server: ApiServer) -> None:
    chosen = random.Random(7)
    names = ("logGroupName", "logStreamName", "nextToken", "limit", "startTime", "endTime")
    more = ("logStreamNames", "logStreamNamePrefix", "filterPattern", "logGroupIdentifier")
    groups = ("/aws/sagemaker/OptimizationJobs", "/aws/sagemaker/Endpoints/one", "x")
    for _ in range(300):
        body = {name: chosen.choice(VALUES) for name in (*names, *more) if chosen.random() < 0.4}
        if chosen.random() < 0.7:
            body["logGroupName"] = chosen.choice(groups)
        for operation in ("GetLogEvents", "FilterLogEvents", "DescribeLogStreams"):
            target = f"Logs_20140328.{operation}"
            answer = post(server.port, json.dumps(body).encode(), target=target)
            assert answer.status in (200, 400), (operation, body, server.failures)
    assert server.failures == []
