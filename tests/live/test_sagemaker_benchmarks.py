"""SageMaker's SDK 3, unchanged, against `packager serve`: benchmarks and recommendations.

The engine of the endpoint is `tiny_engine.py`; everything else is real: the server, its jobs, the
Docker Engine, moto's bucket.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import WaiterError

from tests.conftest import SCRIPTS, unavailable
from tests.live.tiny_images import TINY_ENGINE
from tests.support.doubles.s3 import Bucket

pytestmark = [pytest.mark.live, pytest.mark.timeout(1500)]

HERE = Path(__file__).resolve().parent
WAIT = {"Delay": 0.2, "MaxAttempts": 600}
ROLE = "arn:aws:iam::111122223333:role/SageMaker"


@pytest.fixture(scope="module")
def sdk() -> Path:
    found = subprocess.run([SCRIPTS / "bench-consumers", "path"], capture_output=True, text=True)
    if found.returncode != 0:
        unavailable("scripts/bench-consumers")
    return Path(found.stdout.strip()) / "sagemaker"


@contextmanager
def serving(environment: dict[str, str], *options: str) -> Iterator[str]:
    """Run `packager serve`; give its address."""
    command = [sys.executable, "-m", "packager", "serve", "--listen", "127.0.0.1:0", *options]
    with subprocess.Popen(
        [*command, "--format", "json"], env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            lines = [process.stdout.readline()]
            while lines[-1] not in ("}\n", ""):
                lines.append(process.stdout.readline())
            yield json.loads("".join(lines))["url"]
        finally:
            process.terminate()
            process.wait(60)


def test_sagemakers_sdk_benchmarks_an_endpoint_and_takes_recommendations(
    image: str, sdk: Path, bucket: Bucket, tmp_path: Path
) -> None:
    environment = {**os.environ, **bucket.environment, "HOME": str(tmp_path)}
    state = Path(environment["XDG_STATE_HOME"])
    place = f"{bucket.url}/results/"
    with serving(environment, "--instance", "local", "--base", f"docker:{TINY_ENGINE}") as url:
        client = client_of(url)
        deploy(client, "tiny", {"Image": image})
        done = subprocess.run(
            [
                sys.executable,
                HERE / "sagemaker_jobs.py",
                "tiny",
                f"{bucket.url}/models/tiny",
                place,
            ],
            env={**environment, "PYTHONPATH": str(sdk), "AWS_ENDPOINT_URL_SAGEMAKER": url},
            capture_output=True,
            text=True,
            timeout=900,
        )
        if done.returncode == 0:
            package = json.loads(done.stdout.splitlines()[-1])["package"]
            described = client.describe_model_package(ModelPackageName=package)
            deploy(client, "best", {"ModelPackageName": package})
            answer = invoke(url, "best")
            client.delete_endpoint(EndpointName="best")
        logs = [path.read_text() for path in state.rglob("log.txt")]
        client.delete_endpoint(EndpointName="tiny")
        client.get_waiter("endpoint_deleted").wait(EndpointName="tiny", WaiterConfig=WAIT)

    assert done.returncode == 0, (done.stderr[-3000:], logs)
    told = json.loads(done.stdout.splitlines()[-1])
    assert (told["status"], told["endpoint"], told["requests"]) == ("Completed", "tiny", 8)
    assert told["tool"].startswith("packager ")
    assert "output_token_throughput" in told["shown"]
    assert "'warmup_colour' is not a parameter of a workload" in told["refused"]
    assert told["listed"] == ["sdk-bench"]
    assert (told["recommended"], told["models"]) == ("Completed", ["sdk-recommend"])
    assert told["image"].startswith("packager-tune:")
    assert told["instance"] == "ml.g5.xlarge"
    assert described["ModelApprovalStatus"] == "Approved"
    assert answer["choices"][0]["message"] == {"content": "from a chat"}
    assert told["throughput"] > 0 and told["latency"] > 0
    assert "ml.g5.xlarge" in told["table"]
    assert any(key.startswith("results/sdk-bench/") for key in bucket.names())


def client_of(url: str) -> Any:
    keys = {"aws_access_key_id": "x", "aws_secret_access_key": "x"}
    return boto3.client("sagemaker", endpoint_url=url, region_name="us-east-1", **keys)


def invoke(url: str, name: str) -> Any:
    keys = {"aws_access_key_id": "x", "aws_secret_access_key": "x"}
    runtime = boto3.client("sagemaker-runtime", endpoint_url=url, region_name="us-east-1", **keys)
    asked = {"model": "tiny", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}
    found = runtime.invoke_endpoint(
        EndpointName=name, ContentType="application/json", Body=json.dumps(asked)
    )
    return json.loads(found["Body"].read())


def deploy(client: Any, name: str, container: dict[str, str]) -> None:
    """Bring a model up behind an endpoint of its name."""
    client.create_model(ModelName=name, PrimaryContainer=container, ExecutionRoleArn=ROLE)
    variant = {"VariantName": "all", "ModelName": name, "InstanceType": "ml.m5.xlarge",
               "InitialInstanceCount": 1}  # fmt: skip
    client.create_endpoint_config(EndpointConfigName=name, ProductionVariants=[variant])
    client.create_endpoint(EndpointName=name, EndpointConfigName=name)
    waiter = client.get_waiter("endpoint_in_service")
    try:
        waiter.wait(EndpointName=name, WaiterConfig=WAIT)
    except WaiterError as error:
        raise AssertionError(error.last_response.get("FailureReason")) from None
