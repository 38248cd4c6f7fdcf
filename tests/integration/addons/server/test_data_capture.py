"""Data Capture by boto3: AWS's keys and lines in a real S3, and what is never captured."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import boto3
import pytest
from botocore.exceptions import ClientError, EventStreamError

from packager.addons.server import captures
from packager.addons.server.refresh.spec import RefreshSpec
from packager.addons.server.refresh.work import RefreshWork
from packager.addons.server.sagemaker.optimization import make_job
from packager.addons.server.sagemaker.settings import JobSettings
from packager.models.samples.load import load_samples
from tests.integration.addons.server.test_invocations import client, invoke, wait
from tests.support.buckets import bucket as bucket
from tests.support.buckets import server as server
from tests.support.doubles.endpoint_containers import FakeContainers
from tests.support.doubles.s3 import Bucket
from tests.support.hosting_server import Server, hosting
from tests.support.sagemaker_bodies import EAGLE_BUILT_IN_DATA
from tests.support.serve_services import config_body, model_body

TURNS = [{"role": "user", "content": "Mail jo@example.org about OCI."}]
ANSWER = {"choices": [{"message": {"role": "assistant", "content": "A standard."}}]}
EVENTS = [
    '{"choices": [{"index": 0, "delta": {"content": "One, "}}]}',
    '{"choices": [{"index": 0, "delta": {"content": "two."}, "finish_reason": "stop"}]}',
    "[DONE]",
]
JSON_TYPES = {"JsonContentTypes": ["application/json"]}
KEY = re.compile(r"p/e/AllTraffic/\d{4}/\d\d/\d\d/\d\d/[0-9a-f-]{36}\.jsonl")


@pytest.fixture
def api(tmp_path: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(captures, "_LOOK_S", 0.05)
    with hosting(tmp_path, FakeContainers()) as found:
        yield found


def control(server: Server) -> Any:
    return boto3.client(
        "sagemaker",
        endpoint_url=server.url,
        region_name="us-east-1",
        aws_access_key_id="x",
        aws_secret_access_key="x",
    )


def capture_of(destination: str, **more: Any) -> dict[str, Any]:
    return {
        "InitialSamplingPercentage": 100,
        "DestinationS3Uri": destination,
        "CaptureOptions": [{"CaptureMode": "Input"}, {"CaptureMode": "Output"}],
        **more,
    }


def serve(api: Server, destination: str, **more: Any) -> Any:
    """Make the endpoint `e`, whose traffic is captured; return the client."""
    found = control(api)
    found.create_model(**model_body("m"))
    config = config_body("m", DataCaptureConfig=capture_of(destination, **more))
    found.create_endpoint_config(**config)
    found.create_endpoint(EndpointName="e", EndpointConfigName="m")
    wait(api, "Endpoint", "e")
    return found


def ask(api: Server, turns: list[Any] = TURNS, answer: Any = ANSWER, **members: Any) -> None:
    body = json.dumps({"messages": turns, "answer": answer}).encode()
    invoke(api, body, ContentType="application/json", **members)


def stream(api: Server, content: str, **more: Any) -> None:
    turns = [{"role": "user", "content": content}]
    body = {"messages": turns, "stream": 3, "events": EVENTS, **more}
    answer = client(api).invoke_endpoint_with_response_stream(
        EndpointName="e", Body=json.dumps(body), ContentType="application/json"
    )
    with suppress(EventStreamError):
        list(answer["Body"])


def rows_of(bucket: Bucket, count: int) -> list[dict[str, Any]]:
    """Wait until so many rows are in the bucket; return them in the order of their times."""
    end = time.monotonic() + 30
    rows: list[dict[str, Any]] = []
    while len(rows) < count and time.monotonic() < end:
        time.sleep(0.05)
        names = bucket.names()
        assert all(KEY.fullmatch(name) for name in names), names
        rows = [json.loads(line) for name in names for line in bucket.get(name).splitlines()]
    assert len(rows) == count
    return rows


def test_captures_of_an_endpoint_are_in_its_bucket_as_awss_are_and_train_heads(
    api: Server, bucket: Bucket
) -> None:
    destination = f"{bucket.url}/p"
    made = serve(api, destination, CaptureContentTypeHeader=JSON_TYPES)
    ask(api, InferenceId="mine")
    stream(api, "Count.")
    stream(api, "Count, and be cut.", cut=0)
    with pytest.raises(ClientError):
        invoke(api, b'{"status": 400}')
    ask(api, CustomAttributes="x-packager-capture=off")
    described = made.describe_endpoint(EndpointName="e")["DataCaptureConfig"]
    made.delete_endpoint(EndpointName="e")

    rows = rows_of(bucket, 3)

    assert described == {
        "EnableCapture": True,
        "CaptureStatus": "Started",
        "CurrentSamplingPercentage": 100,
        "DestinationS3Uri": destination,
        "KmsKeyId": "",
    }
    first = next(row for row in rows if row["eventMetadata"].get("inferenceId"))
    captured = first["captureData"]
    assert [(part["mode"], part["encoding"]) for part in captured.values()] == [
        ("INPUT", "JSON"),
        ("OUTPUT", "JSON"),
    ]
    assert json.loads(captured["endpointInput"]["data"])["messages"] == [
        {"role": "user", "content": "Mail [EMAIL] about OCI."}
    ]
    assert json.loads(captured["endpointOutput"]["data"]) == ANSWER
    assert first["eventMetadata"]["inferenceId"] == "mine"
    assert "Authorization" not in json.dumps(rows)
    source = {"S3DataType": "S3Prefix", "S3Uri": f"{bucket.url}/p/"}
    trains = {"Technique": "EAGLE", "TrainingDataSource": source}
    wishes = [{"ModelSpeculativeDecodingConfig": trains}]
    job = make_job({**EAGLE_BUILT_IN_DATA, "OptimizationConfigs": wishes}, JobSettings())
    arguments = job.stages[0].arguments
    found = load_samples(arguments[arguments.index("--data") + 1])
    assert sorted(
        (sample.messages[0].content, sample.messages[-1].content) for sample in found.samples
    ) == [
        ("Count, and be cut.", "Count, and be cut."),
        ("Count.", "One, two."),
        ("Mail [EMAIL] about OCI.", "A standard."),
    ]
    spec = RefreshSpec(name="e", model="m", traffic=f"{bucket.url}/p", image="e")
    texts = RefreshWork(
        spec=spec, directory=Path("/"), engine=None, projects=Mock(), say=print
    ).texts()
    assert texts is not None
    assert texts.conversations == 2  # an answer that was cut is none


def test_a_directory_is_a_destination_and_updates_keep_or_replace_the_capture(
    api: Server, tmp_path: Path
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
    made = serve(api, f"file://{first}", CaptureOptions=[{"CaptureMode": "Output"}])
    other = capture_of(f"file://{second}", EnableCapture=False)
    made.create_endpoint_config(
        **{**config_body("m", DataCaptureConfig=other), "EndpointConfigName": "n"}
    )

    def update(**members: Any) -> Any:
        made.update_endpoint(EndpointName="e", EndpointConfigName="n", **members)
        wait(api, "Endpoint", "e")
        ask(api)
        return made.describe_endpoint(EndpointName="e")["DataCaptureConfig"]

    kept = update(RetainAllVariantProperties=True)
    only = [{"VariantPropertyType": "DataCaptureConfig"}]
    replaced = update(RetainAllVariantProperties=True, ExcludeRetainedVariantProperties=only)
    api.services.endpoints.captures.close()

    assert (kept["DestinationS3Uri"], kept["CaptureStatus"]) == (f"file://{first}", "Started")
    assert (replaced["DestinationS3Uri"], replaced["CaptureStatus"]) == (
        f"file://{second}",
        "Stopped",
    )
    (path,) = first.rglob("*.jsonl")
    (row,) = map(json.loads, path.read_text().splitlines())
    (output,) = row["captureData"].values()
    assert (output["mode"], output["encoding"]) == ("OUTPUT", "BASE64")
    assert list(second.iterdir()) == []
